"""Every JSON document that a verb prints keeps to the schema that is shipped for it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest

from tests.support.documents import SCHEMAS, validated
from tests.support.in_process import call
from trainwright.core.records import Document
from trainwright.lock import diff
from trainwright.lock.documents import LockDocument, MirrorDocument
from trainwright.sources.survey import SourcesDocument
from trainwright.verbs.find import NAMES, find

ROOT = Path(__file__).resolve().parents[3]
PLAN = "f" * 64
FILES = {
    "train.py": "import torch\n",
    "job.log": "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
    "job.yaml": (
        "plan: {framework: pytorch, cuda: cu113, version: 1.10.2}\nentry_point: train.py\n"
        "instance_type: ml.p4d.24xlarge\ndistribution: {mpi: {enabled: true, processes_per_host: 8}}\n"
    ),
}
# A line of each verb that answers by itself, and the schema of its document.
LINES = [
    ("list", "list"),
    ("list --built", "built"),
    ("list --components", "components"),
    ("plan --framework pytorch --cuda cu124", "plan"),
    ("plan --framework pytorch --version 2.99.0 --allow-unproven", "plan"),
    ("explain --framework pytorch --cuda cu124", "explain"),
    ("render --framework pytorch --cuda cpu", "render"),
    ("render --framework pytorch --version 2.8.0 --base dlc --output made", "render"),
    ("diff pytorch:cu124 pytorch:cu126", "diff"),
    ("report --lines", "catalog"),
    ("pipeline --images pytorch:cpu --output made.yml", "pipeline"),
    ("preflight train.py", "findings"),
    ("preflight --explain TW121", "rule"),
    ("estimator --job job.yaml --check-only", "estimator"),
    ("diagnose job.log", "diagnosis"),
    ("doctor", "doctor"),
]
FAILURES = [
    ("plan --framework pytorch --cuda cu113 --version 2.5", "conflict"),
    ("plan --framework pytorch --cuda cu126 --set nccl=2.99.5", "conflict"),
    ("plan --framework pytorhc", "failure"),
]
# What does the work of a verb that asks servers, a line, and an answer that it may give.
ASKING: dict[str, tuple[str, str, Document]] = {
    "lock": (
        "trainwright.verbs.lock.lock_plan",
        "--framework pytorch --cuda cpu",
        LockDocument(
            schema="trainwright/locked/1",
            plan=PLAN,
            path="a.lock.json",
            rows=(diff.row("archive", "a", None, "b", "new"),),
            faults=0,
        ),
    ),
    "mirror": (
        "trainwright.verbs.mirror.pull_mirror",
        "pull --lock a.lock.json --to mirror",
        MirrorDocument(
            schema="trainwright/mirror/1", plan=PLAN, folder="a", site="b", files=1, bytes=2, kinds={"archives": 1}
        ),
    ),
    "sources": (
        "trainwright.sources.survey.survey",
        "--framework pytorch --cuda cpu",
        SourcesDocument(schema="trainwright/sources/1", base_images_asked=False, lines=()),
    ),
}
# What needs an engine or AWS: the test that holds its document to its schema (tests/support/documents.py).
ELSEWHERE = {
    "build": "tests/e2e/test_build_cpu.py",
    "smoke": "tests/e2e/test_build_cpu.py",
    "rehearse": "tests/e2e/test_rehearse_examples.py",
    "push": "tests/e2e/test_push.py",
    "promote": "tests/e2e/test_promote.py",
    "sign": "tests/unit/signing/test_gate.py",
    "verify": "tests/unit/signing/test_gate.py",
    "tags": "tests/e2e/test_tags.py",
    "gc": "tests/e2e/test_gc.py",
    "prove": "tests/unit/verbs/test_prove.py",
    "scan": "tests/unit/scan/test_scan.py",
    "fresh": "tests/unit/fresh/test_fresh.py",
}

pytestmark = pytest.mark.usefixtures("own_places")


def printed(*words: str) -> dict[str, Any]:
    return validated(call(*words, "--json").stdout)


def test_every_verb_with_json_has_a_line() -> None:
    """docs/tour.md: "`--json` on every verb that reads or builds"."""
    have = {name for name in NAMES if "json_" in cast(Any, find(name)).record.__struct_fields__}
    assert {line.split()[0] for line, _ in LINES} | {*ASKING} | {*ELSEWHERE} == have
    for verb, test in ELSEWHERE.items():
        assert re.search(rf'(program|call)\("{verb}"|"{verb}\.schema\.json"', (ROOT / test).read_text()), verb


@pytest.mark.parametrize(("line", "name"), [*LINES, *FAILURES])
def test_a_verb_prints_one_document_with_its_schema(tmp_path: Path, line: str, name: str) -> None:
    for file, text in FILES.items():
        (tmp_path / file).write_text(text)
    done = call(*line.split(), "--json", cwd=tmp_path)
    assert validated(done.stdout)["schema"] == f"trainwright/{name}/1"
    assert (done.returncode in (2, 3)) == (name in ("failure", "conflict"))


@pytest.mark.parametrize("name", ASKING)
def test_a_verb_that_asks_servers_prints_what_was_found(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    work, line, answer = ASKING[name]
    monkeypatch.setattr(work, lambda *_, **__: answer)
    done = call(name, *line.split(), "--json")
    assert done.returncode == 0, done.stderr
    assert validated(done.stdout) == answer.as_json()


def test_a_schema_refuses_what_it_does_not_know():
    document = printed("list")
    document["lines"][0]["surprise"] = 1
    with pytest.raises(jsonschema.ValidationError):
        validated(json.dumps(document))


def test_the_wheel_holds_the_data_and_runs_anywhere(tmp_path):
    """What `pip install trainwright` brings: the verbs, the image lines and the templates."""
    source = tmp_path / "source"
    source.mkdir()
    door = ("invoke", "requirements.txt", "tasks.py")
    pages = ("docs", "CONTRIBUTING.md", "README.md", "LICENSE")
    for name in ("trainwright", "images", "proofs", "templates", "pyproject.toml", *pages, *door):
        (source / name).symlink_to(ROOT / name)
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    names = {str(p.relative_to(installed)) for p in installed.rglob("*") if p.is_file()}
    assert "trainwright/data/images/pytorch/cpu/lock.json" in names
    assert "trainwright/data/templates/components/metis/Dockerfile.j2" in names
    assert "trainwright/schemas/plan.schema.json" in names
    assert {f"trainwright/data/{name}" for name in door} <= names  # what `build --on codebuild` sends
    assert "trainwright/sagemaker/causes.yaml" in names
    code = "import sys; sys.argv[0] = 'trainwright'; from trainwright.__main__ import main; main()"

    def trainwright(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-c", code, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
            check=False,
        )

    rendered = trainwright("render", "--framework", "pytorch", "--cuda", "cu124")
    assert rendered.returncode == 0, rendered.stderr
    beside, of_all = ROOT / "images/pytorch/cu124/Dockerfile", ROOT / "templates/proof/Dockerfile"
    assert rendered.stdout == beside.read_text() + of_all.read_text()
    for words, page in (
        (("plan", "--framework", "pytorch", "--cuda", "cu999"), "CONTRIBUTING.md"),
        (("prove", "pytorch/cpu", "--twin"), "docs/proofs.md"),
    ):
        refused = trainwright(*words).stderr
        (named,) = re.findall(r"\S+\.md", refused)
        assert Path(named.strip("()")) == installed / "trainwright" / "data" / page, refused
        assert Path(named.strip("()")).is_file()


def test_the_schema_of_failures_has_every_kind():
    from trainwright.core import errors

    kinds = {each.kind for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.Failure)}
    schema = json.loads((SCHEMAS / "failure.schema.json").read_text())
    assert kinds - {"conflict"} <= set(schema["properties"]["error"]["enum"])
