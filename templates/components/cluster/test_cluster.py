"""An image for a cluster of one's own: nothing stands between a job and its command, and hosts reach each other."""

import pytest

PORT = 2298
# Steps of one builder can have one network: two images that are proven side by side would meet there.
listens = pytest.mark.outside("it listens on a port of its own choice, and build steps may share their ports")
# Where hosts of a job are: EC2's and ParallelCluster's names, those of Kubeflow's MPI operator, pods' addresses.
HOSTS = [
    "queue1-st-p5-1",
    "ip-10-1-2-3",
    "ip-10-1-2-3.us-west-2.compute.internal",
    "ip-10-1-2-3.ec2.internal",
    "queue1-st-p5-1.mine.pcluster",
    "job-worker-0.job.team.svc",
    "job-worker-11.job-worker",
    "10.1.2.3",
    "172.31.9.9",
    "192.168.4.4",
]
OTHERS = ["github.com", "example.com", "8.8.8.8", "172.32.0.1"]
RANKS = """
import os
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
os.write(1, f"rank {dist.get_rank()} of {dist.get_world_size()} total {total.item():g}\\n".encode())
dist.destroy_process_group()
"""


@pytest.fixture
def ssh(plan):
    """Skips what needs SSH."""
    if not any(c["name"] == "ssh" for c in plan["components"]):
        pytest.skip("no SSH in this image")


def test_no_toolkit_of_sagemaker(host, python):
    assert host.run("command -v train").rc != 0
    assert python("import importlib.util as i; print(i.find_spec('sagemaker_training'))") == "None"
    assert [line for line in host.check_output("env").splitlines() if line.startswith("SAGEMAKER_")] == []


def test_nccl_reads_its_settings_and_a_job_can_change_them(host):
    # A variable of the job wins, so none may be set in the image.
    lines = host.file("/etc/nccl.conf").content_string.splitlines()
    settings = dict(line.split("=", 1) for line in lines)
    assert settings["NCCL_SOCKET_IFNAME"].startswith("^")
    assert {"lo", "docker"} <= set(settings["NCCL_SOCKET_IFNAME"][1:].split(","))
    assert host.run("env | grep ^NCCL_").stdout == ""


def test_volumes_of_jobs_have_their_folder(host):
    assert host.file("/opt/ml").is_directory


@pytest.mark.usefixtures("ssh")
@pytest.mark.parametrize("name", HOSTS)
def test_hosts_of_a_job_are_not_asked_about(host, name):
    settings = host.check_output("ssh -G %s", name).splitlines()
    assert "stricthostkeychecking false" in settings or "stricthostkeychecking no" in settings


@pytest.mark.usefixtures("ssh")
@pytest.mark.parametrize("name", OTHERS)
def test_other_hosts_are(host, name):
    settings = host.check_output("ssh -G %s", name).splitlines()
    assert "stricthostkeychecking ask" in settings


@listens
@pytest.mark.usefixtures("ssh")
def test_keys_of_the_cluster_let_its_hosts_in(host, within):
    # As Kubeflow's MPI operator does: a pair of keys is mounted at /root/.ssh, and sshd is the pod's command.
    host.check_output("mkdir -p /tmp/before.smoke && cp -a /root/.ssh /etc/ssh /tmp/before.smoke/ 2>/dev/null || true")
    try:
        host.check_output(
            "rm -rf /root/.ssh && mkdir -m 700 /root/.ssh && cd /root/.ssh && ssh-keygen -q -t rsa -N '' -f id_rsa "
            "&& cp id_rsa.pub authorized_keys"
        )
        host.check_output(
            f"(/usr/sbin/sshd -De -p {PORT} -o PidFile=/run/sshd.smoke.pid &) >/dev/null 2>&1; "
            "for i in 1 2 3 4 5 6 7 8 9 10; do test -s /run/sshd.smoke.pid && exit 0; sleep 0.2; done; exit 1"
        )
        # From an address that is neither this host's own nor in a file of SageMaker's.
        client = f"ssh -o BatchMode=yes -o ConnectTimeout=10 -p {PORT} -b 127.0.0.7"
        done = within(30, f"{client} -o StrictHostKeyChecking=no root@127.0.0.7 echo hello")
        assert done.stdout.strip() == "hello", done.stderr
        assert "made when the container started" not in host.check_output("cat /root/.ssh/*.pub")
    finally:
        host.run("kill $(cat /run/sshd.smoke.pid); rm -rf /root/.ssh /etc/ssh")
        host.run("cp -a /tmp/before.smoke/ssh /etc/; cp -a /tmp/before.smoke/.ssh /root/; rm -rf /tmp/before.smoke")


@listens
def test_torchrun_starts_processes_that_find_each_other(host, torchrun, within):
    host.check_output("printf %%s %s > /tmp/smoke_ranks.py", RANKS)
    command = f"{torchrun} --nnodes=1 --nproc_per_node=2 --master_addr=127.0.0.1 --master_port=29571"
    done = within(120, f"GLOO_SOCKET_IFNAME=lo {command} /tmp/smoke_ranks.py; c=$?; rm -f /tmp/smoke_ranks.py; exit $c")
    assert done.rc == 0, (done.stdout + done.stderr)[-3000:]
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("rank")) == [
        "rank 0 of 2 total 3",
        "rank 1 of 2 total 3",
    ]
