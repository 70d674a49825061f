"""Limits and exclusions that need a folder, a plan or a count: a wrong job, and the nearest right one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rule_jobs import G5, ON, REFERENCE, dist, found, image, source_folder, tuned
from trainwright.core.records import parse_record
from trainwright.estimator.check import check
from trainwright.estimator.estimate import generate
from trainwright.estimator.image import packages_of
from trainwright.estimator.subject import Subject
from trainwright.preflight.carried import resolve_plan
from trainwright.sagemaker.job import Job
from trainwright.sagemaker.job_parts import PlanRequest

folder = pytest.fixture(scope="module")(source_folder)

TORCHRUN = dist({"torch_distributed": ON})
ULTRA = "ml.p6e-gb200.36xlarge"
EXPRESS = "s3://models--usw2-az1--x-s3"


def placed(**servers: int) -> dict[str, Any]:
    return {"instance_type": ULTRA, "instance_count": 4, "placement": {"ultra_servers": servers}}


def fixed(count: int, **more: Any) -> dict[str, Any]:
    """A tuning job with a range, the objective, seven hyperparameters of SDK and toolkit, and so many more."""
    return {**tuned(), "hyperparameters": {f"h{n}": n for n in range(count)}, **more}


@pytest.mark.parametrize(
    ("code", "path", "wrong", "right"),
    [
        ("TW295", "output_kms_key", {"output": f"{EXPRESS}/a"}, {"output": "s3://models--x-s3-copies/a"}),
        ("TW295", "output_kms_key", {"output": EXPRESS}, {"output": f"s3://models/{EXPRESS.removeprefix('s3://')}"}),
        ("TW295", "placement", placed(a=4, b=1), placed(a=3, b=1)),
        ("TW292", "placement.ultra_servers.b", placed(a=4, b=0), placed(a=4)),
        ("TW290", "hyperparameters", fixed(92), fixed(91)),
        ("TW290", "hyperparameters", fixed(92), fixed(95, tuner=None)),
        ("TW260", "entry_point", {"entry_point": "train.ipynb"}, {"entry_point": "run.sh"}),
    ],
)
def test_beside_the_limit(folder, code, path, wrong, right):
    key = {"output_kms_key": "alias/models"} if path == "output_kms_key" else {}
    told = [
        {(each.code, each.path) for each in found(folder, {**changes, **key}, image()) if each.severity == "error"}
        for changes in (wrong, right)
    ]
    assert (code, path) in told[0]
    assert (code, path) not in told[1]


def test_a_bucket_of_one_zone_may_have_its_own_key(folder):
    assert "TW295" not in {each.code for each in found(folder, {"output": EXPRESS}, image())}


@pytest.mark.parametrize(
    ("job", "sdk", "told"),
    [
        (TORCHRUN, 2, True),
        (TORCHRUN, 3, False),  # its driver starts the script itself
        (dist({"mpi": {**ON, "processes_per_host": 8}}), 2, False),
        ({}, 2, False),
        ({**TORCHRUN, "source_dir": None, "entry_point": "src/train.py"}, 2, False),  # the script alone is uploaded
    ],
)
def test_a_package_is_not_started_by_torchrun(tmp_path, job, sdk, told):
    (tmp_path / "src").mkdir()
    for name in ("train.py", "setup.py"):
        (tmp_path / "src" / name).touch()
    found_here = [each for each in found(tmp_path, job, image(), sdk) if each.code == "TW209"]
    assert [(each.path, each.severity) for each in found_here] == [("source_dir", "error")] * told
    (tmp_path / "src" / "setup.py").rename(tmp_path / "src" / "setup.cfg")
    assert "TW209" not in {each.code for each in found(tmp_path, job, image(), sdk)}


@pytest.mark.parametrize(("sdk", "changes"), [(2, {}), (2, {"network_isolation": True}), (3, {})])
def test_an_output_that_is_no_address_hides_no_other_limit(folder, sdk, changes):
    """The channels of the SDK's own are below it."""
    given = {**changes, "output": "team/models", "retries": 31}
    told = {(each.code, each.path) for each in found(folder, given, image(), sdk)}
    assert {("TW290", "output"), ("TW290", "retries")} <= told


@pytest.mark.parametrize("sdk", [2, 3])
@pytest.mark.parametrize("retries", [30, 31])
@pytest.mark.parametrize("more", [{}, tuned()])
def test_a_job_without_role_and_region_is_held_to_the_limits(tmp_path, sdk, retries, more):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").touch()
    code = {"entry_point": "train.py", "source_dir": "src"}
    job = parse_record(Job, {"image": "training:1", "instance_type": G5, "retries": retries, **code, **more}, "job")
    errors = [each for each in check(Subject(job, image(), sdk, tmp_path)) if each.severity == "error"]
    assert [(each.code, each.path) for each in errors] == [("TW290", "retries")] * (retries > 30)


@pytest.mark.parametrize(
    ("text", "known", "severity"),
    [
        ("peft==0.11\n", True, "error"),
        ("PyYAML\npeft  # adapters\n", True, "error"),
        ("peft\n", False, "warning"),
        ("# nothing more\npyyaml>=6\n", True, "warning"),
        ('peft; python_version < "3"\n', True, "warning"),
        ("--find-links wheels\npeft\n", True, "warning"),
        ("./wheels/peft-0.11-py3-none-any.whl\n", True, "warning"),
        ("peft @ file:///opt/ml/code/peft.whl\n", True, "warning"),
    ],
)
def test_what_an_isolated_job_cannot_install(tmp_path, text, known, severity):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").touch()
    (tmp_path / "src" / "requirements.txt").write_text(text)
    job = Job(image=REFERENCE, entry_point="train.py", source_dir="src", instance_type=G5, network_isolation=True)
    packages = frozenset({"pyyaml"}) if known else None
    told = [each for each in check(Subject(job, image(), folder=tmp_path, packages=packages)) if each.code == "TW316"]
    assert [each.severity for each in told] == [severity]


def test_requirements_that_are_no_text(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "requirements.txt").write_bytes(b"\xff\x00peft")
    job = Job(image=REFERENCE, source_dir="src", network_isolation=True)
    told = check(Subject(job, image(), folder=tmp_path, packages=frozenset()))
    assert ("TW316", "warning") in {(each.code, each.severity) for each in told}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        *((each, True) for each in ("einops=0.8.0", "einops 0.8", "numpy=1.26=py311_0", "torch:2.1", '"einops"')),
        *((each, True) for each in ("<<<<<<< HEAD", "einops[extra=0.8", "einops = =0.8", "=0.8")),
        *((each, False) for each in ("einops", "einops==0.8.*", "einops (>=0.7)", "Einops_x[a,b]~=0.8,!=0.9")),
        *((each, False) for each in ("# einops=0.8", "einops  # =0.8", "", "-e .", "--pre", "-rmore.txt")),
        *((each, False) for each in ("./einops", "einops.whl", "git+https://example.com/e.git", "${INDEX}=1")),
        *((each, False) for each in ("einops;python_version<'3.9'", "einops @ https://example.com/e.zip")),
        *((each, False) for each in ("einops==0.8 \\\n    --hash=sha256:0a", "torch==2.1 --no-deps", "einops===0.8")),
    ],
)
@pytest.mark.parametrize("entry", ["train.py", "run.sh"])
def test_a_line_that_pip_refuses(tmp_path, line, told, entry):
    """A shell script installs nothing by itself."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / entry).touch()
    (tmp_path / "src" / "requirements.txt").write_text(f"numpy>=1.20\n{line}\n")
    errors = [each for each in found(tmp_path, {"entry_point": entry}, image()) if each.code == "TW327"]
    assert [each.path for each in errors] == ["source_dir"] * (told and entry == "train.py")
    assert all("src/requirements.txt, line 2: " in each.message for each in errors)


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ({"framework": "pytorch", "cuda": "cpu"}, [("error", 1), ("warning", 2)]),
        ({"framework": "pytorch", "cuda": "cpu", "with": ["torchvision"]}, [("error", 1)]),
        ({"framework": "pytorch", "cuda": "cu113", "base": "dlc"}, [("note", 0)]),
    ],
)
def test_requirements_of_another_image(tmp_path, plan, told):
    """As preflight finds them; of an image that builds on AWS's not all packages are known."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").touch()
    (tmp_path / "src" / "requirements.txt").write_text("torch>=2.14\ntorchvision\n")
    job = parse_record(Job, {"plan": plan, "entry_point": "train.py", "source_dir": "src"}, "job.yaml")
    errors = [each for each in check(Subject(job, image(), folder=tmp_path)) if each.code == "TW329"]
    assert [(each.path, each.severity) for each in errors] == [("source_dir", severity) for severity, _ in told]
    for each, (_, line) in zip(errors, told, strict=True):
        assert f"src/requirements.txt{f', line {line}' if line else ''}: " in each.message


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("match x:\n    case 1:\n        pass\n", 10),
        ("try:\n    pass\nexcept* ValueError:\n    pass\n", 11),
        ("with (open(a) as f, open(b) as g):\n    pass\n", 9),
        ("def f(a, /):\n    return (n := a)\n", 8),
        ("match = 1\nprint(match)\n", 0),
    ],
)
@pytest.mark.parametrize("python", [7, 8, 9, 10])
def test_syntax_of_a_newer_python(tmp_path, text, first, python):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("import part\n")
    (tmp_path / "src" / "part.py").write_text(text)
    facts = image(python=f"3.{python}")
    errors = [each for each in found(tmp_path, {}, facts) if each.code == "TW326"]
    assert [each.path for each in errors] == ["entry_point"] * (python < first)
    assert all(each.message.startswith("part.py, line ") for each in errors)
    # Where the script may go on without it, it is no error.
    (tmp_path / "src" / "train.py").write_text("def later():\n    import part\n")
    assert "TW326" not in {each.code for each in found(tmp_path, {}, facts)}


@pytest.mark.parametrize(
    "facts", [None, image(python=None), image(python="3.99"), image(python="3.8", entry_point="a")]
)
def test_syntax_of_which_nothing_is_known(tmp_path, facts):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("match x:\n    case 1:\n        pass\n")
    assert "TW326" not in {each.code for each in found(tmp_path, {}, facts)}


def test_a_script_that_cannot_be_read(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_bytes(b"print 'x'\n" * 2)
    (tmp_path / "src" / "requirements.txt").write_bytes(b"\xff\x00")
    assert not {"TW326", "TW327"} & {each.code for each in found(tmp_path, {}, image())}


def test_a_plan_names_all_packages_of_its_image():
    known = packages_of(resolve_plan(PlanRequest(framework="pytorch", cuda="cu124")))
    assert known is not None
    assert {"torch", "numpy", "pip", "sagemaker-training", "mpi4py"} <= known
    assert "peft" not in known
    # PyTorch from AWS's bucket, by the name of the file.
    by_address = packages_of(resolve_plan(PlanRequest(framework="pytorch", cuda="cu113", version="1.10.2")))
    assert by_address is not None
    assert "torch" in by_address


def test_an_image_of_aws_has_packages_that_no_plan_names():
    assert packages_of(resolve_plan(PlanRequest(framework="pytorch", version="2.8.0", base="dlc"))) is None


@pytest.mark.parametrize(("code", "text"), [({}, "sgd"), ({"entry_point": "train.py"}, '"sgd"')])
def test_a_built_in_algorithm_gets_the_text_of_a_hyperparameter(code, text):
    """Only the toolkit, which starts a script, reads JSON."""
    address = "433757028032.dkr.ecr.us-west-2.amazonaws.com/image-classification:1"
    job = Job(image=address, instance_type=G5, hyperparameters={"optimizer": "sgd", "epochs": 3}, **code)
    for form in ("request", "hyperparameters"):
        made = generate(Subject(job), form)
        values = made["HyperParameters"] if form == "request" else made
        assert (values["optimizer"], values["epochs"]) == (text, "3")
    assert code or '"optimizer": "sgd",' in generate(Subject(job), "python")


@pytest.mark.parametrize("lacks", [("role",), ("image",), ("image", "role")])
def test_what_is_missing_is_told_once(folder, lacks):
    told = found(folder, dict.fromkeys(lacks), image())
    assert [(each.code, each.path) for each in told if each.severity == "error"] == [("TW264", key) for key in lacks]
