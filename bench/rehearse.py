"""A rehearsal on 2 hosts with 2 processes each against SageMaker SDK 2's local mode. Prints seconds, bounds, ratios."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.doubles.sagemaker_sdk import SDK2, Sdk, interpreter_with, nothing_left, programs  # noqa: E402
from trainwright.cli.output import say  # noqa: E402
from trainwright.core.layout import table  # noqa: E402
from trainwright.core.runner import run  # noqa: E402
from trainwright.engine.engine import connect  # noqa: E402
from trainwright.rehearse.rehearsal import rehearse  # noqa: E402
from trainwright.rehearse.rehearsed_job import RehearsedJob  # noqa: E402

HOSTS, PROCESSES = 2, 2
# Every rank leaves a file with what it saw, so a contestant that started fewer of them is found out.
SCRIPTS = {
    "torchrun": """
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
open(f"/opt/ml/model/rank-{dist.get_rank()}", "w").write(str(int(total)))
dist.destroy_process_group()
""",
    "mpi": """
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(1)
open(f"/opt/ml/model/rank-{world.Get_rank()}", "w").write(str(total))
""",
}
DISTRIBUTIONS = {
    "torchrun": {"torch_distributed": {"enabled": True}},
    "mpi": {"mpi": {"enabled": True, "processes_per_host": PROCESSES}},
}
BOUNDS = {"torchrun": 30.0, "mpi": 60.0}  # seconds on 2 cores; the toolkit sleeps 30 s in every job over MPI
# For torchrun the SDK says no number of processes, and the toolkit would take one without a GPU.
FIT = """
import json, sys, time
import boto3
from sagemaker.local import LocalSession
from sagemaker.pytorch import PyTorch
image, work, distribution = sys.argv[1:]
session = LocalSession(boto_session=boto3.Session(region_name="us-west-2"))
session.config = {"local": {"local_code": True, "container_root": work + "/root"}}
estimator = PyTorch(
    image_uri=image, role="arn:aws:iam::123456789012:role/none", instance_count=HOSTS, instance_type="local",
    sagemaker_session=session, source_dir=work + "/src", entry_point="train.py", output_path="file://" + work + "/out",
    distribution=json.loads(distribution), hyperparameters={"sagemaker_mpi_num_of_processes_per_host": PROCESSES},
)
began = time.monotonic()
estimator.fit()
print("seconds", time.monotonic() - began)
"""


def prepare(folder: Path, launcher: str) -> Path:
    """A folder with the script of a launcher; returns the script."""
    for name in ("src", "root", "out"):
        (folder / name).mkdir(parents=True)
    script = folder / "src" / "train.py"
    script.write_text(SCRIPTS[launcher])
    return script


def ours(image: str, launcher: str, folder: Path) -> float:
    """Seconds of a whole rehearsal, verdict and archive of the model included."""
    job = RehearsedJob(
        image=image,
        entry_point=str(prepare(folder, launcher)),
        hosts=HOSTS,
        processes_per_host=PROCESSES,
        distribution=DISTRIBUTIONS[launcher],
    )
    began = time.monotonic()
    told = rehearse(job, connect(say=say), say=say, output=folder / "report", quiet=True)
    seconds = time.monotonic() - began
    whole(launcher, "trainwright", list(told.artifacts["model"].files))
    return seconds


def local_mode(image: str, launcher: str, folder: Path, sdk: Sdk) -> float:
    """Seconds of ``fit()`` alone: the import of the SDK is not counted."""
    prepare(folder, launcher)
    fit = FIT.replace("HOSTS", str(HOSTS)).replace("PROCESSES", str(PROCESSES))
    said = sdk.run(fit, image, str(folder), json.dumps(DISTRIBUTIONS[launcher]), folder=folder)
    listed = run(["tar", "-tzf", str(folder / "out" / "model.tar.gz")])
    whole(launcher, "SDK 2", [line.removeprefix("./") for line in listed.stdout.split()])
    return float(said.rpartition("seconds ")[2].split()[0])


def whole(launcher: str, who: str, files: list[str]) -> None:
    """End the run where a contestant did less than was asked."""
    if missing := {f"rank-{number}" for number in range(HOSTS * PROCESSES)} - set(files):
        raise SystemExit(f"{who}, {launcher}: no {', '.join(sorted(missing))}")


def main() -> None:
    """Run both in turns and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--image", required=True, help="an image with PyTorch and Open MPI, such as that of the cpu line"
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often each is run; the best time counts")
    given = parser.parse_args()
    engine = connect(say=say)

    def docker(*words: str, check: bool = True) -> str:
        done = run([engine.client.path, *words], env=engine.cli_env)
        if check and not done.ok:
            raise SystemExit(done.tail())
        return done.stdout

    rows = [("seconds", "trainwright", "SDK 2 local mode", "SDK 2 / trainwright", "bound", "")]
    with tempfile.TemporaryDirectory(prefix="trainwright-bench-") as scratch, nothing_left(docker, given.image):
        work = Path(scratch)
        sdk = Sdk(interpreter_with(SDK2), programs(work / "programs", engine.client.path), {})
        for launcher, bound in BOUNDS.items():
            best = [float("inf"), float("inf")]
            for turn in range(given.rounds):
                say(f"{launcher}: SDK 2 local mode")
                best[1] = min(best[1], local_mode(given.image, launcher, work / f"sdk-{launcher}-{turn}", sdk))
                say(f"{launcher}: trainwright")
                best[0] = min(best[0], ours(given.image, launcher, work / f"ours-{launcher}-{turn}"))
            a, b = best
            held = "held" if a < bound else "NOT HELD"
            rows.append((f"{launcher} 2 x 2", f"{a:.1f}", f"{b:.1f}", f"{b / a:.2f}", f"{bound:.0f}", held))
    print(table(rows))


main()
