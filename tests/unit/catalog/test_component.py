"""Versions of components: values and archives by range, in a real version order, and files by kind of image."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version as Ordered

from trainwright.catalog.component import Build, BuildTarget, Notice, Provider, SourceFile, VersionFiles, fill
from trainwright.core.errors import RequestError
from trainwright.core.records import parse_record

SHA = "a" * 64
IMAGE = BuildTarget("pytorch", "1.10.2", "11.3", "3.8")


def provider(**fields: object) -> Provider:
    return parse_record(Provider, {"about": "a test", **fields}, "the test")


def installer(**versions: dict[str, str]) -> Provider:
    return provider(
        archive={"file": "efa-{version}.tar.gz", "url": "https://a.example/{flavour}/efa-{version}.tar.gz"},
        values={"flavour": "old", "flags": "-y -g"},
        ranges=[
            {"versions": ">=1.38", "values": {"flavour": "new"}},
            {"versions": ">=1.48", "values": {"flags": "-y --disable-ngc"}},
            {"versions": ">=1.100", "archive": {"file": "e.tgz", "url": "https://b.example/e.tgz"}},
        ],
        versions={v: {"sha256": SHA} for v in ("1.9.5", "1.38.0", "1.48.0", "1.100.0")} | versions,
    )


def test_ranges_know_1_9_from_1_100() -> None:
    made = installer()
    assert made.values_for("1.9.5") == {"flavour": "old", "flags": "-y -g"}
    assert made.values_for("1.38.0") == {"flavour": "new", "flags": "-y -g"}
    assert made.values_for("1.100.0") == {"flavour": "new", "flags": "-y --disable-ngc"}


def test_the_archive_of_a_version_that_names_its_checksum_alone() -> None:
    (source,) = installer().sources_for("1.38.0", IMAGE) or ()
    assert source.file == "efa-1.38.0.tar.gz"
    assert source.url == "https://a.example/new/efa-1.38.0.tar.gz"
    assert source.sha256 == SHA


def test_a_range_may_have_another_archive() -> None:
    (source,) = installer().sources_for("1.100.0", IMAGE) or ()
    assert source.url == "https://b.example/e.tgz"


def test_a_version_without_a_checksum_is_left_to_the_first_use() -> None:
    (source,) = installer(**{"1.49.0": {}}).sources_for("1.49.0", IMAGE) or ()
    assert source.sha256 is None


def test_values_of_a_version_win() -> None:
    assert installer(**{"1.49.0": {"values": {"flags": "own"}}}).values_for("1.49.0")["flags"] == "own"


def test_files_are_told_apart_by_what_the_image_is_made_for() -> None:
    rows = [("1.10", "3.8"), ("1.11", "3.8"), ("1.1", "3.9")]
    builds = [
        {
            "framework": "pytorch",
            "framework_version": version,
            "python": python,
            "sources": [{"file": f"w-{version}.whl", "url": f"https://a.example/{version}"}],
        }
        for version, python in rows
    ]
    made = provider(versions={"1.7.0": {"builds": builds}})
    assert [s.file for s in made.sources_for("1.7.0", IMAGE) or ()] == ["w-1.10.whl"]
    assert made.sources_for("1.7.0", IMAGE._replace(python="3.9")) is None
    assert made.sources_for("1.7.0", IMAGE._replace(framework_version="1.1.0", python="3.9")) is not None
    assert made.sources_for("1.7.0", IMAGE._replace(platform="linux/arm64")) is None
    assert made.sources_for("9.9", IMAGE) == (), "a version that is in no table has no files"
    assert Build(framework="pytorch", cuda="11.3", python="3.8", sources=()).made_for == "pytorch CUDA 11.3 Python 3.8"
    assert Build(cuda="cpu", platform="linux/arm64", sources=()).made_for == "CUDA cpu linux/arm64"


@pytest.mark.parametrize(
    "fields",
    [
        {"sha256": SHA, "sources": [{"file": "a", "url": "https://a.example/a"}]},
        {"sha256": "short"},
        {"sources": [{"file": "a"}]},
        {"sources": [{"file": "a", "package": "metis"}]},
        {"builds": [{"pyhton": "3.8", "sources": []}]},
    ],
)
def test_malformed_versions_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(RequestError):
        parse_record(VersionFiles, fields, "the test")


def test_an_archive_may_lack_a_checksum_a_package_may_not() -> None:
    assert SourceFile(file="a.whl", url="https://a.example/a.whl").sha256 is None


NUMBERS = st.lists(st.integers(0, 120), min_size=2, max_size=3).map(lambda parts: ".".join(map(str, parts)))


@given(version=NUMBERS, border=NUMBERS)
def test_exactly_one_side_of_a_border_holds(version: str, border: str) -> None:
    made = provider(
        ranges=[{"versions": f"<{border}", "values": {"old": "1"}}, {"versions": f">={border}", "values": {"new": "1"}}]
    )
    assert set(made.values_for(version)) == ({"old"} if Ordered(version) < Ordered(border) else {"new"})


@given(text=st.text(), value=st.text(alphabet="abc123."))
def test_filling_leaves_what_is_no_name(text: str, value: str) -> None:
    assert fill(text.replace("{version}", ""), {"version": value}) == text.replace("{version}", "") or "{v" in text
    assert fill("x-{version}-${PATH}-{other}", {"version": value}) == f"x-{value}-${{PATH}}-{{other}}"


@pytest.mark.parametrize(
    ("version", "others", "applies"),
    [
        ("1.10.2", (), False),
        ("2.0.0", (), True),
        ("2.0.0", ("compiler",), False),
        ("2.0.0", ("nvcc",), False),
        ("", (), True),
    ],
)
def test_a_notice_is_about_some_versions(version, others, applies):
    notice = Notice(says="mind the gap", unless=("compiler", "nvcc"), versions=">=2.0")
    assert notice.applies(version, others) is applies
    assert Notice(says="mind the gap").applies(version, others)
