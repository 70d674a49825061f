"""The container around the probe, with a docker that is a shell script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainwright.core.errors import EngineError, ProofFailed
from trainwright.core.paths import templates_dir
from trainwright.prove import probe

PROGRAM = templates_dir() / "probe" / "probe.py"
PLAN: dict[str, Any] = {"probes": [{"component": "python", "python": "print('{}')"}]}
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


def test_second_copies_are_a_note() -> None:
    libraries = {"bytes": 66_600_000, "paths": ["/opt/a/libx.so.1", "/opt/b/libx.so.1"]}
    others = [{"bytes": 2_000_000 - n, "paths": [f"/{n}/{name}" for name in "abc"]} for n in range(3)]
    assert probe.copies_note({"copies": [libraries]}) == (
        "66.6 MB are second copies of files: /opt/a/libx.so.1 = /opt/b/libx.so.1 (66.6 MB)"
    )
    assert probe.copies_note({"copies": [libraries, *others]}) == (
        "78.6 MB are second copies of files: /opt/a/libx.so.1 = /opt/b/libx.so.1 (66.6 MB), "
        "/0/a = /0/b = /0/c (2.0 MB), /1/a = /1/b = /1/c (2.0 MB), 1 more"
    )
    # What the image extends is not ours, and records of before know of no copies.
    assert probe.copies_note({"copies": [libraries], "base": {"copies": [libraries]}}) == ""
    assert probe.copies_note({"copies": [libraries, others[0]], "base": {"copies": [libraries]}}).startswith("4.0 MB")
    assert probe.copies_note({"base": {"copies": {}}}) == ""
    assert probe.check({}, {"copies": [libraries]}) is None


def test_no_client() -> None:
    with pytest.raises(EngineError):
        probe.probe("/no/such/docker", "img", PLAN)


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
