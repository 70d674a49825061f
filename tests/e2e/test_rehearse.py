"""Jobs that are well: rehearsed for real on one and more hosts, and nothing of them stays behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import jsonschema
import pytest

from trainwright.engine.engine import connect
from trainwright.engine.setup import ensure_tool
from trainwright.rehearse.artifacts import foreign, hand_over
from trainwright.rehearse.network import VARIABLE

ROOT = Path(__file__).resolve().parents[2]
LABEL = "io.trainwright.rehearsal"

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


def left(docker) -> list[str]:
    """What the engine holds of rehearsals whose process is gone; others may be at work beside this test."""
    owner = f'{{{{index .%s "{LABEL}.owner"}}}}'
    found = []
    for kind, words, labels in (("container", ["ps", "-a"], "Config.Labels"), ("network", ["network", "ls"], "Labels")):
        for identity in docker(*words, "-q", "--filter", f"label={LABEL}").split():
            said = docker(kind, "inspect", "--format", owner % labels, identity, check=False)
            if said and not Path("/proc", said.split(":")[2]).exists():
                found.append(identity)
    return found


@pytest.fixture(scope="session", autouse=True)
def ip_is_there() -> None:
    """A smallest Debian lacks the program, which veth pairs are made with."""
    if os.geteuid() == 0:
        ensure_tool("ip", print)


@pytest.fixture(autouse=True)
def nothing_is_left(docker, state):
    yield
    assert not left(docker)
    assert not list((state / "rehearsals").glob("*/work"))


def files_of(document: dict, kind: str = "model") -> dict[str, str]:
    with tarfile.open(document["artifacts"][kind]["path"]) as archive:
        found = {}
        for member in archive.getmembers():
            if member.isfile():
                content = archive.extractfile(member)
                assert content is not None
                found[member.name] = content.read().decode()
        return found


def checks(document: dict) -> dict[str, str]:
    return {row["check"]: row["outcome"] for row in document["checks"]}


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


def test_a_hang_ends_with_the_stacks_of_every_process(rehearse):
    script = """
import os, socket, time
def waits_for_a_call():
    socket.create_server(("", 5555)).accept()
def sleeps():
    time.sleep(1000)
sleeps() if os.environ["SM_CURRENT_HOST"] == "algo-2" else waits_for_a_call()
"""
    done = rehearse(script, "--hosts", "2", "--timeout", "60")
    assert done.code == 9, done.err[-3000:]
    failure = done.json
    assert failure["cause"] == "timeout"
    assert "algo-1 in accept (socket.py:" in failure["message"]
    assert "called at train.py:4" in failure["message"]
    assert "algo-2 in sleeps (train.py:6)" in failure["message"]
    stacks = [path.read_text() for path in sorted((Path(failure["report"]).parent / "logs").glob("*.stacks"))]
    assert "in waits_for_a_call" in stacks[0]
    assert "in sleeps" in stacks[1]
    # `train` itself is a Python process, too.
    assert all("bin/train" in text for text in stacks)


STOPPED = """
import os, signal, sys, time
rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
def save(*_):
    open(os.environ["SM_MODEL_DIR"] + "/checkpoint-" + rank, "w").write("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
if "OMPI_COMM_WORLD_RANK" in os.environ:
    from mpi4py import MPI
    MPI.COMM_WORLD.barrier()
time.sleep(200)
"""


def test_a_script_in_an_image_of_ours_hears_the_stop(rehearse):
    done = rehearse(STOPPED, "--stop-after", "1")
    assert done.code == 0, done.err[-3000:]
    assert checks(done.json) == {"stop": "passed"}
    assert files_of(done.json) == {"checkpoint-0": "saved"}
    # `train` itself was left alone, and reports as ever.
    assert done.json["hosts"][0]["exit_code"] == 0
    assert done.json["hosts"][0]["success"]


def test_every_rank_of_mpi_hears_the_stop(rehearse):
    """Those of the second host are children of sshd there; mpirun would kill all of them within a second."""
    slow = STOPPED.replace("def save(*_):", "def save(*_):\n    time.sleep(2)")
    # By then all are past MPI_Init, also on a busy machine: a rank that waits there for others hears nothing.
    done = rehearse(slow, *TWO_BY_TWO, "--distribution", "mpi", "--stop-after", "10")
    assert done.code == 0, done.err[-3000:]
    assert checks(done.json) == {"stop": "passed"}
    assert files_of(done.json) == {f"checkpoint-{rank}": "saved" for rank in range(4)}
    assert [row["exit_code"] for row in done.json["hosts"]] == [0, 0]


def test_a_script_without_a_handler_is_named(rehearse):
    done = rehearse("import time\ntime.sleep(200)\n", "--stop-after", "1")
    assert done.code == 9, done.err[-3000:]
    assert done.json["cause"] == "stop-no-handler"


def test_a_stop_that_comes_too_late_proves_nothing(rehearse):
    done = rehearse("print('done')", "--stop-after", "30")
    assert done.code == 9, done.err[-3000:]
    assert done.json["cause"] == "stop-not-sent"


WAIT = "import time\nprint('now it waits', flush=True)\ntime.sleep(1000)\n"


def start(environment, image: str, script: Path) -> subprocess.Popen[str]:
    """A rehearsal that goes on until it is ended; it runs its script when this returns."""
    argv = [str(Path(sys.executable).with_name("invoke")), "rehearse", "--image", image, "--entry-point", str(script)]
    running = subprocess.Popen(
        argv, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert running.stderr is not None
    for line in running.stderr:
        if "now it waits" in line:
            return running
    raise AssertionError("the rehearsal ended early")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_nothing(environment, cpu_image, tmp_path, number):
    (tmp_path / "train.py").write_text(WAIT)
    running = start(environment, cpu_image, tmp_path / "train.py")
    running.send_signal(number)
    running.communicate(timeout=60)
    assert running.returncode == 130
    # `nothing_is_left` looks at the engine and at the folder.


def test_an_interruption_at_any_moment_leaves_nothing(environment, cpu_image, docker, state, tmp_path):
    """While the image is looked at, the network made, the containers made and started: each at some of these times."""
    (tmp_path / "train.py").write_text(WAIT)
    argv = [str(Path(sys.executable).with_name("invoke")), "rehearse", "--image", cpu_image, "--hosts", "2"]
    for tenths in range(6, 42, 4):
        running = subprocess.Popen(
            [*argv, "--entry-point", str(tmp_path / "train.py")],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(tenths / 10)
        # As a terminal does it: the clients of the engine get it, too.
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(60) != 0
        assert not left(docker), f"after {tenths / 10} s"
        assert not list((state / "rehearsals").glob("*/work")), f"after {tenths / 10} s"


@pytest.mark.parametrize("mend", ["doctor", "rehearse"])
def test_what_a_kill_left_is_cleared(environment, program, rehearse, cpu_image, docker, state, tmp_path, mend):
    (tmp_path / "train.py").write_text(WAIT)
    running = start(environment, cpu_image, tmp_path / "train.py")
    running.kill()
    running.communicate()
    assert len(left(docker)) == 2, "a container and its network"
    assert list((state / "rehearsals").glob("*/work"))
    if mend == "doctor":
        found = {row["check"]: row for row in program("doctor", "--json").json["findings"]}
        assert found["leftovers"]["severity"] == "warning"
        found = {row["check"]: row for row in program("doctor", "--fix", "--json").json["findings"]}
        assert found["leftovers"] == {"check": "leftovers", "severity": "ok", "message": "none", "remedy": ""}
    else:
        assert rehearse("print('the next')").code == 0


def test_a_rehearsal_that_runs_is_no_leftover(environment, cpu_image, rehearse, tmp_path):
    (tmp_path / "train.py").write_text(WAIT)
    running = start(environment, cpu_image, tmp_path / "train.py")
    try:
        assert rehearse("print('beside it')").code == 0
        assert running.poll() is None
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)


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
