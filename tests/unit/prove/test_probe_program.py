"""The program that reads what is in an image, on this machine."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.probe_program import PROGRAM, probe_program

program = pytest.fixture(scope="module")(probe_program)


def test_program_needs_nothing_newer_than_python_3_8() -> None:
    tree = ast.parse(PROGRAM.read_text(), feature_version=(3, 8))
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert {name.split(".")[0] for name in imported} <= set(sys.stdlib_module_names)


def test_facts_of_components(program: ModuleType) -> None:
    steps = [
        {"component": "good", "python": "print('noise')\nimport json\nprint(json.dumps({'a': '1'}))"},
        {
            "component": "good",
            "run": "echo version 4.1.4; echo /usr/bin/x",
            "match": {"b": r"n ([\d.]+)", "c": "^(/.*)$"},
        },
        {"component": "raises", "python": "raise ValueError('why')"},
        {"component": "talks", "python": "print('no json')"},
        {"component": "fails", "run": "echo oops >&2; exit 3", "match": {"x": "(y)"}},
        {"component": "half", "run": "echo y; exit 3", "match": {"x": "(y)", "z": "(q)"}},
        {"component": "broken", "run": "echo y", "match": {"x": "("}},
        {"component": "last", "python": "print('{}')"},
    ]
    facts = program.facts(steps)
    assert facts["good"] == {"a": "1", "b": "4.1.4", "c": "/usr/bin/x"}
    assert "ValueError: why" in facts["raises"]["error"]
    assert "no json" in facts["talks"]["error"]
    assert facts["fails"] == {"error": "oops"}
    assert facts["half"] == {"x": "y"}
    assert "error" in facts["broken"]
    assert facts["last"] == {}


def test_a_probe_without_end(program: ModuleType) -> None:
    assert program.command(["sleep", "60"], seconds=1)[0] == 124
    assert program.command(["/no/such/program"])[0] == 127


def test_loader_path(program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/given::/usr/lib")
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "ld.so.conf").write_text("include conf.d/*.conf\n# a comment\n/last # with a comment\n")
    (tmp_path / "conf.d" / "b.conf").write_text("/b\n")
    (tmp_path / "conf.d" / "a.conf").write_text("/a\n/b\n")
    folders = program.loader_directories(str(tmp_path / "ld.so.conf"))
    assert folders == ["/given", "/usr/lib", "/a", "/b", "/last", "/lib", "/lib64", "/usr/lib64"]


def test_duplicates_are_distinct_real_files(program: ModuleType, tmp_path: Path) -> None:
    one, two, farm = (tmp_path / name for name in ("one", "two", "farm"))
    for folder in (one, two, farm):
        folder.mkdir()
    (one / "libnccl.so.2.21").write_bytes(b"\x7fELF one")
    (one / "libnccl.so.2").symlink_to("libnccl.so.2.21")
    (one / "libmpi.so.40").write_bytes(b"\x7fELF")
    (one / "libmpi.so").write_text("INPUT(libmpi.so.40)")  # a linker script
    (farm / "libnccl.so.2").symlink_to(one / "libnccl.so.2")
    assert program.duplicates(program.libraries([str(one), str(farm)])) == {}
    (two / "libnccl.so.2").write_bytes(b"\x7fELF two")
    found = program.libraries([str(one), str(farm), str(two)])
    assert program.duplicates(found) == {"libnccl": [str(one / "libnccl.so.2.21"), str(two / "libnccl.so.2")]}
    assert [file["real"] for file in found["libmpi"]] == [str(one / "libmpi.so.40")]


MEGABYTES = 1_500_000


def in_a_tree(program: ModuleType, root: Path) -> list[dict[str, Any]]:
    """The copies that the program finds below a folder."""
    files = [(path.lstat().st_size, str(path)) for path in root.rglob("*") if not path.is_dir()]
    found: list[dict[str, Any]] = program.copies(sorted(files, reverse=True))
    return found


def test_copies_are_large_files_with_the_same_content_in_several_places(program: ModuleType, tmp_path: Path) -> None:
    for name, content in (
        ("opt/a/libx.so.1", b"x" * MEGABYTES),
        ("opt/b/other_name.so", b"x" * MEGABYTES),
        ("opt/c/same_size.so", b"y" * MEGABYTES),
        ("opt/d/1", b"z" * (MEGABYTES - 1)),
        ("opt/d/2", b"z" * (MEGABYTES - 1)),
        ("opt/d/3", b"z" * (MEGABYTES - 1)),
        ("opt/a/LICENSE", b"l" * 1_000_000),
        ("opt/b/LICENSE", b"l" * 1_000_000),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    one, two, *three = (
        str(tmp_path / "opt" / name) for name in ("a/libx.so.1", "b/other_name.so", "d/1", "d/2", "d/3")
    )
    assert in_a_tree(program, tmp_path) == [
        {"bytes": MEGABYTES - 1, "paths": three},
        {"bytes": MEGABYTES, "paths": [one, two]},
    ]


def test_links_are_no_copies(program: ModuleType, tmp_path: Path) -> None:
    one = tmp_path / "libx.so.1"
    one.write_bytes(b"x" * MEGABYTES)
    (tmp_path / "hard").hardlink_to(one)
    (tmp_path / "libx.so").symlink_to(one)
    assert in_a_tree(program, tmp_path) == []
    (tmp_path / "copy").write_bytes(b"x" * MEGABYTES)
    assert [each["paths"] for each in in_a_tree(program, tmp_path)] == [
        [str(tmp_path / "copy"), str(tmp_path / "hard")]
    ]


def test_only_files_of_one_size_are_read(program: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / str(number)).write_bytes(b"x" * (MEGABYTES + number))
    monkeypatch.setattr(program, "checksum", lambda path: pytest.fail(f"{path} was read"))
    assert in_a_tree(program, tmp_path) == []


def test_what_is_gone_or_cannot_be_read_is_no_copy(program: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * MEGABYTES)
    assert program.copies([(MEGABYTES, str(tmp_path / "a")), (MEGABYTES, str(tmp_path / "gone"))]) == []
    assert program.checksum(str(tmp_path)) is None
    # https://csrc.nist.gov/projects/cryptographic-standards-and-guidelines/example-values: sha256 of "abc"
    (tmp_path / "abc").write_bytes(b"abc")
    wanted = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert program.checksum(str(tmp_path / "abc")) == wanted


@pytest.mark.parametrize(
    ("name", "is_driver"),
    [
        ("libcuda.so.1", True),
        ("libcuda.so.550.54.15", True),
        ("libnvidia-ml.so.1", True),
        ("libnvidia-ptxjitcompiler.so.1", True),
        ("libcudart.so.12", False),
        ("libcudnn.so.9", False),
        ("libnvrtc.so.12", False),
        ("libcuda.so.txt", False),
    ],
)
def test_driver_libraries(program: ModuleType, name: str, is_driver: bool) -> None:
    assert bool(program.DRIVER.match(name)) is is_driver


def test_survey_is_json(program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    # The walk over the whole file system is what takes time on a developer's machine.
    monkeypatch.setattr(program, "walk", lambda _: ({"/": 10, "/usr": 9}, [(5, "/usr/x")] * 20, [], []))
    document = json.loads(json.dumps(program.survey({"probes": [{"component": "python", "python": "print('{}')"}]})))
    assert document["schema"] == "trainwright/probe/1"
    assert document["interpreter"]["version"].split(".")[0] == "3"
    assert document["os"]["ID"]
    assert "pytest" in document["distributions"]
    assert document["largest_directories"] == [{"path": "/usr", "bytes": 9}]
    assert document["largest_files"] == [{"path": "/usr/x", "bytes": 5}] * 15
    assert document["copies"] == []
    assert document["facts"] == {"python": {}}


# The container around it, with a docker that is a shell script.
# As pip 26 prints them, exit status 1.
UNMET = "smdistributed-modelparallel 1.7.0 requires sagemaker, which is not installed.\n"


@pytest.mark.parametrize(
    ("done", "said"),
    [((1, UNMET, ""), [UNMET.strip()]), ((0, "No broken requirements found.\n", ""), []), ((127, "", "no pip"), [])],
)
def test_unmet_requirements(program: ModuleType, monkeypatch: pytest.MonkeyPatch, done: Any, said: list[str]) -> None:
    monkeypatch.setattr(program, "command", lambda _: done)
    assert program.unmet() == said


@pytest.mark.parametrize(
    ("head", "licence"),
    [
        ("License-Expression: MIT\nLicense: other\nClassifier: License :: OSI Approved :: BSD License", "MIT"),
        ("Classifier: License :: OSI Approved :: BSD License\nLicense: long text", "BSD License"),
        ("Classifier: License :: A\nClassifier: License :: OSI Approved :: B", "A OR B"),
        ("License: LGPL-2.1", "LGPL-2.1"),
        ("License-File: LICENSE.txt\nName: x", ""),
        ("License: " + "x" * 9000, "x" * 200),
    ],
)
def test_the_licence_of_a_distribution(program: ModuleType, head: str, licence: str) -> None:
    assert program.licence(head) == licence


def test_the_bytes_of_a_distribution_are_those_of_its_record(program: ModuleType, tmp_path: Path) -> None:
    info = tmp_path / "x-1.dist-info"
    info.mkdir()
    for name, count in (("a.py", 100), ("b, c.py", 20), ("not of it.py", 7)):
        (tmp_path / name).write_bytes(b"x" * count)
    record = 'a.py,sha256=x,100\n"b, c.py",sha256=y,30\nstripped.so,sha256=z,900\na.pyc,,\nx-1.dist-info/RECORD,,\n'
    (info / "RECORD").write_text(record)
    assert program.recorded_bytes(str(info)) == 120 + len(record)
    assert program.recorded_bytes(str(tmp_path / "none")) == 0


def test_licences_of_a_debian_package(program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    format_ = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
    dep5 = f"{format_}\nLicense: GPL-2+\n\nLicense: Expat\n"
    for text, expected in ((dep5, "Expat, GPL-2+"), ("License: see below\n", ""), ("", "")):
        monkeypatch.setattr(program, "read", lambda _, text=text: text)
        assert program.debian_licence("x") == expected
