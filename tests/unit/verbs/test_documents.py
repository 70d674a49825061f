"""Every JSON document that a verb prints keeps to the schema that is shipped for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import jsonschema
import pytest

from tests.support.in_process import call

ROOT = Path(__file__).resolve().parents[3]
SCHEMAS = ROOT / "trainwright" / "schemas"


def check(name: str, document: object) -> None:
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(document)


def printed(*words: str) -> dict:
    return json.loads(call(*words, "--json").stdout)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("list", ["list"]),
        ("built", ["list", "--built"]),
        ("plan", ["plan", "--framework", "pytorch", "--cuda", "cu124"]),
        ("explain", ["explain", "--framework", "pytorch", "--cuda", "cu124"]),
        ("plan", ["plan", "--framework", "pytorch", "--version", "2.99.0", "--allow-unproven"]),
        ("conflict", ["plan", "--framework", "pytorch", "--cuda", "cu113", "--version", "2.5"]),
        ("conflict", ["plan", "--framework", "pytorch", "--cuda", "cu126", "--set", "nccl=2.99.5"]),
        ("failure", ["plan", "--framework", "pytorhc"]),
        ("doctor", ["doctor"]),
    ],
)
def test_document(name, words):
    document = printed(*words)
    check(name, document)
    assert document["schema"].startswith("trainwright/")


def test_a_schema_refuses_what_it_does_not_know():
    document = printed("list")
    document["lines"][0]["surprise"] = 1
    with pytest.raises(jsonschema.ValidationError):
        check("list", document)


def test_the_wheel_holds_the_data_and_runs_anywhere(tmp_path):
    """What `pip install trainwright` brings: the verbs, the image lines and the templates."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("trainwright", "images", "proofs", "templates", "pyproject.toml", "README.md", "LICENSE"):
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
    assert "trainwright/sagemaker/causes.yaml" in names
    code = "import sys; sys.argv[0] = 'trainwright'; from trainwright.__main__ import main; main()"
    plan = subprocess.run(
        [sys.executable, "-P", "-c", code, "render", "--framework", "pytorch", "--cuda", "cu124"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert plan.returncode == 0, plan.stderr
    assert plan.stdout == (ROOT / "images" / "pytorch" / "cu124" / "Dockerfile").read_text()


def test_the_schema_of_failures_has_every_kind():
    from trainwright.core import errors

    kinds = {each.kind for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.Failure)}
    schema = json.loads((SCHEMAS / "failure.schema.json").read_text())
    assert kinds - {"conflict"} <= set(schema["properties"]["error"]["enum"])
