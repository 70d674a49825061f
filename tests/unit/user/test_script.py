"""The script of ``--with-run``: what a kernel cannot run is refused before anything is built."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import some
from trainwright.core.errors import RequestError
from trainwright.user.script import MOST_BYTES, read_script


def test_scripts_that_a_kernel_runs(tmp_path):
    for text in ("#!/bin/sh\nexit 0\n", "#! /usr/bin/env python3\nprint('é')\n", "#!/bin/bash -e"):
        (tmp_path / "s").write_text(text)
        assert read_script(tmp_path / "s", "--with-run s") == text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no such file"),
        (b"", "does not begin with #!"),
        (b"echo hello\n", "does not begin with #!"),
        (b" #!/bin/sh\n", "does not begin with #!"),
        (b"#!\necho\n", "names no interpreter"),
        (b"#!bash\necho\n", "names no interpreter"),
        (b"\x7fELF\x02\x01", "does not begin with #!"),
        (b"#!/bin/sh\necho \xff\n", "s:2: is not text in UTF-8"),
        (b"\xef\xbb\xbf#!/bin/sh\n", "byte order mark"),
        (b"#!/bin/sh\r\necho\r\n", "s:1: has line ends of Windows"),
        (b"#!/bin/sh\necho\r\n", "s:2: has line ends of Windows"),
        (b"#!/bin/sh\necho \0\n", "names no interpreter"),
        (b"#!/bin/sh\n" + b"#" * MOST_BYTES, f"a script may have {MOST_BYTES}"),
    ],
)
def test_what_is_refused(tmp_path, content, said):
    path = tmp_path / "s"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RequestError) as caught:
        read_script(path, "--with-run s")
    assert said in caught.value.message and caught.value.remedy


def test_a_folder_and_a_device_are_no_scripts(tmp_path):
    for path, said in ((tmp_path, "is a folder"), (Path("/dev/null"), "is not a regular file")):
        with pytest.raises(RequestError, match=said):
            read_script(path, "--with-run x")


@given(content=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: f"#!/bin/{text}".encode()))
@settings(max_examples=some(400), deadline=None)
def test_whatever_is_in_the_file(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("run") / "s"
    path.write_bytes(content)
    try:
        text = read_script(path, "--with-run s")
    except RequestError as refused:
        assert refused.message.startswith("--with-run s")
    else:
        assert text.encode() == content and text.startswith("#!") and "\r\n" not in text
