"""SDK 3's way into a container: its drivers, its channels, its words for a distribution."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.core.errors import RequestError, SourceError
from trainwright.core.runner import Completed
from trainwright.rehearse.rehearsed_job import RehearsedJob
from trainwright.sagemaker import sdk3

TEMPLATES = '''
TRAIN_SCRIPT_TEMPLATE = """begin
{working_dir}
{install_requirements}
{execute_driver}
end {{}}"""
INSTALL_REQUIREMENTS = "install {requirements_file}"
EXECUTE_BASIC_SCRIPT_DRIVER = "basic"
EXEUCTE_DISTRIBUTED_DRIVER = "run {driver_name} {driver_script}"
NUMBER = 3
'''


def wheel(files: dict[str, str]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return content.getvalue()


TRAIN = wheel(
    {
        "sagemaker/train/container_drivers/scripts/environment.py": "environment",
        "sagemaker/train/container_drivers/distributed_drivers/mpi_driver.py": "mpi",
        "sagemaker/train/templates.py": TEMPLATES,
        "sagemaker/train/other.py": "not taken",
    }
)
CORE = wheel({"sagemaker/core/utils/install_requirements.py": "installer"})


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[list[str]]]:
    """An index with two small wheels; gives the calls of pip."""
    calls: list[list[str]] = []

    def stand(train: bytes = TRAIN, core: bytes = CORE, exit: int = 0) -> list[list[str]]:
        pins = [
            ("sagemaker-train", "1.27.0", "train.whl", hashlib.sha256(TRAIN).hexdigest()),
            ("sagemaker-core", "2.27.0", "core.whl", hashlib.sha256(CORE).hexdigest()),
        ]

        def pip(argv: list[str], **_: object) -> Completed:
            calls.append(list(argv))
            folder = Path(argv[argv.index("--dest") + 1])
            (folder / "train.whl").write_bytes(train)
            (folder / "core.whl").write_bytes(core)
            return Completed(tuple(argv), exit, "", "no matching distribution", 0.1)

        monkeypatch.setattr(sdk3, "WHEELS", tuple(pins))
        monkeypatch.setattr(sdk3, "run", pip)
        monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path / "cache"))
        return calls

    return stand


def test_drivers_are_fetched_once_by_their_hash(index):
    calls = index()
    folder = sdk3.fetch_drivers()
    assert sdk3.fetch_drivers() == folder
    assert len(calls) == 1
    assert "--require-hashes" in calls[0]
    assert "--no-deps" in calls[0]
    files = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.py")}
    assert files == {
        "drivers/scripts/environment.py": "environment",
        "drivers/scripts/install_requirements.py": "installer",
        "drivers/distributed_drivers/mpi_driver.py": "mpi",
    }


def test_a_wheel_with_another_content_is_refused_and_nothing_stays(index, tmp_path):
    index(train=wheel({"sagemaker/train/templates.py": TEMPLATES}))
    with pytest.raises(SourceError, match="sha256"):
        sdk3.fetch_drivers()
    assert list((tmp_path / "cache/sdk3").iterdir()) == []


def test_an_index_without_the_wheels_is_a_source_failure(index):
    index(exit=1)
    with pytest.raises(SourceError, match=r"sagemaker-train 1\.27\.0") as failure:
        sdk3.fetch_drivers()
    assert "--sdk 2" in failure.value.remedy


def test_the_channels_hold_code_drivers_and_script(index, tmp_path):
    index()
    source = tmp_path / "src"
    (source / "pkg").mkdir(parents=True)
    (source / "__pycache__").mkdir()
    for name in ("train.py", "pkg/part.py", "__pycache__/part.pyc", ".env"):
        (source / name).write_text(name)
    pins = tmp_path / "pins.txt"
    pins.write_text("numpy\n")
    files = {str(path.relative_to(source)): path for path in source.rglob("*")} | {"requirements.txt": pins}
    wanted = RehearsedJob(
        image="x",
        entry_point="train.py",
        source_dir=source,
        requirements=pins,
        sdk=3,
        distribution={"MPI": {}},
        hosts=2,
    )
    assert sdk3.write_channels(wanted, tmp_path / "data", "train.py", files) == ["code", "sm_drivers"]
    code, drivers = tmp_path / "data/code", tmp_path / "data/sm_drivers"
    assert {str(path.relative_to(code)) for path in code.rglob("*") if path.is_file()} == {
        "train.py",
        "pkg/part.py",
        "requirements.txt",
    }
    assert json.loads((drivers / "sourcecode.json").read_text())["entry_script"] == "train.py"
    told = json.loads((drivers / "distributed.json").read_text())
    assert told == {"process_count_per_node": None, "mpi_additional_options": None}
    script = (drivers / "sm_train.sh").read_text()
    assert script == "begin\ncd /opt/ml/input/data/code \n\ninstall requirements.txt\nrun MPI mpi_driver.py\nend {}"


def test_without_a_distribution_the_basic_driver_runs(index, tmp_path):
    index()
    script = tmp_path / "train.sh"
    script.write_text("true")
    sdk3.write_channels(RehearsedJob("x", "train.sh", sdk=3), tmp_path / "data", "train.sh", {"train.sh": script})
    assert (tmp_path / "data/sm_drivers/distributed.json").read_text() == "{}"
    assert "\nbasic\n" in (tmp_path / "data/sm_drivers/sm_train.sh").read_text()
    with pytest.raises(RequestError, match="not train"):
        sdk3.write_channels(RehearsedJob("x", "train", sdk=3), tmp_path / "data", "train", {})


@pytest.mark.parametrize(
    ("distribution", "kind", "fields"),
    [
        (None, None, None),
        ({"mpi": {"enabled": False}}, None, None),
        ({"MPI": {"process_count_per_node": 2}}, "MPI", {"process_count_per_node": 2, "mpi_additional_options": None}),
        (
            {"mpi": {"enabled": True, "processes_per_host": 8, "custom_mpi_options": "-x 'A=b c' -np 4"}},
            "MPI",
            {"process_count_per_node": 8, "mpi_additional_options": ["-x", "A=b c", "-np", "4"]},
        ),
        ({"torch_distributed": {"enabled": True}}, "Torchrun", {"process_count_per_node": None, "smp": None}),
        ({"torchrun": {}}, "Torchrun", {"process_count_per_node": None, "smp": None}),
    ],
)
def test_a_distribution_in_the_words_of_either_sdk(distribution, kind, fields):
    driver = sdk3.driver_of(distribution)
    assert (driver.kind, driver.fields) == (kind, fields)
    assert driver.launcher == {None: "process", "MPI": "mpi", "Torchrun": "torchrun"}[kind]


def test_model_parallelism_goes_with_torchrun():
    smp = {"modelparallel": {"enabled": True, "parameters": {"hybrid_shard_degree": 2}}}
    driver = sdk3.driver_of({"torch_distributed": {"enabled": True}, "smdistributed": smp}, 4)
    assert driver.processes_per_host == 4
    told = sdk3.hyperparameters({"name": "text", "n": 3, "flag": True}, driver)
    assert told == {"name": "text", "n": "3", "flag": "true", "mp_parameters": '{"hybrid_shard_degree": 2}'}


def test_the_last_number_of_ranks_among_the_options_counts():
    options = ["-np", "2", "-x", "A", "-np", "4"]
    assert sdk3.driver_of({"MPI": {"mpi_additional_options": options}}).ranks_asked == 4
    assert sdk3.driver_of({"MPI": {}}).ranks_asked is None


@pytest.mark.parametrize(
    ("distribution", "words", "remedy"),
    [
        ({"pytorchxla": {"enabled": True}}, "no driver for pytorchxla", "--sdk 2"),
        ({"Torchrn": {}}, "no driver for Torchrn", "Torchrun"),
        ({"MPI": {"process_count": 2}}, "unknown key 'process_count'", "process_count_per_node"),
        ({"MPI": {"process_count_per_node": "2"}}, "a whole number", ""),
        ({"MPI": {"mpi_additional_options": "-np 4"}}, "a list of words", ""),
        ({"MPI": {}, "Torchrun": {}}, "takes one driver", ""),
        ({"Torchrun": {"smp": {"degree": 1}}}, "unknown key 'degree'", "degree"),
        ({"MPI": True}, "a table of tables", ""),
    ],
)
def test_what_sdk_3_does_not_know_is_refused(distribution, words, remedy):
    with pytest.raises(RequestError, match=words) as refused:
        sdk3.driver_of(distribution)
    assert remedy in refused.value.remedy
