"""libfabric and the user-space side of EFA, as far as they show without the adapter."""

import pytest


@pytest.fixture
def by_installer(plan):
    if not any(c["name"] == "efa" and c["provider"] == "aws" for c in plan["components"]):
        pytest.skip("not by AWS's installer")


def test_efa_provider_is_built_in(host):
    # Debian 12's `fi_info -l` hides providers without a device, so it cannot be asked.
    linked = host.check_output("ldd $(ldconfig -p | sed -n 's/.*libfabric.so.1 .*=> //p' | head -n 1)")
    assert "libefa.so" in linked
    assert "not found" not in linked


def test_efa_is_among_the_providers(within, plan):
    (efa,) = [c for c in plan["components"] if c["name"] == "efa"]
    if efa["provider"] == "aws" or efa["version"].startswith("1."):
        pytest.skip("fi_info of Debian 12 hides providers without a device; AWS's was not tried without one")
    done = within(60, "fi_info -l")
    assert "\nefa:\n" in f"\n{done.stdout}", done.stdout + done.stderr


def test_verbs_know_efa(host):
    assert host.run("find / -xdev -name 'libefa-rdmav*.so'").stdout.strip(), "libibverbs finds no EFA driver"
    assert host.run("grep -rlx 'driver efa' /etc/libibverbs.d /usr/share/libibverbs.d 2>/dev/null").stdout.strip()


def test_tcp_provider_answers(within):
    done = within(60, "fi_info -p tcp")
    assert done.rc == 0, done.stderr
    assert "provider: tcp" in done.stdout


def test_gpu_memory_is_known(within, plan):
    # aws-ofi-nccl does not start on p4d, p5 and newer without GPUDirect (its src/platform-aws.cpp). Variables of CUDA's
    # memory exist only if libfabric is compiled for it (its src/hmem_cuda.c); Debian's package has none of them.
    if not any(c["name"] == "efa" and c["provider"] == "source" for c in plan["components"]):
        pytest.skip("not compiled for GPU memory here")
    assert "FI_HMEM_CUDA_USE_DMABUF" in within(60, "fi_info --env").stdout


@pytest.mark.usefixtures("by_installer")
def test_installer_s_libfabric_comes_first(host):
    first = host.check_output("ldconfig -p | sed -n 's/.*libfabric.so.1 .*=> //p' | head -n 1")
    assert first.startswith("/opt/amazon/efa/lib")
    assert host.check_output("command -v fi_info") == "/opt/amazon/efa/bin/fi_info"


@pytest.mark.usefixtures("by_installer")
@pytest.mark.parametrize(
    ("component", "folder"), [("openmpi", "openmpi"), ("aws-ofi-nccl", "ofi-nccl"), ("openmpi", "openmpi5")]
)
def test_installer_left_nothing_that_the_plan_does_not_name(host, plan, component, folder):
    named = any(c["name"] == component and c["provider"] in ("efa", "source") for c in plan["components"])
    assert host.file(f"/opt/amazon/{folder}").exists is (named and folder != "openmpi5")


@pytest.mark.usefixtures("by_installer")
def test_installer_itself_is_not_in_the_image(host):
    assert host.run("find / -xdev -name efa_installer.sh").stdout == ""


def test_fork_is_safe(host, plan):
    # Data loaders fork; without it memory that the adapter has registered may change under it.
    wanted = plan["environment"].get("RDMAV_FORK_SAFE")
    assert host.run("printenv RDMAV_FORK_SAFE").stdout.strip() == (wanted or "")
