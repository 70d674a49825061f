"""libfabric and the user-space side of EFA, as far as they show without the adapter."""


def test_efa_provider_is_built_in(host):
    # Debian 12's `fi_info -l` hides providers without a device, so it cannot be asked.
    linked = host.check_output("ldd $(ldconfig -p | sed -n 's/.*libfabric.so.1 .*=> //p' | head -n 1)")
    assert "libefa.so" in linked
    assert "not found" not in linked


def test_verbs_know_efa(host):
    assert host.run("find / -xdev -name 'libefa-rdmav*.so'").stdout.strip(), "libibverbs finds no EFA driver"
    assert host.run("grep -rlx 'driver efa' /etc/libibverbs.d /usr/share/libibverbs.d 2>/dev/null").stdout.strip()


def test_tcp_provider_answers(within):
    done = within(60, "fi_info -p tcp")
    assert done.rc == 0, done.stderr
    assert "provider: tcp" in done.stdout
