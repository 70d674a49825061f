"""SSH between the hosts of an MPI job: server, client, no key in the image, and whom a host lets in."""

import json

import pytest

PORT = 2299
CLIENT = f"ssh -o BatchMode=yes -o ConnectTimeout=10 -o StrictHostKeyChecking=no -p {PORT}"
STRANGER = "127.0.0.5"
RESOURCES = "/opt/ml/input/config/resourceconfig.json"
# Steps of one builder can have one network: two images that are proven side by side would meet there.
listens = pytest.mark.outside("it listens on a port of its own choice, and build steps may share their ports")


@pytest.fixture
def server(host):
    """A running sshd, as the toolkit starts it, on a port of its own; the keys that it makes go again."""
    host.check_output("mkdir -p /tmp/before.smoke && cp -a /root/.ssh /etc/ssh /tmp/before.smoke/ 2>/dev/null || true")
    started = host.run(
        f"/usr/sbin/sshd -p {PORT} -o PidFile=/run/sshd.smoke.pid; "
        "for i in 1 2 3 4 5 6 7 8 9 10; do test -s /run/sshd.smoke.pid && exit 0; sleep 0.2; done; exit 1"
    )
    yield started
    host.run("kill $(cat /run/sshd.smoke.pid); rm -f /run/sshd.smoke.pid")
    host.run("rm -rf /root/.ssh /etc/ssh; cp -a /tmp/before.smoke/ssh /etc/; cp -a /tmp/before.smoke/.ssh /root/")
    host.run("rm -rf /tmp/before.smoke")


@pytest.fixture
def own(plan):
    """Skips what only the component of ours has."""
    if next(c["provider"] for c in plan["components"] if c["name"] == "ssh") == "base":
        pytest.skip("sshd and its keys are the base image's")


def test_no_host_keys_in_the_image(probe):
    assert "ssh host keys" not in probe["left_overs"]


@pytest.mark.usefixtures("own")
def test_no_key_of_root_in_the_image(probe):
    # It would be the key of everybody who can pull the image, or share the cache that it was built with.
    assert "ssh keys of root" not in probe["left_overs"]


@pytest.mark.ours
def test_nobody_is_trusted_by_his_key_alone(host):
    keys = host.run("cat /root/.ssh/authorized_keys /root/.ssh/authorized_keys2 2>/dev/null").stdout
    assert [line for line in keys.splitlines() if line.strip() and "from=" not in line] == []


@pytest.mark.usefixtures("own")
def test_each_start_makes_a_key_of_its_own(host):
    made = set()
    for _ in range(2):
        host.check_output("mv /root/.ssh /root/.ssh.smoke 2>/dev/null || true; /usr/lib/openssh/root-key")
        made.add(host.check_output("ssh-keygen -y -P '' -f /root/.ssh/id_ed25519").split()[1])
        assert host.file("/root/.ssh").mode == 0o700
        assert host.file("/root/.ssh/id_ed25519").mode == 0o600
        before = host.file("/root/.ssh/id_ed25519").content_string
        host.check_output("/usr/lib/openssh/root-key")
        assert host.file("/root/.ssh/id_ed25519").content_string == before
        assert sorted(host.check_output("ls -A /root/.ssh").split()) == ["id_ed25519", "id_ed25519.pub"]
        host.check_output("rm -r /root/.ssh; ! test -e /root/.ssh.smoke || mv /root/.ssh.smoke /root/.ssh")
    assert len(made) == 2


@listens
@pytest.mark.usefixtures("server")
def test_configuration_is_valid(host):
    assert host.run("/usr/sbin/sshd -t").rc == 0
    settings = host.check_output("/usr/sbin/sshd -T").splitlines()
    # SDK 3's drivers hand the environment to the ranks through /etc/environment and PAM.
    assert "usepam yes" in settings


@listens
@pytest.mark.ours
def test_server_starts_without_host_keys_and_lets_root_in(server, within):
    assert server.rc == 0, server.stderr
    done = within(30, f"{CLIENT} root@127.0.0.1 echo hello")
    assert done.rc == 0, done.stderr
    assert done.stdout.strip() == "hello"


@listens
@pytest.mark.ours
@pytest.mark.usefixtures("server")
def test_only_the_hosts_of_the_job_are_let_in(host, within, training_job):
    # All of 127/8 is this container's, but only 127.0.0.1 is "this host". The client's key is the same in both tries.
    ask = f"{CLIENT} -b {STRANGER} root@{STRANGER} echo hello"
    training_job.prepare({})
    assert "Permission denied" in within(30, ask).stderr
    resources = json.loads(host.file(RESOURCES).content_string)
    resources["instance_groups"].append({"instance_group_name": "more", "hosts": ["nowhere.invalid", STRANGER]})
    training_job.write(RESOURCES.partition("/opt/ml/")[2], json.dumps(resources, indent=1))
    done = within(30, ask)
    assert done.stdout.strip() == "hello", done.stderr


@listens
@pytest.mark.usefixtures("server")
def test_environment_reaches_the_ranks(host, within):
    # PAM's service is named after the program's file: an sshd under another name reads another file of /etc/pam.d.
    host.check_output("cp -a /etc/environment /tmp/environment.smoke && echo SMOKE_RANK=7 >> /etc/environment")
    try:
        assert within(30, f"{CLIENT} root@127.0.0.1 printenv SMOKE_RANK").stdout.strip() == "7"
    finally:
        host.check_output("cat /tmp/environment.smoke > /etc/environment && rm /tmp/environment.smoke")


def test_hosts_of_a_job_are_not_asked_about(host):
    settings = host.check_output("ssh -G algo-2").splitlines()
    assert "stricthostkeychecking false" in settings or "stricthostkeychecking no" in settings


@listens
@pytest.mark.usefixtures("server")
def test_every_job_gets_host_keys_of_its_own(host):
    assert host.run("ls /etc/ssh/ssh_host_ed25519_key").rc == 0
