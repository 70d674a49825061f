"""Reading a script, silencing a finding, the job file, and the verb."""

from __future__ import annotations

import ast
import json
import sys
import sysconfig
from pathlib import Path

import jsonschema
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.examples import some
from tests.support.in_process import call
from trainwright.core.errors import RequestError
from trainwright.core.findings import Finding, Rule, document, findings_text, table
from trainwright.core.records import parse_record
from trainwright.preflight.preflight import RULES, examine, preflight
from trainwright.preflight.reader import Module, Script, parse_module, read_script
from trainwright.sagemaker.job import Job, load_job

ROOT = Path(__file__).resolve().parents[3]
STDLIB = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))


def check(name: str, found: object) -> None:
    schema = json.loads((ROOT / "trainwright" / "schemas" / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(found)


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "train.py"


def everything(text: str) -> list[Finding]:
    module = parse_module(Path("train.py"), "train.py", text)
    if isinstance(module, Finding):
        return [module]
    jobs = [
        None,
        Job(distribution={"pytorchxla": {"enabled": True}}, hyperparameters={"lr": 1}),
        parse_record(
            Job,
            {
                "distribution": {
                    "smdistributed": {"modelparallel": {"enabled": True}},
                    "mpi": {"enabled": True, "processes_per_host": 8},
                },
                "spot": True,
                "inputs": {"train": "s3://b/x"},
            },
            "job",
        ),
    ]
    found: list[Finding] = []
    for job in jobs:
        found += examine(Script((module,), (), ("train.py",)), job).findings
    return found


# ---- reading ---------------------------------------------------------------------------------------------------------


@given(st.text(max_size=300))
@example("\x00")
@example("# -*- coding: nonsense -*-")
@example("f'{x!r:{y}}'\nlambda *, a=1, **k: (yield)")
def test_any_text_is_read_or_is_a_finding(text):
    everything(text)


@given(st.binary(max_size=200))
@example(b"\xff\xfe")
@example(b"\xef\xbb\xbfimport os\r\nx = 1\r\n")
@example(b"# coding: latin-1\nx = '\xe9'\n")
def test_any_bytes_are_read_or_are_a_finding(raw):
    parsed = parse_module(Path("a.py"), "a.py", raw)
    assert isinstance(parsed, Module) or parsed.code == "TW100"


NAMES = st.sampled_from(
    [
        "loss",
        "optimizer",
        "scaler",
        "model",
        "os",
        "xm",
        "torch",
        "smp",
        "dist",
        "data",
        "step",
        "rank",
        "args",
        "environ",
        "save",
        "backward",
        "cuda",
        "to",
        "item",
    ]
)
ATOMS = st.one_of(
    NAMES, st.sampled_from(["1", "'cuda'", "'SM_MODEL_DIR'", "'/home/x'", "None", "f'{x}'", "*a", "**k", "..."])
)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0 or draw(st.booleans()):
        return draw(ATOMS.filter(lambda atom: not atom.startswith("*")))
    inner = expressions(depth=depth - 1)
    kind = draw(st.sampled_from(["call", "attribute", "item", "binary", "choice", "lambda", "list"]))
    one, two = draw(inner), draw(inner)
    arguments = draw(st.lists(st.one_of(ATOMS, st.builds(lambda n, v: f"{n}={v}", NAMES, inner)), max_size=3))
    return {
        "call": f"({one}).{draw(NAMES)}({', '.join(arguments)})",
        "attribute": f"({one}).{draw(NAMES)}",
        "item": f"({one})[{two}]",
        "binary": f"({one}) * ({two})",
        "choice": f"(({one}) if ({two}) else ({one}))",
        "lambda": f"(lambda {draw(NAMES)}: {one})",
        "list": f"[({one}), ({two})]",
    }[kind]


@st.composite
def statements(draw: st.DrawFn, depth: int = 3, indent: str = "") -> str:
    value = draw(expressions(depth=2))
    kinds = ["expression", "assign", "import", "from"] + (["for", "if", "def", "class", "try", "with"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    if kind in ("for", "if", "def", "class", "try", "with"):
        body = "".join(draw(st.lists(statements(depth=depth - 1, indent=indent + " "), min_size=1, max_size=3)))
        name = draw(NAMES)
        heads = {
            "for": f"for {name} in {value}:",
            "if": f"if {value}:",
            "def": f"def {name}({name}={value}):",
            "class": f"class {name}:",
            "with": f"with {value}:",
            "try": "try:",
        }
        rest = f"{indent}except {name}:\n{body}" if kind == "try" else ""
        return f"{indent}{heads[kind]}\n{body}{rest}"
    target = draw(st.sampled_from(["x", "os.environ['N']", "a, b", "x.y"]))
    return {
        "expression": f"{indent}{value}\n",
        "assign": f"{indent}{target} = {value}\n",
        "import": f"{indent}import torch_xla.core.xla_model as xm, {draw(NAMES)}\n",
        "from": f"{indent}from smdistributed.modelparallel import torch as smp\n",
    }[kind]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=some(100))
@given(st.lists(statements(), min_size=1, max_size=6).map("".join))
def test_no_python_stops_the_rules(text):
    try:
        ast.parse(text)
    except SyntaxError:
        assert [f.code for f in everything(text)] == ["TW100"]
        return
    for finding in everything(text):
        assert finding.line is None or 1 <= finding.line <= text.count("\n") + 1


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(STDLIB))
def test_real_python_stops_nothing(path):
    everything(path.read_text(errors="replace"))


def test_a_syntax_error_is_a_finding_with_its_line(tmp_path):
    entry = write(tmp_path, train="import os\n\ndef f(:\n    pass\n")
    found = preflight(str(entry))
    assert [(f.code, f.line, f.path) for f in found.findings] == [("TW100", 3, "train.py")]
    assert found.exit_code == 2


def test_a_tree_that_is_too_deep_is_a_finding():
    deep = "x = " + "(" * 90 + "1" + ")" * 90 + "\n" + "y = " + "-" * 3000 + "1\n"
    assert [f.code for f in everything(deep)] == ["TW100"]


@pytest.mark.parametrize(
    "value", ["-" * 350 + "loss.item()", " + ".join(["loss.item()"] * 300), "f(" * 90 + "loss.item()" + ")" * 90]
)
def test_what_is_deep_but_readable_is_read(value):
    text = f"for x in y:\n    loss.backward()\n    z = {value}\n    if {value}:\n        print({value})\n"
    assert "TW150" in {f.code for f in everything(text)}


def test_imports_are_followed_inside_the_folder_alone(tmp_path):
    source = tmp_path / "src"
    entry = write(
        source,
        train="import utils\nfrom pack import part\nfrom pack.deep import *\nimport json\ndef f():\n    import late\n",
        utils="import os\nos.environ['N'] = 4\n",
        late="",
        **{
            "pack/__init__": "from . import sibling\n",
            "pack/part": "",
            "pack/deep": "from ..utils import x\n",
            "pack/sibling": "",
        },
        unused="os.environ['N'] = 4\n",
    )
    (tmp_path / "outside.py").write_text("")
    script = read_script(entry, source)
    assert set(script.files) == {
        "train.py",
        "utils.py",
        "late.py",
        "pack/__init__.py",
        "pack/part.py",
        "pack/deep.py",
        "pack/sibling.py",
    }
    assert script.files[0] == "train.py"
    assert {m.name: m.certain for m in script.modules}["late.py"] is False
    assert {m.name: m.certain for m in script.modules}["pack/sibling.py"] is True
    found = examine(script)
    assert [(f.code, f.path, f.line) for f in found.findings] == [("TW160", "utils.py", 2)]


def test_what_an_imported_file_does_alone_is_no_matter(tmp_path):
    tool = "def options(p):\n    p.add_argument('data')\n\nif __name__ == '__main__':\n    p.add_argument('more')\n"
    entry = write(tmp_path, train="import tool\np.parse_args()\n", tool=tool)
    assert preflight(str(entry)).findings == ()
    entry.write_text("import tool\ntool.options(p)\np.parse_args()\n")
    assert [(f.code, f.path, f.line) for f in preflight(str(entry)).findings] == [("TW196", "tool.py", 2)]


def test_a_save_of_another_program_is_no_matter(tmp_path):
    text = "import torch\ndef save():\n    torch.save(s, 'x.pt')\ndef push():\n    save()\n"
    text += "if __name__ == '__main__':\n    push()\n"
    entry = write(tmp_path, train="import push_to_hub\n", push_to_hub=text)
    assert preflight(str(entry)).findings == ()
    assert [f.code for f in preflight(str(tmp_path / "push_to_hub.py")).findings] == ["TW142"]


def test_files_that_import_each_other_end(tmp_path):
    entry = write(tmp_path, train="import other", other="import train")
    assert read_script(entry).files == ("train.py", "other.py")


def test_the_entry_point_is_looked_for_in_the_source_folder(tmp_path):
    write(tmp_path / "src", train="")
    assert read_script(Path("train.py"), tmp_path / "src").files == ("train.py",)


def test_a_relative_import_in_the_script_is_an_error(tmp_path):
    entry = write(tmp_path, train="from .utils import x\n", utils="x = 1\n")
    assert [f.code for f in preflight(str(entry)).findings] == ["TW101"]
    entry.write_text("try:\n    from .utils import x\nexcept ImportError:\n    from utils import x\n")
    assert preflight(str(entry)).findings == ()


@pytest.mark.parametrize("given_", ["missing.py", "train.sh", ""])
def test_what_is_no_script_is_refused(tmp_path, given_):
    write(tmp_path, train="")
    (tmp_path / "train.sh").write_text("echo")
    with pytest.raises(RequestError):
        preflight(str(tmp_path / given_) if given_ else "")


def test_the_script_is_never_run(tmp_path):
    entry = write(tmp_path, train="import helper\nopen('ran', 'w')\nraise SystemExit(1)\n", helper="open('ran', 'w')\n")
    preflight(str(entry))
    assert not list(tmp_path.glob("**/ran")) and not Path("ran").exists()
    assert "helper" not in sys.modules
    assert not list(tmp_path.glob("**/__pycache__"))


# ---- silencing -------------------------------------------------------------------------------------------------------

WRONG = "import os\nos.environ['N'] = 4"


@pytest.mark.parametrize(
    "text",
    [
        WRONG + "  # trainwright: ignore[TW160] set again by the launcher\n",
        "import os\n# trainwright: ignore[TW160] set again by the launcher\nos.environ['N'] = 4\n",
        "import os\n# trainwright: ignore[tw160, TW160] why\n\n# another comment\nos.environ['N'] = 4\n",
        "import os\nos.environ['N'] = (\n    4  # trainwright: ignore[TW160] why\n)\n",
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


def test_a_comment_that_silences_nothing_is_a_note():
    found = everything("import os  # trainwright: ignore[TW160] why\nos.environ['N'] = 4\n")
    assert {(f.code, f.severity) for f in found} >= {("TW103", "note"), ("TW160", "error")}


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
    assert found.exit_code == (2 if "error" in kinds or (strict and "warning" in kinds) else 0)
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
    assert all(f"| {rule.code} | {rule.severity} |" in page for rule in RULES)


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
    assert done.returncode == 2
    assert "train.py:2: error TW160" in done.stdout and "fix:" in done.stdout
    done = call("preflight", "--entry-point", str(entry), "--json")
    assert done.returncode == 2
    found = json.loads(done.stdout)
    check("findings", found)
    assert [f["code"] for f in found["findings"]] == ["TW160"]


def test_warnings_end_well_unless_strict(tmp_path):
    entry = write(tmp_path, train="import torch\ntorch.save(state, 'model.pt')\n")
    assert call("preflight", "--entry-point", str(entry)).returncode == 0
    assert call("preflight", "--entry-point", str(entry), "--strict").returncode == 2


def test_the_job_file_names_the_script(tmp_path):
    write(
        tmp_path / "src",
        train="import argparse\np = argparse.ArgumentParser()\np.parse_args()\np.add_argument('--e')\n",
    )
    job = job_file(tmp_path, WHOLE)
    done = call("preflight", "--job", str(job), "--json")
    assert done.returncode == 2, done.stderr
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
