"""The probe program on this machine, and what counts as a difference between plan and image."""

from __future__ import annotations

import ast
import copy
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trainwright.core.errors import EngineError, ProofFailed
from trainwright.core.paths import templates_dir
from trainwright.prove import probe
from trainwright.prove.differences import COMPILER_COMPONENTS, differences

PROGRAM = templates_dir() / "probe" / "probe.py"
PLAN: dict[str, Any] = {
    "components": [
        {"name": "python", "provider": "debian", "packages": ["pip==26.3"]},
        {
            "name": "pytorch",
            "provider": "wheel",
            "packages": ["torch==2.6.0"],
            "sources": [{"package": "typing_extensions==4.16.0"}, {"url": "https://example.com/x.tar.gz"}],
        },
        {"name": "cuda-tools", "provider": "debian", "packages": ["nvidia-cuda-nvcc-cu12==12.4.131"]},
    ],
    "environment": {"USE_SMDEBUG": "0", "PATH": "/opt/venv/bin:/usr/bin"},
    "labels": {"io.trainwright.plan": "abc"},
    "expect": [
        {"component": "python", "fact": "version", "value": "3.11.*"},
        {"component": "pytorch", "fact": "cuda", "value": "12.4"},
        {"component": "pytorch", "fact": "gloo", "value": "true"},
    ],
    "probes": [{"component": "python", "python": "print('{}')"}],
}
FOUND: dict[str, Any] = {
    "facts": {"python": {"version": "3.11.2"}, "pytorch": {"cuda": "12.4", "gloo": True}},
    "distributions": {"pip": "26.3", "torch": "2.6.0", "typing-extensions": "4.16.0", "more": "1"},
    "environment": {"USE_SMDEBUG": "0", "PATH": "/opt/venv/bin:/usr/bin", "HOME": "/root"},
    "duplicates": {},
    "driver_libraries": [],
    "compilers": {},
    "left_overs": {},
    "image": {"labels": {"io.trainwright.plan": "abc", "org.example": "1"}},
}


def found_with(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(FOUND), **changes}


def keys(found: dict[str, Any], plan: dict[str, Any] = PLAN) -> list[tuple[str, str, str, str]]:
    return [(d.component, d.fact, d.expected, d.found) for d in differences(plan, found)]


def test_no_difference() -> None:
    assert keys(FOUND) == []
    probe.check(PLAN, FOUND)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"facts": {"python": {"version": "3.12.1"}, "pytorch": FOUND["facts"]["pytorch"]}},
            ("python", "version", "3.11.*", "3.12.1"),
        ),
        (
            {"facts": {"python": {"version": "3.11.2"}, "pytorch": {"cuda": "12.4.1", "gloo": True}}},
            ("pytorch", "cuda", "12.4", "12.4.1"),
        ),
        (
            {"facts": {"python": {"version": "3.11.2"}, "pytorch": {"cuda": None, "gloo": True}}},
            ("pytorch", "cuda", "12.4", "null"),
        ),
        (
            {"distributions": {**FOUND["distributions"], "torch": "2.7.1"}},
            ("pytorch", "Python package torch", "2.6.0", "2.7.1"),
        ),
        (
            {"distributions": {"pip": "26.3", "torch": "2.6.0"}},
            ("pytorch", "Python package typing_extensions", "4.16.0", "none"),
        ),
        (
            {"distributions": {**FOUND["distributions"], "nvidia-cuda-nvcc-cu12": "12.6.0"}},
            ("cuda-tools", "Python package nvidia-cuda-nvcc-cu12", "12.4.131", "12.6.0"),
        ),
        ({"duplicates": {"libnccl": ["/a", "/b"]}}, ("loader path", "libnccl", "one file", "/a, /b")),
        ({"driver_libraries": ["/usr/lib/libcuda.so.1"]}, ("driver", "/usr/lib/libcuda.so.1", "absent", "this file")),
        ({"compilers": {"gcc": "/usr/bin/gcc"}}, ("compilers", "gcc", "absent", "/usr/bin/gcc")),
        ({"left_overs": {"apt lists": list("abcde")}}, ("left-overs", "apt lists", "none", "a, b, c and 2 more")),
        (
            {"left_overs": {"ssh keys of root": ["/root/.ssh/id_rsa"]}},
            ("left-overs", "ssh keys of root", "none", "/root/.ssh/id_rsa"),
        ),
        ({"environment": {"PATH": "/opt/venv/bin:/usr/bin"}}, ("environment", "USE_SMDEBUG", "0", "nothing")),
        (
            {"environment": {**FOUND["environment"], "FI_PROVIDER": "efa"}},
            ("environment", "FI_PROVIDER", "unset", "efa"),
        ),
        ({"image": {"labels": {}}}, ("labels", "io.trainwright.plan", "abc", "nothing")),
    ],
)
def test_a_planted_difference_is_found_and_no_other(changes: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert keys(found_with(**changes)) == [expected]


@pytest.mark.parametrize(("provider", "found"), [("base", 0), ("debian", 1)])
def test_the_key_pair_of_a_container_of_aws_is_no_left_over(provider: str, found: int) -> None:
    plan = {**PLAN, "components": [*PLAN["components"], {"name": "ssh", "provider": provider}]}
    kinds = {"ssh keys of root": ["/root/.ssh/id_rsa"]}
    told = [key for key in keys(found_with(left_overs=kinds), plan) if key[0] == "left-overs"]
    assert len(told) == found


@pytest.mark.parametrize(("provider", "differs"), [("wheel", True), ("cpu-wheel", True), ("debian", False)])
def test_a_package_of_a_wheel_has_to_be_installed(provider: str, differs: bool) -> None:
    plan = copy.deepcopy(PLAN)
    plan["components"][1] |= {"provider": provider, "packages": ["tensorflow-cpu==2.21.0"], "sources": []}
    found = [(one.fact, one.found) for one in differences(plan, FOUND)]
    assert found == ([("Python package tensorflow-cpu", "none")] if differs else [])


def test_a_probe_that_failed_is_a_difference_for_each_expectation() -> None:
    facts = {"python": {"version": "3.11.2"}, "pytorch": {"error": "Traceback\nImportError: libmkl"}}
    seen = keys(found_with(facts=facts))
    assert [row[:2] for row in seen] == [("pytorch", "cuda"), ("pytorch", "gloo")]
    assert seen[0][3] == "a probe that failed: ImportError: libmkl"


def test_libraries_that_may_be_there_twice() -> None:
    assert keys(found_with(duplicates={"libibverbs": ["/a", "/b"]})) == []


@pytest.mark.parametrize("name", sorted(COMPILER_COMPONENTS))
def test_a_compiler_that_was_asked_for(name: str) -> None:
    plan = {**PLAN, "components": [*PLAN["components"], {"name": name, "provider": "debian"}]}
    assert keys(found_with(compilers={"gcc": "/usr/bin/gcc"}), plan) == []


def test_check_names_every_difference_with_remedies() -> None:
    bad = found_with(compilers={"gcc": "/usr/bin/gcc"}, driver_libraries=["/lib/libcuda.so.1"])
    with pytest.raises(ProofFailed) as failure:
        probe.check(PLAN, bad)
    assert failure.value.exit_code == 6
    assert "2 differences" in failure.value.message
    assert "/usr/bin/gcc" in failure.value.message
    assert "--with compiler" in failure.value.remedy
    assert [d["fact"] for d in failure.value.as_json()["differences"]] == ["/lib/libcuda.so.1", "gcc"]
    json.dumps(failure.value.as_json())


# The program itself, on this machine.


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("probe_program", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    monkeypatch.setattr(program, "walk", lambda _: ({"/": 10, "/usr": 9}, [(5, "/usr/x")], [], []))
    document = json.loads(json.dumps(program.survey({"probes": PLAN["probes"]})))
    assert document["schema"] == "trainwright/probe/1"
    assert document["interpreter"]["version"].split(".")[0] == "3"
    assert document["os"]["ID"]
    assert "pytest" in document["distributions"]
    assert document["largest_directories"] == [{"path": "/usr", "bytes": 9}]
    assert document["facts"] == {"python": {}}


# The container around it, with a docker that is a shell script.

INSPECT = json.dumps(
    [
        {
            "Id": "sha256:1",
            "Size": 7,
            "Architecture": "amd64",
            "Config": {"Env": ["A=b=c"], "Entrypoint": None, "User": ""},
        }
    ]
)


def fake_docker(folder: Path, run: str) -> str:
    path = folder / "docker"
    path.write_text(
        f"""#!/bin/sh
echo "$@" >> {folder}/calls
case $1 in
image) cat <<'END'
{INSPECT}
END
;;
history) echo '"RUN x"' ;;
run) {run} ;;
esac
"""
    )
    path.chmod(0o755)
    return str(path)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))


def test_probe_feeds_the_program_and_removes_the_container(tmp_path: Path) -> None:
    client = fake_docker(tmp_path, f'cat > {tmp_path}/stdin; echo "{{\\"facts\\": {{}}}}"')
    found = probe.probe(client, "img", PLAN)
    assert found["facts"] == {}
    assert found["image"]["environment"] == {"A": "b=c"}
    assert found["image"]["history"] == ["RUN x"]
    assert (tmp_path / "stdin").read_text() == PROGRAM.read_text()
    calls = (tmp_path / "calls").read_text()
    assert "--network none --entrypoint python3 img -" in calls
    assert "--label io.trainwright.session=" in calls
    assert json.dumps(PLAN["probes"]) in calls, "the program is told what to look at"
    assert "history --no-trunc --format {{json .CreatedBy}} img" in calls
    assert "rm -f trainwright-probe-" in calls
    assert " -v " not in calls


@pytest.mark.parametrize(
    ("run", "error", "says"),
    [
        ("echo 'docker: cannot connect' >&2; exit 125", EngineError, "could not run img: docker: cannot connect"),
        ("echo 'python3: not found' >&2; exit 127", ProofFailed, "img has no python3 on PATH"),
        ("echo 'half a docu'", ProofFailed, "the probe failed in img"),
        ("exit 1", ProofFailed, "the probe failed in img"),
        ("echo '[]'", ProofFailed, "the probe failed in img"),
    ],
)
def test_probe_that_does_not_end_well(tmp_path: Path, run: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        probe.probe(fake_docker(tmp_path, run), "img", PLAN)
    assert "rm -f trainwright-probe-" in (tmp_path / "calls").read_text()


def test_no_client() -> None:
    with pytest.raises(EngineError):
        probe.probe("/no/such/docker", "img", PLAN)


# As pip 26 prints them, exit status 1.
UNMET = "smdistributed-modelparallel 1.7.0 requires sagemaker, which is not installed.\n"


@pytest.mark.parametrize(
    ("done", "said"),
    [((1, UNMET, ""), [UNMET.strip()]), ((0, "No broken requirements found.\n", ""), []), ((127, "", "no pip"), [])],
)
def test_unmet_requirements(program: ModuleType, monkeypatch: pytest.MonkeyPatch, done: Any, said: list[str]) -> None:
    monkeypatch.setattr(program, "command", lambda _: done)
    assert program.unmet() == said


def test_unmet_requirements_are_differences_except_in_a_container_of_aws() -> None:
    found = found_with(unmet=[UNMET.strip()])
    assert keys(found) == [("smdistributed-modelparallel", "its requirements", "met", UNMET.strip())]
    assert keys(found, {**PLAN, "base": {"kind": "dlc"}}) == []


@pytest.mark.parametrize(
    ("seen", "differs"), [("/opt/ml/code:/opt/conda/bin:/usr/bin", False), ("/opt/conda/bin", True), ("", True)]
)
def test_a_path_in_front_of_one_that_is_not_known(seen: str, differs: bool) -> None:
    plan = {**PLAN, "environment": {"PATH": "/opt/ml/code:${PATH}"}}
    found = found_with(environment={"PATH": seen})
    assert [fact for _, fact, _, _ in keys(found, plan)] == (["PATH"] if differs else [])


def test_the_configuration_is_read_from_what_the_engine_answers(tmp_path: Path) -> None:
    """``image_inspect.json`` is what Docker 20.10 answered about the CPU image, without its folders and names."""
    answer = Path(__file__).with_name("image_inspect.json")
    (tmp_path / "docker").write_text(
        f"#!/bin/sh\ncase $1 in\nimage) cat {answer} ;;\nhistory) printf '%s\\n' '\"ENTRYPOINT [\\\"/a\\\"]\"' '' ;;\n"
        "run) cat > /dev/null; echo '{}' ;;\nesac\n"
    )
    (tmp_path / "docker").chmod(0o755)
    found = probe.probe(str(tmp_path / "docker"), "img", PLAN)["image"]
    labels = found.pop("labels")
    assert labels["io.trainwright.component.openmpi"] == "4.1.4 (debian)"
    assert len(labels) == 17
    assert found.pop("environment") == {
        "PATH": "/opt/venv/bin:/opt/metis/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "VIRTUAL_ENV": "/opt/venv",
        "PYTHONUNBUFFERED": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "SAGEMAKER_TRAINING_MODULE": "sagemaker_pytorch_container.training:main",
        "USE_SMDEBUG": "0",
        "PIP_CONSTRAINT": "/etc/trainwright/constraints.txt",
        "UV_CONSTRAINT": "/etc/trainwright/constraints.txt",
    }
    layers = found.pop("layers")
    assert len(layers) == len(set(layers)) > 10
    assert found == {
        "id": "sha256:25ee8a7ebf496fbf747aba3d589ba56df149e3cfb7d73a6b0c6e8a8204bc25ab",
        "size_bytes": 1294507433,
        "architecture": "amd64",
        "entrypoint": ["/usr/local/bin/training-init"],
        "cmd": None,
        "user": "",
        "working_dir": "/",
        "volumes": [],
        "history": ['ENTRYPOINT ["/a"]'],
    }


def test_a_user_a_volume_and_a_command_are_not_overlooked(tmp_path: Path) -> None:
    more = {"User": "nobody", "Volumes": {"/opt/ml/b": {}, "/opt/ml/a": {}}, "Cmd": ["train"], "WorkingDir": "/root"}
    answer = tmp_path / "answer.json"
    answer.write_text(json.dumps([{"Config": more, "RootFS": None}]))
    (tmp_path / "docker").write_text(
        f"#!/bin/sh\ncase $1 in image) cat {answer} ;; run) cat > /dev/null; echo '{{}}' ;; esac\n"
    )
    (tmp_path / "docker").chmod(0o755)
    found = probe.probe(str(tmp_path / "docker"), "img", PLAN)["image"]
    assert (found["user"], found["volumes"], found["cmd"]) == ("nobody", ["/opt/ml/a", "/opt/ml/b"], ["train"])
    assert (found["working_dir"], found["layers"], found["labels"], found["size_bytes"]) == ("/root", [], {}, 0)


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
