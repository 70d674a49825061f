"""Jobs that are well: rehearsed for real on one and more hosts, and nothing of them stays behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jsonschema
import pytest

from tests.support.rehearsals import checks, files_of, ip_is_there, nothing_is_left  # noqa: F401 - fixtures
from trainwright.engine.engine import connect
from trainwright.rehearse.artifacts import foreign, hand_over
from trainwright.rehearse.network import VARIABLE

ROOT = Path(__file__).resolve().parents[2]

DDP = """
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
with open(os.path.join(os.environ["SM_MODEL_DIR"], f"rank-{dist.get_rank()}"), "w") as out:
    out.write(f"{value[0]:g}")
dist.destroy_process_group()
"""
MPI = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
with open(os.path.join("/opt/ml/model", f"rank-{world.Get_rank()}"), "w") as out:
    out.write(str(world.allreduce(1)))
"""
PLAIN = """
import argparse, json, os, socket, sys
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--name")
args = parser.parse_args()
report = {
    "epochs": args.epochs, "name": args.name, "cwd": os.getcwd(), "own name": socket.gethostname(),
    "host": os.environ["SM_CURRENT_HOST"], "hosts": json.loads(os.environ["SM_HOSTS"]),
    "type": os.environ["SM_CURRENT_INSTANCE_TYPE"], "interface": os.environ["SM_NETWORK_INTERFACE_NAME"],
    "interfaces": os.listdir("/sys/class/net"), "extra": os.environ.get("EXTRA"),
    "channel": open(os.environ["SM_CHANNEL_TRAINING"] + "/data.txt").read(),
    "own address": socket.gethostbyname(socket.gethostname()),
}
os.makedirs(os.environ["SM_MODEL_DIR"] + "/deep")
json.dump(report, open(os.environ["SM_MODEL_DIR"] + "/deep/report.json", "w"))
open(os.environ["SM_OUTPUT_DATA_DIR"] + "/note.txt", "w").write("done")
"""
# Every host serves, and every host calls every other one.
REACH = """
import json, os, socket, sys, threading, time
hosts = json.loads(os.environ["SM_HOSTS"])
server = socket.create_server(("", 5555))
def serve():
    while True:
        server.accept()[0].sendall(os.environ["SM_CURRENT_HOST"].encode())
threading.Thread(target=serve, daemon=True).start()
for host in hosts:
    for attempt in range(100):
        try:
            with socket.create_connection((host, 5555), 5) as caller:
                assert caller.recv(100).decode() == host
            break
        except OSError:
            time.sleep(0.3)
    else:
        sys.exit(f"{host} was not reached")
name = os.environ["SM_CURRENT_HOST"]
open(os.environ["SM_MODEL_DIR"] + "/" + name, "w").write("reached all")
time.sleep(5)
"""
TORCHRUN = ("--distribution", "torch_distributed")
TWO_BY_TWO = ("--hosts", "2", "--processes-per-host", "2")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="veth pairs need root")


def test_one_host_sees_what_the_platform_shows(rehearse, tmp_path):
    (tmp_path / "data.txt").write_text("numbers")
    words = ["--hyperparameters", '{"epochs": 3, "name": "x y"}', "--input", f"training={tmp_path}"]
    done = rehearse(PLAIN, *words, "--env", "EXTRA=1", "--instance-type", "ml.m5.2xlarge")
    assert done.code == 0, done.err[-3000:]
    schema = json.loads((ROOT / "trainwright/schemas/rehearsal.schema.json").read_text())
    jsonschema.validate(done.json, schema)
    kept = files_of(done.json)
    report = json.loads(kept["deep/report.json"])
    assert (report["epochs"], report["name"], report["extra"]) == (3, "x y", "1")
    assert report["cwd"] == "/opt/ml/code"
    assert (report["host"], report["hosts"], report["type"]) == ("algo-1", ["algo-1"], "ml.m5.2xlarge")
    # On the platform a container is not called algo-1, and its interface is eth0.
    assert report["own name"] == done.json["hosts"][0]["host_name"] != "algo-1"
    assert not report["own address"].startswith("127.")
    assert report["interface"] == "eth0"
    assert "eth0" in report["interfaces"]
    assert report["channel"] == "numbers"
    assert files_of(done.json, "output") == {"note.txt": "done"}
    assert checks(done.json) == dict.fromkeys(("time", "exit codes", "reports", "script"), "passed")
    assert json.loads(Path(done.json["report"]).read_text()) == done.json
    assert "algo-1 | " in done.err
    assert (tmp_path / "data.txt").read_text() == "numbers"


def test_torchrun_on_two_hosts(rehearse):
    done = rehearse(DDP, *TWO_BY_TWO, *TORCHRUN)
    assert done.code == 0, done.err[-3000:]
    assert set(checks(done.json).values()) == {"passed"}
    assert [(row["rank"], row["host"]) for row in done.json["ranks"]] == [
        (0, "algo-1"),
        (1, "algo-1"),
        (2, "algo-2"),
        (3, "algo-2"),
    ]
    assert {row["reduced"]["torch"] for row in done.json["ranks"]} == {10}
    assert files_of(done.json) == {f"rank-{rank}": "4" for rank in range(4)}
    assert done.json["network"] == "bridge"


def test_mpi_on_two_hosts(rehearse):
    done = rehearse(MPI, *TWO_BY_TWO, "--distribution", '{"mpi": {"enabled": true}}')
    assert done.code == 0, done.err[-3000:]
    assert set(checks(done.json).values()) == {"passed"}
    assert [row["host_name"] for row in done.json["ranks"]] == ["algo-1", "algo-1", "algo-2", "algo-2"]
    assert {row["reduced"]["mpi"] for row in done.json["ranks"]} == {10}
    assert files_of(done.json) == {f"rank-{rank}": "4" for rank in range(4)}


def test_sdk_3_starts_torchrun_by_its_own_driver(rehearse):
    done = rehearse(DDP, *TWO_BY_TWO, *TORCHRUN, "--sdk", "3")
    assert done.code == 0, done.err[-3000:]
    assert set(checks(done.json).values()) == {"passed"}
    assert files_of(done.json) == {f"rank-{rank}": "4" for rank in range(4)}


@pytest.mark.parametrize("start", ["pytorchjob", "slurm"])
def test_torchrun_as_another_cluster_starts_it(rehearse, start):
    done = rehearse(DDP, *TWO_BY_TWO, *TORCHRUN, "--start", start)
    assert done.code == 0, done.err[-3000:]
    assert set(checks(done.json).values()) <= {"passed"}
    assert "reports" not in checks(done.json)  # only the toolkit writes output/success
    assert done.json["start"] == start
    # A rendezvous numbers the hosts as they come, so a host may have either pair of ranks.
    assert sorted(row["rank"] for row in done.json["ranks"]) == [0, 1, 2, 3]
    assert {row["reduced"]["torch"] for row in done.json["ranks"]} == {10}
    assert files_of(done.json) == {f"rank-{rank}": "4" for rank in range(4)}


@needs_root
def test_mpi_without_bridges(rehearse, docker):
    done = rehearse(MPI, *TWO_BY_TWO, "--distribution", "mpi", **{VARIABLE: "veth"})
    assert done.code == 0, done.err[-3000:]
    assert done.json["network"] == "veth"
    assert set(checks(done.json).values()) == {"passed"}


@needs_root
@pytest.mark.parametrize("hosts", [1, 3])
def test_hosts_without_bridges_reach_one_another(rehearse, hosts):
    done = rehearse(REACH, "--hosts", str(hosts), **{VARIABLE: "veth"})
    assert done.code == 0, done.err[-3000:]
    assert files_of(done.json) == {f"algo-{number}": "reached all" for number in range(1, hosts + 1)}


def test_launch_lines_of_machines_that_nobody_owns(rehearse):
    never = "raise SystemExit('the script was run')"
    done = rehearse(never, "--hosts", "2", "--launch-only", "--instance-type", "ml.p4d.24xlarge", *TORCHRUN)
    assert done.code == 0, done.err[-3000:]
    first, second = done.json["launches"]
    assert " ".join(first["argv"]) == (
        "torchrun --nnodes 2 --nproc_per_node 8 --master_addr algo-1 --master_port 7777 --node_rank 0 train.py"
    )
    assert second["argv"][second["argv"].index("--node_rank") + 1] == "1"
    assert first["environment"]["FI_PROVIDER"] == "efa"
    assert first["environment"]["SM_NUM_GPUS"] == "8"
    assert done.json["world_size"] == 16


MIXED_GROUPS = """[{"name": "data", "instance_type": "ml.c5.xlarge", "instance_count": 1},
 {"name": "train", "instance_type": "ml.p4d.24xlarge", "instance_count": 1}]"""
MIXED_MPI = '{"mpi": {"enabled": true}, "instance_groups": ["train"]}'


def test_a_mixed_cluster_has_ranks_in_one_group(rehearse):
    script = """
import os
name = os.environ["SM_CURRENT_INSTANCE_GROUP"]
size = ""
if "OMPI_COMM_WORLD_RANK" in os.environ:
    from mpi4py import MPI
    name, size = f"rank-{MPI.COMM_WORLD.Get_rank()}", str(MPI.COMM_WORLD.allreduce(1))
open(f"/opt/ml/model/{name}", "w").write(size)
"""
    words = ("--instance-groups", MIXED_GROUPS, "--distribution", MIXED_MPI, "--processes-per-host", "2")
    done = rehearse(script, *words)
    assert done.code == 0, done.err[-3000:]
    assert set(checks(done.json).values()) == {"passed"}
    assert files_of(done.json) == {"data": "", "rank-0": "2", "rank-1": "2"}
    assert {row["host"] for row in done.json["ranks"] if row["rank"] is not None} == {"algo-2"}
    lines = rehearse(script, "--instance-groups", MIXED_GROUPS, "--distribution", MIXED_MPI, "--launch-only")
    assert lines.code == 0, lines.err[-3000:]
    launches = {launch["host"]: launch for launch in lines.json["launches"]}
    assert launches["algo-1"]["environment"]["SM_NUM_GPUS"] == "0"
    assert launches["algo-1"]["argv"][1:] == ["--", "train.py"]
    assert launches["algo-2"]["environment"]["SM_NUM_GPUS"] == "8"
    assert " ".join(launches["algo-2"]["argv"]).startswith("mpirun --host algo-2:8 -np 8 ")


def test_ranks_that_never_meet_are_noted(rehearse):
    done = rehearse("print('alone')", "--processes-per-host", "2", *TORCHRUN)
    assert done.code == 0, done.err[-3000:]
    assert checks(done.json)["all-reduce"] == "skipped"
    assert any("none joined a group" in note for note in done.json["notes"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's files can belong to somebody else here")
def test_what_containers_wrote_is_handed_over(cpu_image, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_text("")
    (tmp_path / "link").symlink_to("/nowhere")
    assert foreign(tmp_path, 4321)
    hand_over(connect(setup=False), cpu_image, tmp_path, owner=(4321, 4321))
    assert not foreign(tmp_path, 4321)
    assert (tmp_path / "deep" / "file").stat().st_gid == 4321


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can be somebody else")
def test_a_user_who_is_not_root_owns_everything(cpu_image):
    """Somebody who may use the engine, and no more: folders of PATH, too, may be closed to him."""
    home = Path(tempfile.mkdtemp(prefix="trainwright-test-"))
    try:
        script = "import os\nos.umask(0o077)\nos.mkdir('/opt/ml/model/deep')\nopen('/opt/ml/model/deep/file', 'w')\n"
        (home / "train.py").write_text(script)
        closed = home / "closed"
        closed.mkdir(0o700)
        home.chmod(0o755)
        for path in (home, home / "train.py"):
            os.chown(path, 4321, 4321)
        group = str(Path("/var/run/docker.sock").stat().st_gid)
        argv = ["setpriv", "--reuid", "4321", "--regid", "4321", "--groups", group]
        argv += [str(Path(sys.executable).with_name("invoke")), "--search-root", str(ROOT), "rehearse", "--json"]
        done = subprocess.run(
            [*argv, "--image", cpu_image, "--entry-point", str(home / "train.py")],
            cwd=home,
            env={"HOME": str(home), "PATH": f"{closed}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert json.loads(done.stdout)["artifacts"]["model"]["files"] == ["deep/file"]
        assert not [path for path in home.rglob("*") if path.lstat().st_uid != 4321 and path != closed]
    finally:
        shutil.rmtree(home)


def test_a_wrong_request_starts_nothing(program, cpu_image, tmp_path):
    (tmp_path / "train.py").write_text("")
    words = ["rehearse", "--image", cpu_image, "--entry-point", str(tmp_path / "train.py"), "--json"]
    for more, said in (
        (["--hosts", "0"], "--hosts 0"),
        (["--sdk", "4"], "--sdk 4"),
        (["--distribution", "mpii"], "mpi"),
        (["--input", "training=/nowhere"], "/nowhere"),
        (["--processes-per-host", "2"], "one process per host"),
        (["--instance-type", "ml.p4d.24xlarg"], "ml.p4d.24xlarge"),
    ):
        done = program(*words, *more)
        assert done.code == 2, more
        assert said in done.json["message"] + done.json["remedy"]
    assert program("rehearse", "--image", "no/such:image", "--entry-point", str(tmp_path / "train.py")).code == 2


def test_no_time_is_lost_between_end_and_verdict(rehearse):
    began = time.monotonic()
    done = rehearse("print('short')", "--quiet")
    assert done.code == 0
    assert time.monotonic() - began < done.json["seconds"] + 20
    assert "algo-1 |" not in done.err
