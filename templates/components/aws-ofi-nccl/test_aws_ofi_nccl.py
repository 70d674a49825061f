"""NCCL's plugin for EFA: the loader finds it, and it finds everything that it needs."""

import pytest

# The driver is the host's; it is there when a job runs on a GPU.
OF_THE_HOST = "libcuda.so.1"


@pytest.fixture
def plugin(host):
    """The file that NCCL loads, which it asks for by this name."""
    listed = host.check_output("ldconfig -p | sed -n 's/.*[[:space:]]libnccl-net\\.so .*=> //p'").split()
    assert listed, "the loader knows no libnccl-net.so"
    return host.check_output("readlink -f %s", listed[0])


def test_loader_finds_one(host, plugin):
    listed = host.check_output("ldconfig -p | sed -n 's/.*[[:space:]]libnccl-net[^ ]* .*=> //p'").split()
    assert {host.check_output("readlink -f %s", path) for path in listed} == {plugin}


def test_nothing_is_missing(host, plugin):
    lines = host.check_output("ldd %s", plugin).splitlines()
    assert [line.strip() for line in lines if "not found" in line and OF_THE_HOST not in line] == []


def test_libfabric_is_the_one_with_efa(host, plugin):
    linked = [
        line.split("=>")[1].split()[0]
        for line in host.check_output("ldd %s", plugin).splitlines()
        if "libfabric" in line
    ]
    assert linked
    assert "libefa" in host.check_output("ldd %s", linked[0])


def test_nccl_s_interface_is_in_it(host, plugin):
    assert host.run("grep -aq 'ncclNetPlugin_v[0-9]' %s", plugin).rc == 0


def test_no_test_programs_are_left(host):
    assert not host.file("/opt/amazon/ofi-nccl/bin").exists


def test_runtime_has_the_name_that_it_asks_for(python):
    python("import ctypes; ctypes.CDLL('libcudart.so')")


@pytest.mark.usefixtures("requires_gpu")
def test_it_loads(python, plugin):
    python(f"import ctypes; ctypes.CDLL({plugin!r})")
