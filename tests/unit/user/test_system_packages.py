"""The packages of ``--with-apt``: only what Debian Policy allows as a name or version reaches a Dockerfile."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import some
from trainwright.core.errors import RequestError
from trainwright.user.system_packages import names_of, read_packages


def test_lists_and_repeated_flags_are_one_set():
    assert read_packages(["libsndfile1, ffmpeg", "g++", "ffmpeg"]) == ("ffmpeg", "g++", "libsndfile1")
    assert read_packages(["graphviz=2.42.2-7+deb12u1", "ffmpeg=7:5.1.9-0+deb12u1", "gnupg=2.2.40-1.1~bpo1"]) == (
        *("ffmpeg=7:5.1.9-0+deb12u1", "gnupg=2.2.40-1.1~bpo1", "graphviz=2.42.2-7+deb12u1"),
    )
    assert names_of(["ffmpeg=7:5.1.9-0", "jq"]) == ["ffmpeg", "jq"]


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("FFmpeg", "ffmpeg"),
        ("lib_sndfile1", "lib-sndfile1"),
        ("libc6:i386", "libc6"),
        ("ffmpeg,,jq", "For example"),
        ("", "For example"),
        ("./own.deb", "For example"),
        ("jq;reboot", "jq"),
        ("-y", "For example"),
        ("jq=", "newest"),
        ("jq=1.6 && true", "newest"),
        ("jq=latest", "newest"),
    ],
)
def test_what_is_no_package_is_refused_with_the_nearest(word, near):
    with pytest.raises(RequestError) as caught:
        read_packages([word])
    assert near in caught.value.remedy


def test_two_versions_of_one_package():
    with pytest.raises(RequestError, match="twice"):
        read_packages(["jq=1.6", "jq=1.7"])


@given(words=st.lists(st.text(max_size=40) | st.text(alphabet="abc0+.-=,~: $;\n\"'\\`|", max_size=40), max_size=3))
@settings(max_examples=some(400), deadline=None)
def test_nothing_else_gets_through(words):
    try:
        found = read_packages(words)
    except RequestError as refused:
        assert refused.message
        return
    # What ends up in a RUN instruction, unquoted.
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9+.-]+(=[0-9][A-Za-z0-9.+~:-]*)?", each) for each in found)
    assert len(set(names_of(found))) == len(found)
    assert read_packages([",".join(found)]) == found if found else True
