"""SSH between the hosts of an MPI job: server, client, a key pair, no host keys in the image."""

import pytest

PORT = 2299
CLIENT = f"ssh -o BatchMode=yes -o ConnectTimeout=10 -p {PORT} root@127.0.0.1"


@pytest.fixture
def server(host):
    """A running sshd, as the toolkit starts it, on a port of its own."""
    kept = host.run("ls /etc/ssh/ssh_host_* 2>/dev/null").stdout.split()
    started = host.run(
        f"/usr/sbin/sshd -p {PORT} -o ListenAddress=127.0.0.1 -o PidFile=/run/sshd.smoke.pid; "
        "for i in 1 2 3 4 5 6 7 8 9 10; do test -s /run/sshd.smoke.pid && exit 0; sleep 0.2; done; exit 1"
    )
    yield started
    host.run("kill $(cat /run/sshd.smoke.pid); rm -f /run/sshd.smoke.pid")
    if not kept:
        host.run("rm -f /etc/ssh/ssh_host_*")


def test_no_host_keys_in_the_image(probe):
    assert "ssh host keys" not in probe["left_overs"]


def test_key_pair_of_root(host):
    assert host.file("/root/.ssh").mode == 0o700
    private = host.check_output("ls /root/.ssh/id_*").split()
    assert [path for path in private if not path.endswith(".pub") and host.file(path).mode != 0o600] == []
    # A passphrase would make every rank wait for a terminal.
    secret = next(path for path in private if not path.endswith(".pub"))
    public = host.check_output("ssh-keygen -y -P '' -f %s", secret).split()[:2]
    assert any(
        line.split()[:2] == public for line in host.file("/root/.ssh/authorized_keys").content_string.splitlines()
    )


@pytest.mark.usefixtures("server")
def test_configuration_is_valid(host):
    assert host.run("/usr/sbin/sshd -t").rc == 0
    settings = host.check_output("/usr/sbin/sshd -T").splitlines()
    # SDK 3's drivers hand the environment to the ranks through /etc/environment and PAM.
    assert "usepam yes" in settings


def test_server_starts_without_host_keys_and_lets_root_in(server, within):
    assert server.rc == 0, server.stderr
    done = within(30, f"{CLIENT} echo hello")
    assert done.rc == 0, done.stderr
    assert done.stdout.strip() == "hello"


@pytest.mark.usefixtures("server")
def test_environment_reaches_the_ranks(host, within):
    # PAM's service is named after the program's file: an sshd under another name reads another file of /etc/pam.d.
    host.check_output("cp -a /etc/environment /tmp/environment.smoke && echo SMOKE_RANK=7 >> /etc/environment")
    try:
        assert within(30, f"{CLIENT} printenv SMOKE_RANK").stdout.strip() == "7"
    finally:
        host.check_output("cat /tmp/environment.smoke > /etc/environment && rm /tmp/environment.smoke")


def test_hosts_of_a_job_are_not_asked_about(host):
    settings = host.check_output("ssh -G algo-2").splitlines()
    assert "stricthostkeychecking false" in settings or "stricthostkeychecking no" in settings


@pytest.mark.usefixtures("server")
def test_every_job_gets_host_keys_of_its_own(host):
    assert host.run("ls /etc/ssh/ssh_host_ed25519_key").rc == 0
