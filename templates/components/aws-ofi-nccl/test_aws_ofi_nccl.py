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


@pytest.fixture
def of_debian_s_libfabric(plan):
    if not any(c["name"] == "aws-ofi-nccl" and c["provider"] == "debian" for c in plan["components"]):
        pytest.skip("not compiled against Debian's libfabric")


def test_loader_finds_one(host, plugin):
    # Since 1.17 it has two names, each a file of its own: a link would not be in the loader's cache.
    listed = host.check_output("ldconfig -p | sed -n 's/.*[[:space:]]libnccl-net[^ ]* .*=> //p'").split()
    found = {host.check_output("readlink -f %s", path).rpartition("/")[0] for path in listed}
    assert found == {plugin.rpartition("/")[0]}


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


def test_nccl_asks_for_an_interface_that_it_has(host, plugin, probe):
    # NCCL asks for the newest that it knows, then for older ones; without any it goes on over TCP, in silence.
    libraries = [file["real"] for file in probe["libraries"].get("libnccl", [])]
    if not libraries:
        pytest.skip("NCCL is inside the framework")
    find = "grep -aoE 'ncclNetPlugin_v[0-9]+' %s | sort -u"
    offered = set(host.check_output(find, plugin).split())
    assert offered & set(host.check_output(find, libraries[0]).split()), offered


@pytest.mark.usefixtures("of_debian_s_libfabric")
def test_nccl_s_tuner_is_in_it(host, plugin):
    # Of AWS's part of the plugin; NCCL looks for it there, too.
    assert host.run("grep -aq 'ncclTunerPlugin_v[0-9]' %s", plugin).rc == 0


@pytest.mark.usefixtures("of_debian_s_libfabric")
def test_no_cuda_runtime_is_linked(host, plugin):
    # It is looked for when the plugin starts, so another copy than the framework's is never loaded.
    linked = host.check_output("ldd %s", plugin)
    assert "libcudart" not in linked
    assert "libfabric.so.1 => /opt/libfabric/lib/" in linked


def test_no_test_programs_are_left(host):
    assert not host.file("/opt/amazon/ofi-nccl/bin").exists


def test_runtime_has_the_name_that_it_asks_for(python):
    python("import ctypes; ctypes.CDLL('libcudart.so')")


def test_it_loads(host, python, plugin, request):
    if OF_THE_HOST in host.check_output("ldd %s", plugin):
        request.getfixturevalue("requires_gpu")
    python(f"import ctypes; ctypes.CDLL({plugin!r})")
