"""Silencing a finding, the report, the job file, and the verb."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.in_process import call
from tests.support.training_scripts import codes, everything, write
from trainwright.core.errors import RequestError
from trainwright.core.findings import Rule, document, findings_text, table
from trainwright.preflight.preflight import RULES, examine
from trainwright.sagemaker.job import Job, load_job
from trainwright.script.reader import Module, Script, parse_module

ROOT = Path(__file__).resolve().parents[3]


def check(name: str, found: object) -> None:
    schema = json.loads((ROOT / "trainwright" / "schemas" / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(found)


# ---- silencing -------------------------------------------------------------------------------------------------------

WRONG = "import os\nos.environ['N'] = 4"


@pytest.mark.parametrize(
    "text",
    [
        WRONG + "  # trainwright: ignore[TW160] set again by the launcher\n",
        "import os\n# trainwright: ignore[TW160] set again by the launcher\nos.environ['N'] = 4\n",
        "import os\n# trainwright: ignore[tw160, TW160] why\n\n# another comment\nos.environ['N'] = 4\n",
        "import os\nos.environ['N'] = (\n    4  # trainwright: ignore[TW160] why\n)\n",
        "import os\nos.environ[\n  'é' '# no'  # trainwright: ignore[TW160] why\n  'N'] = 4\n",
    ],
)
def test_a_comment_with_a_reason_silences(text):
    module = parse_module(Path("train.py"), "train.py", text)
    assert isinstance(module, Module)
    found = examine(Script((module,), (), ("train.py",)))
    assert not [f for f in found.findings if f.code == "TW160"]
    assert [s.code for s in found.silenced] == ["TW160"]
    assert found.silenced[0].reason
    assert found.exit_code == 0
    assert found.silenced[0].reason in findings_text(found)


@pytest.mark.parametrize(
    "comment",
    [
        "# trainwright: ignore[TW160]",
        "# trainwright: ignore the launcher sets it",
        "# trainwright: ignore[] why",
        "# trainwright: ignore[TW999] why",
    ],
)
def test_a_comment_without_reason_or_code_silences_nothing(comment):
    found = everything(f"{WRONG}  {comment}\n")
    assert {"TW160", "TW102"} <= {f.code for f in found}


@pytest.mark.parametrize("text", ["é = '{}'", 'a = """é\n{}\n"""', 'a = f"""{{1}}\n{}"""'])
def test_what_a_string_says_silences_nothing(text):
    found = everything(f"import os; os.environ['N'] = 4; {text.format('# trainwright: ignore[TW160] why')}\n")
    assert "TW160" in {f.code for f in found}
    assert not {"TW102", "TW103"} & {f.code for f in found}


def test_a_comment_that_silences_nothing_is_a_note():
    found = everything("import os  # trainwright: ignore[TW160] why\nos.environ['N'] = 4\n")
    assert {(f.code, f.severity) for f in found} >= {("TW103", "note"), ("TW160", "error")}


def test_a_finding_without_a_line_is_silenced_by_a_comment_of_its_own():
    job = {"spot": True, "checkpoint": {"s3_uri": "s3://b/c"}}
    text = "import torch\nloss.backward()\n"
    assert "TW143" in codes(text, job)
    assert not {"TW143", "TW103"} & codes(f"# trainwright: ignore[TW143] it takes a minute\n{text}", job)
    assert {"TW143", "TW103"} <= codes(text.replace("torch\n", "torch  # trainwright: ignore[TW143] why\n"), job)


def test_a_comment_at_a_loop_does_not_silence_its_body():
    text = "import os\nfor x in y:  # trainwright: ignore[TW160] why\n    os.environ['N'] = 4\n"
    assert {"TW160", "TW103"} <= {f.code for f in everything(text)}


def test_text_that_looks_like_the_comment_is_none():
    assert "TW102" not in {f.code for f in everything("x = '# trainwright: ignore'\n")}


# ---- findings --------------------------------------------------------------------------------------------------------

SEVERITIES = st.sampled_from(["error", "warning", "note"])


@given(st.lists(st.tuples(SEVERITIES, st.sampled_from(["a.py", "b.py", "c.py"]), st.integers(1, 50))), st.booleans())
def test_exit_code_and_order(rows, strict):
    rule = Rule(code="TW100", severity="note", title="t", source="s", remedy="r")
    made = [rule.finding("m", path=path, line=line, severity=severity) for severity, path, line in rows]
    found = document("b.py", ("b.py", "a.py"), {}, made, strict=strict)
    kinds = [severity for severity, _, _ in rows]
    assert found.exit_code == (1 if "error" in kinds or (strict and "warning" in kinds) else 0)
    assert found.errors + found.warnings + found.notes == len(rows)
    order = [("b.py", "a.py", "c.py").index(f.path) for f in found.findings]
    assert order == sorted(order)
    check("findings", found.as_json())


def test_codes_are_there_once():
    assert len(table(RULES)) == len(RULES)
    with pytest.raises(ValueError, match="twice"):
        table([RULES[0], RULES[0]])


def test_every_code_is_in_the_docs():
    page = (ROOT / "docs" / "findings.md").read_text()
    assert all(f"| [{rule.code}](rules.md#{rule.code.lower()}) | {rule.severity} |" in page for rule in RULES)


# ---- the job file ----------------------------------------------------------------------------------------------------


def job_file(folder: Path, text: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(text)
    return path


WHOLE = """
plan: {framework: pytorch, cuda: cu124}
entry_point: train.py
source_dir: src
instance_type: ml.p4d.24xlarge
instance_count: 2
distribution: {torch_distributed: {enabled: true}}
hyperparameters: {epochs: 3, fp16: true}
environment: {NCCL_DEBUG: WARN}
inputs: {training: "s3://bucket/data"}
role: arn:aws:iam::111122223333:role/training
region: eu-west-1
checkpoint: {s3_uri: "s3://bucket/checkpoints"}
spot: true
compiler: {enabled: false}
batch: {global: 512, per_replica: 32, micro: 4}
"""


def test_a_whole_job(tmp_path):
    import yaml

    job = load_job(job_file(tmp_path, WHOLE))
    assert (job.launcher, job.hosts, job.processes_per_host, job.gpus) == ("torchrun", 2, 8, 8)
    assert job.batch is not None and job.batch.global_ == 512
    check("job", yaml.safe_load(WHOLE))


def test_a_number_with_an_exponent_without_a_sign_is_a_number(tmp_path: Path) -> None:
    """``docs/estimator.md`` writes 1.5e9, which is text by YAML 1.1."""
    job = load_job(job_file(tmp_path, "model: {parameters: 1.5e9}\nbatch: {learning_rate: 1e-4}\n"))
    assert job.model is not None
    assert job.batch is not None
    assert (job.model.parameters, job.batch.learning_rate) == (1.5e9, 1e-4)
    with pytest.raises(RequestError, match=r"model\.parameters: must be a number"):
        load_job(job_file(tmp_path, "model: {parameters: many}"))


API_FORM = """
tags: [{Key: team, Value: vision}, {Key: "cost:center", Value: "42"}]
metrics: [{Name: "train:loss", Regex: "loss=([0-9.]+)"}]
"""


def test_tags_and_metrics_may_have_the_form_of_the_api(tmp_path: Path) -> None:
    """SDK 2's ``tags`` and ``metric_definitions`` are lists of the API's records (Tag, MetricDefinition)."""
    import yaml

    job = load_job(job_file(tmp_path, API_FORM))
    assert job.tags == {"team": "vision", "cost:center": "42"}
    assert job.metrics == {"train:loss": "loss=([0-9.]+)"}
    check("job", yaml.safe_load(API_FORM))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tags: [{Key: team, Value: cv}, {Key: team, Value: nlp}]", "tags: 'team' is there twice"),
        ("metrics: [{Name: loss}]", r"'metrics\.0\.Regex' is missing"),
        ("tags: [{Key: team}]", r"'tags\.0\.Value' is missing"),
        ("tags: [{Key: team, Valu: cv, Value: cv}]", r"unknown key 'tags\.0\.Valu'"),
        ("tags: team", "tags: must be a mapping"),
    ],
)
def test_tags_and_metrics_in_the_form_of_the_api_are_checked(tmp_path: Path, text: str, words: str) -> None:
    """The API requires ``Value`` and ``Regex``; of a tag's key it says that it must be unique."""
    with pytest.raises(RequestError, match=words):
        load_job(job_file(tmp_path, text))


@pytest.mark.parametrize("table", ["checkpoint", "tensorboard", "debugger"])
def test_an_empty_local_path_is_refused(tmp_path: Path, table: str) -> None:
    """SDK 2 leaves it out of the request and SDK 3 sends it, so it would not mean one thing."""
    load_job(job_file(tmp_path, f'{table}: {{s3_uri: "s3://b/k", local_path: /x}}\n'))
    with pytest.raises(RequestError, match=rf"{table}\.local_path"):
        load_job(job_file(tmp_path, f'{table}: {{s3_uri: "s3://b/k", local_path: ""}}\n'))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("instance_typ: ml.p4d.24xlarge", "instance_type"),
        ("batch: {globl: 3}", "global"),
        ("distribution: {torchxla: {enabled: true}}", "pytorchxla"),
        ("distribution: {torch_distribted: {enabled: true}}", "torch_distributed"),
        ("distribution: {smdistributed: {modelparalel: {enabled: true}}}", "modelparallel"),
    ],
)
def test_an_unknown_key_is_refused_with_the_right_one(tmp_path, text, word):
    with pytest.raises(RequestError, match=word):
        load_job(job_file(tmp_path, text))


@pytest.mark.parametrize(
    ("distribution", "launcher"),
    [
        ({}, "process"),
        ({"mpi": {"enabled": True}}, "mpi"),
        ({"mpi": {"enabled": False}}, "process"),
        ({"torch_distributed": {"enabled": True}}, "torchrun"),
        ({"pytorchddp": {"enabled": True}}, "smddp"),
        ({"smdistributed": {"dataparallel": {"enabled": True}}}, "smddp"),
        ({"smdistributed": {"modelparallel": {"enabled": True}}, "mpi": {"enabled": True}}, "mpi"),
        ({"pytorchxla": {"enabled": True}}, "xla"),
        ({"parameter_server": {"enabled": True}}, "parameter-server"),
        ({"multi_worker_mirrored_strategy": {"enabled": True}}, "mwms"),
    ],
)
def test_launcher(distribution, launcher):
    assert Job(distribution=distribution).launcher == launcher


def test_processes_per_host():
    mpi = {"mpi": {"enabled": True, "processes_per_host": 4}}
    assert Job(distribution=mpi, instance_type="ml.p4d.24xlarge").processes_per_host == 4
    assert Job(instance_type="ml.p4d.24xlarge").processes_per_host == 1
    assert Job(distribution={"torch_distributed": {"enabled": True}}).processes_per_host is None


# ---- the verb --------------------------------------------------------------------------------------------------------


def test_verb(tmp_path):
    entry = write(tmp_path, train="import os\nos.environ['N'] = 4\n")
    done = call("preflight", "--entry-point", str(entry))
    assert done.returncode == 1
    assert "train.py:2: error TW160" in done.stdout and "fix:" in done.stdout
    done = call("preflight", "--entry-point", str(entry), "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    check("findings", found)
    assert [f["code"] for f in found["findings"]] == ["TW160"]


def test_warnings_end_well_unless_strict(tmp_path):
    entry = write(tmp_path, train="import torch\ntorch.save(state, 'model.pt')\n")
    assert call("preflight", "--entry-point", str(entry)).returncode == 0
    assert call("preflight", "--entry-point", str(entry), "--strict").returncode == 1


def test_the_job_file_names_the_script(tmp_path):
    write(
        tmp_path / "src",
        train="import argparse\np = argparse.ArgumentParser()\np.parse_args()\np.add_argument('--e')\n",
    )
    job = job_file(tmp_path, WHOLE)
    done = call("preflight", "--job", str(job), "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["facts"]["launcher"] == "torchrun" and found["facts"]["processes_per_host"] == 8
    assert {"TW193", "TW143"} <= {f["code"] for f in found["findings"]}


def test_a_wrong_job_file_is_a_failure_document(tmp_path):
    entry = write(tmp_path, train="")
    done = call("preflight", "--entry-point", str(entry), "--job", str(job_file(tmp_path, "spott: true")), "--json")
    assert done.returncode == 2
    found = json.loads(done.stdout)
    check("failure", found)
    assert "spot" in found["message"]
