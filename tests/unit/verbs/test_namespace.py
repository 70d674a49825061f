"""The verbs as a user meets them: each has its file, each flag its help, and help names what there is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.cli.tasks import VerbTask
from trainwright.sagemaker.job import Job
from trainwright.sagemaker.job_parts import PlanRequest
from trainwright.verbs import namespace as collection
from trainwright.verbs.estimator import JobWords, PlanWords
from trainwright.verbs.namespace import namespace

VERBS: dict[str, VerbTask] = dict(namespace.tasks)
# What is no verb: what several of them share, and what collects them.
SHARED = {"ask", "build_elsewhere", "build_flags", "build_images", "documents", "find", "request", "state", "way"}
SHARED |= {"__init", "namespace"}


def test_every_verb_has_its_file_and_every_file_its_verb():
    files = {path.stem.rstrip("_") for path in Path(collection.__file__).parent.glob("*.py")} - SHARED
    assert files == {str(name) for name in VERBS} != set()
    for name, task in VERBS.items():
        assert task.body.__module__.rpartition(".")[2].rstrip("_") == name
        assert Path(str(sys.modules[task.body.__module__].__file__)).read_text().startswith(f'"""``{name}``: ')


@pytest.mark.parametrize("name", VERBS)
def test_every_flag_says_what_it_is_for(name):
    mute = [field for field in VERBS[name].record.__struct_fields__ if not VERBS[name].record.descriptions[field]]
    assert not mute
    assert VERBS[name].__doc__


def test_flags_of_a_job_are_keys_of_the_job_file():
    assert set(JobWords.__struct_fields__) <= set(Job.__struct_fields__)
    assert set(PlanWords.__struct_fields__) <= set(PlanRequest.__struct_fields__)


def test_the_flags_of_all_verbs_bring_nothing_heavy():
    heavy = {"docker", "boto3", "botocore", "jinja2", "rich", "packaging", "jsonschema", "cyclonedx"}
    code = f"import sys; import trainwright.verbs.namespace; print(*sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert done.stdout.split() == []
