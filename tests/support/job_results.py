"""What a builder and a job find in an image that is what its plan says, made by the programs that do it there.

Both run on this machine with a probe that finds what the plan expects, and with one image test.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.build_records import probe_of
from trainwright.core.paths import data_root, templates_dir
from trainwright.plan.plan import Plan
from trainwright.prove import in_build, probe
from trainwright.prove.in_build import ASKED, BUILD

TEST = """
import pytest

def test_has_a_shell(host):
    assert host.check_output("echo here") == "here"

@pytest.mark.outside("it listens on a port")
def test_left():
    raise AssertionError("must not run in a build step")
"""
ROOT = data_root()


def found_in(plan: Plan, **more: Any) -> dict[str, Any]:
    """What the probe finds."""
    found = probe_of(plan, "")
    return {**{name: value for name, value in found.items() if name != "image"}, "bytes": 12_345, **more}


def probe_program(found: dict[str, Any]) -> str:
    """A probe that finds this."""
    return f"print({json.dumps(found)!r})\n"


def builders_results(place: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Path:
    """The folder that ``run.sh`` leaves for an image: the results of its builder, and what that was asked.

    Args:
        place: an own folder.
        plan: of the image.
        monkeypatch: for the templates of this place.
        more: of what the probe finds.
    """
    templates = place / "templates"
    shutil.copytree(templates_dir() / "proof", templates / "proof")
    texts = {"contract/test_it.py": TEST, "probe/probe.py": probe_program(found_in(plan, **more))}
    for name, text in texts.items():
        (templates / name).parent.mkdir(parents=True)
        (templates / name).write_text(text)
    with monkeypatch.context() as changed:
        for module in (in_build, probe):
            changed.setattr(module, "templates_dir", lambda: templates)
        for name, content in in_build.proof_files(plan, {}).items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.read_bytes() if isinstance(content, Path) else content.encode())
    folder = place / "proof"
    results = folder / "results"
    results.mkdir()
    environment = {**plan.environment, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": "/root"}
    argv = [sys.executable, str(folder / "prove.py"), str(folder)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (results / "said").write_text(done.stdout)
    (results / "passed").touch()
    (results / ASKED / "proof").mkdir(parents=True)
    for name in ("plan.json", "request.json"):
        shutil.copy(folder / name, results / ASKED / "proof" / name)
    (results / BUILD).write_text(json.dumps({"buildkit": "moby/buildkit@sha256:…", "seconds": 61}))
    return results


def job_result(
    path: Path, plan: Plan, digest: str, *, found: dict[str, Any] | None = None, gpus: int = 0, wrong: bool = False
) -> str:
    """The file with the result of a job in an image, by the program that runs there; its path.

    Args:
        path: of the file.
        plan: of the image.
        digest: of the image.
        found: by the probe.
        gpus: that the job was given.
        wrong: the image has another version than the plan.
    """
    expect = plan.as_json()["expect"]
    expect += [{"component": "metis", "fact": "version", "value": "never"}] if wrong else []
    request = {"plan": plan.id, "probes": [], "secrets": {}, "expect": expect, "module": "", "gpus": gpus, "job": None}
    program = (ROOT / "templates/pipeline/kubernetes/smoke.py").read_text()
    probing = probe_program(found_in(plan) if found is None else found)
    done = subprocess.run(
        [sys.executable, "-c", program, probing, json.dumps(request)],
        env={**os.environ, "RESULT": str(path), "IMAGE_DIGEST": digest},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == int(wrong), done.stdout + done.stderr
    return str(path)
