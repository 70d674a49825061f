"""A repository in a folder: its index, the pins of a lock, and that a build takes nothing else from it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainwright.core.errors import SourceError
from trainwright.lock.apt_packages import questions
from trainwright.plan.plan_lock import LockedSystemPackage
from trainwright.prove.system_check import gone_from_archive
from trainwright.site.site import Site
from trainwright.sources import apt_repository as apt
from trainwright.sources.inputs import Inputs

DEB = b"!<arch>\nnot a whole one"
SHA = hashlib.sha256(DEB).hexdigest()
WORD = st.text("abcdefgh0123456789+.-", min_size=1, max_size=8).map(lambda s: f"a{s}")
pytestmark = pytest.mark.usefixtures("own_places")


def stanza(name: str, version: str = "1-2", sha256: str = SHA, architecture: str = "amd64") -> str:
    return (
        f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nDepends: libc6 (>= 2.36)\n"
        f"Description: one\n continued: on a second line\nFilename: pool/main/x/{name}.deb\n"
        f"Size: {len(DEB)}\nSHA256: {sha256}"
    )


def package(name: str, version: str = "1-2", sha256: str = SHA) -> LockedSystemPackage:
    return LockedSystemPackage(
        name=name, version=version, architecture="amd64", sha256=sha256, size=len(DEB), stages=("os", "toolchain")
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pool").mkdir()
    for name in ("one_1-2_amd64.deb", "two_1%3a1-2_amd64.deb"):
        (tmp_path / "pool" / name).write_bytes(DEB)
    apt.write_index(tmp_path, "debian-12", [stanza("one"), stanza("two", "1:1-2")])
    return tmp_path


@given(st.dictionaries(WORD, WORD, min_size=1))
@settings(deadline=None)
def test_an_index_is_read_as_it_was_written(packages):
    text = apt.index_text(stanza(name, version) for name, version in packages.items())
    found = list(apt.stanzas(text))
    assert [apt.key(s)[:2] for s in found] == sorted(packages.items())
    assert all(apt.field(s, "filename") == f"pool/{apt.file_name(*apt.key(s))}" for s in found)
    assert apt.index_text(found) == text
    assert apt.index_text([*found, *found]) == text


@given(st.text(max_size=60))
@settings(deadline=None)
def test_any_text_is_some_paragraphs(text):
    for found in apt.stanzas(text):
        assert found.strip()
        assert all(isinstance(part, str) for part in apt.key(found))


def test_a_lock_names_each_package_once_with_its_stages():
    records = {
        "os": stanza("one"),
        "toolchain": f"{stanza('one')}\n\n{stanza('two', '1:1-2')}\n\n{stanza('two', '1:1-2')}",
    }
    found = apt.locked_packages(records)
    assert [(p.name, p.version, p.stages, p.size) for p in found] == [
        ("one", "1-2", ("os", "toolchain"), len(DEB)),
        ("two", "1:1-2", ("toolchain",), len(DEB)),
    ]


def test_an_index_grows(folder):
    (folder / "pool" / "three_1-2_amd64.deb").write_bytes(DEB)
    apt.write_index(folder, "debian-12", [stanza("three")])
    text = (folder / apt.packages_path("debian-12")).read_text()
    assert [apt.key(s)[0] for s in apt.stanzas(text)] == ["one", "three", "two"]
    release = (folder / "dists/debian-12/Release").read_text()
    assert hashlib.sha256(text.encode()).hexdigest() in release


def files_of(folder: Path, packages: list[LockedSystemPackage] | None, prefix: str) -> dict[str, str | Path]:
    return apt.context_files(apt.gathered(Site(apt_folder=folder), "debian-12", packages), "debian-12", prefix)


def test_a_build_gets_what_the_lock_names_and_no_more(folder):
    files = files_of(folder, [package("two", "1:1-2")], "apt/repository")
    assert files["apt/repository/pool/two_1%3a1-2_amd64.deb"] == folder / "pool/two_1%3a1-2_amd64.deb"
    index = str(files["apt/repository/dists/debian-12/main/binary-amd64/Packages"])
    assert [apt.key(s)[0] for s in apt.stanzas(index)] == ["two"]
    everything = files_of(folder, None, "x")
    assert sum("pool" in name for name in everything) == 2


@pytest.mark.parametrize("how", ["missing", "changed", "not in the index", "no index"])
def test_a_repository_without_the_right_package_ends_with_8(folder, how):
    path = folder / "pool" / "one_1-2_amd64.deb"
    wanted = [package("one")]
    if how == "missing":
        path.unlink()
    elif how == "changed":
        path.write_bytes(b"else")
    elif how == "no index":
        (folder / apt.packages_path("debian-12")).unlink()
    else:
        wanted = [package("four")]
    with pytest.raises(SourceError) as refused:
        files_of(folder, wanted, "x")
    assert refused.value.exit_code == 8
    assert str(folder) in refused.value.message
    assert refused.value.details["urls"]
    assert "mirror pull" in refused.value.remedy


def test_pins_are_preferred_or_all_there_is():
    soft = apt.preferences([package("one")], strict=False)
    assert soft == "Package: one\nPin: version 1-2\nPin-Priority: 995\n"
    assert apt.preferences([package("one")], strict=True) == f"{soft}\nPackage: *\nPin: release *\nPin-Priority: -1\n"


DOCKERFILE = """\
FROM ${BASE_IMAGE} AS base
FROM base AS os
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw \\
    /mnt/apt-install openssh-server \\
        libstdc++6
FROM ${BUILD_IMAGE} AS devel
FROM devel AS python
RUN /mnt/apt-install zlib1g-dev
FROM devel AS toolchain
RUN /mnt/apt-install g++ make \\
    && true
FROM os AS tools
RUN /mnt/apt-install python3-venv
FROM os AS final
COPY --from=python /a /b
"""


def test_every_stage_that_installs_is_a_question():
    found = {stage: (q.start, q.packages) for stage, q in questions(DOCKERFILE).items()}
    assert found == {
        "os": ("base", ("libstdc++6", "openssh-server")),
        "python": ("${BUILD_IMAGE}", ("zlib1g-dev",)),
        "toolchain": ("${BUILD_IMAGE}", ("g++", "make")),
        "tools": ("base", ("libstdc++6", "openssh-server", "python3-venv")),
    }


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (["E: Package 'one' has no installation candidate"], ["one"]),
        (["Package one is not available", "E: Package one has no installation candidate"], ["one"]),
        ([" two : Depends: one (= 1-2) but it is not installable"], ["one"]),
        (["E: Unable to locate package one"], ["one"]),
        (["gcc: error"], None),
    ],
)
def test_a_version_that_is_gone_is_told_from_other_failures(lines, named):
    class Lock:
        system = (package("one"),)
        request = "--framework pytorch"

    inputs = Inputs(resolved=None, plan=None, catalog=None, site=Site(), lock=Lock(), strict=True)  # type: ignore[arg-type]
    failure = gone_from_archive(inputs, "efa", lines, "/log")
    assert (failure is None) == (named is None)
    if failure is not None:
        assert failure.exit_code == 8
        assert failure.details["packages"] == named
        assert "one: 1-2" in failure.message
        assert failure.details["component"] == "efa"
        assert "--upgrade apt" in failure.remedy
