"""Who may log in to the host of a job: the job's other hosts, and nobody else, whatever key they have.

The hosts are containers on one network, so that only sshd stands between two jobs.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.conftest import SMALL_LINE
from tests.support import builds
from trainwright.build.options import BuildOptions
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.core.paths import images_dir, templates_dir
from trainwright.engine.engine import connect
from trainwright.plan.plan import PLAN_LABEL
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import load_site
from trainwright.sources.gather import gather

Docker = Callable[..., str]
KEY = "/root/.ssh/id_ed25519"
CONTAINER_IMAGE = "pytorch:2.13.0-cu133-amzn2023-sagemaker"
CONTAINER = f"public.ecr.aws/deep-learning-containers/{CONTAINER_IMAGE}"
TRY = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
# What an image of AWS has, as its Dockerfiles make it: one pair for every customer, which trusts itself.
LIKE_AWS = """\
FROM {image}
RUN rm -rf /root/.ssh && mkdir -p /root/.ssh && ssh-keygen -q -t rsa -N '' -f /root/.ssh/id_rsa \\
    && cp /root/.ssh/id_rsa.pub /root/.ssh/authorized_keys && rm /etc/ssh/sshd_config.d/sagemaker.conf
"""


@dataclass(frozen=True)
class Host:
    """A running host of a job."""

    docker: Docker
    container: str
    address: str

    def run(self, *words: str) -> str:
        return self.docker("exec", self.container, *words, check=False)

    def logs_in_to(self, other: Host, key: str = "") -> bool:
        identity = ["-i", key, "-o", "IdentitiesOnly=yes"] if key else []
        return self.run(*TRY.split(), *identity, f"root@{other.address}", "echo", "hello") == "hello"


Jobs = Callable[[str, int], list[Host]]


@pytest.fixture(scope="module")
def network(docker: Docker) -> Iterator[str]:
    name = f"trainwright-test-{uuid.uuid4().hex[:8]}"
    made = docker("network", "create", name, check=False)
    if not made:
        pytest.skip("the engine cannot create a bridge network")
    yield name
    docker("network", "rm", name)


@pytest.fixture
def start(network: str, docker: Docker, tmp_path: Path) -> Iterator[Jobs]:
    """Starts a job of so many hosts of an image, as the platform does, and waits for their servers."""
    started: list[str] = []

    def job(image: str, count: int) -> list[Host]:
        names = [f"algo-{number}" for number in range(1, count + 1)]
        hosts = []
        for name in names:
            folder = tmp_path / f"{len(started)}"
            (folder / "config").mkdir(parents=True)
            resources = {"current_host": name, "hosts": names, "network_interface_name": "eth0"}
            (folder / "config/resourceconfig.json").write_text(json.dumps(resources))
            words = ["--network", network, "-v", f"{folder}:/opt/ml/input:ro", "--entrypoint", "/usr/sbin/sshd"]
            started.append(docker("run", "-d", *words, image, "-D"))
            (found,) = json.loads(docker("inspect", started[-1]))
            address = found["NetworkSettings"]["Networks"][network]["IPAddress"]
            hosts.append(Host(docker, started[-1], address))
        # As the platform's resolver: in each job the same names mean that job's hosts.
        lines = "".join(f"{host.address} {name}\\n" for host, name in zip(hosts, names, strict=True))
        for host in hosts:
            host.run("sh", "-c", f"printf '{lines}' >> /etc/hosts")
            wait = "until test -s /run/sshd.pid; do n=$((n+1)); test $n -lt 300 || exit 1; sleep 0.1; done"
            docker("exec", host.container, "sh", "-c", wait)
        return hosts

    yield job
    if started:
        docker("rm", "-f", *started)


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, docker: Docker) -> Iterator[Callable[..., str]]:
    """Builds the small line of a catalog as a plan with this id, and lets `train` begin as in a whole image."""
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("TRAINWRIGHT_REVISION", "0" * 40)
    tags: list[str] = []

    def build(catalog: Catalog, digit: str) -> str:
        plan = resolve(make_request(framework="pytorch", cuda="cpu"), catalog)
        tags.append(f"trainwright-test/ssh:{os.getpid()}-{digit}")
        labels = {**plan.labels, PLAN_LABEL: digit * 64}
        plan = plan.replace(id=digit * 64, labels=labels, tags=(tags[-1],))
        site = load_site().replace(build_network="host")
        options = BuildOptions(progress="none")
        builds.build(gather(plan, catalog, site), connect(setup=False), options=options, say=lambda _: None)
        return tags[-1]

    yield build
    for tag in tags:
        docker("rmi", "-f", tag, check=False)


@pytest.fixture
def like_aws(image: Callable[..., str], small_catalog: Catalog, docker: Docker, tmp_path: Path) -> Iterator[str]:
    """An image under the name of a container of AWS, with a key pair as AWS's containers have it."""
    folder = tmp_path / "aws"
    folder.mkdir()
    (folder / "Dockerfile").write_text(LIKE_AWS.format(image=image(small_catalog, "4")))
    docker("build", "-q", "-t", CONTAINER, str(folder))
    yield CONTAINER
    docker("rmi", "-f", CONTAINER, check=False)


@pytest.fixture
def extending(tmp_path: Path) -> Catalog:
    """The small line with everything of the container's."""
    held = "{provider: base, version: "
    line = SMALL_LINE.replace("base: debian-12", f"base: {{kind: dlc, os: debian-12, image: {CONTAINER_IMAGE!r}}}")
    line = line.replace("{provider: debian, version: ", held)
    folder = tmp_path / "extending" / "images" / "pytorch" / "2.13.0-cpu"
    folder.mkdir(parents=True)
    (folder / "line.yaml").write_text(line)
    shutil.copy(images_dir() / "pytorch" / "cpu" / "lock.json", folder)
    return load_catalog(folder.parents[1], templates_dir())


def test_only_the_hosts_of_a_job_reach_each_other(image, small_catalog, start):
    one, another = image(small_catalog, "2"), image(small_catalog, "3")
    first, second = start(one, 2)
    assert first.logs_in_to(second)
    assert second.logs_in_to(first)
    assert first.logs_in_to(first)
    # Each key was made on its host; the other host of the job has never seen it.
    keys = {host.run("cat", f"{KEY}.pub").split()[1] for host in (first, second)}
    assert len(keys) == 2
    # Not even with the very key that a host of the job logs in by.
    stolen = first.run("cat", KEY)
    for stranger in (*start(one, 2), *start(another, 1)):
        stranger.run("sh", "-c", f"umask 077; echo '{stolen}' > /root/stolen")
        assert stranger.run("ssh-keygen", "-y", "-f", "/root/stolen").split()[1] in keys
        for host in (first, second):
            assert not stranger.logs_in_to(host)
            assert not stranger.logs_in_to(host, key="/root/stolen")
            assert not host.logs_in_to(stranger)
    assert first.logs_in_to(second)


def test_a_key_pair_of_ones_own_counts(image, small_catalog, start):
    own = image(small_catalog, "2")
    (host,), (other,) = start(own, 1), start(own, 1)
    assert not other.logs_in_to(host)
    host.run("sh", "-c", f"umask 077; echo '{other.run('cat', f'{KEY}.pub')}' > /root/.ssh/authorized_keys")
    assert other.logs_in_to(host)


def test_the_key_pair_of_a_container_of_aws_opens_nothing_any_more(image, like_aws, extending, start):
    (host,), (other,) = start(like_aws, 1), start(like_aws, 1)
    assert other.logs_in_to(host), "with such a pair every job of the image opens every other"
    extended = image(extending, "5")
    (first, second), (stranger,) = start(extended, 2), start(extended, 1)
    assert second.run("ls", "/root/.ssh").split()[:1] == ["id_rsa"]
    assert first.logs_in_to(second)
    assert second.logs_in_to(first)
    assert not stranger.logs_in_to(first)
    assert not other.logs_in_to(first)
