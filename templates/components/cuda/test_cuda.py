"""The CUDA libraries: once in the image, and /usr/local/cuda leads to them."""

import json

import pytest

OLD, NEW = "1.0", "99999.0"
CONF = "/etc/ld.so.conf.d/00-cuda-compat.conf"


@pytest.fixture
def provider(plan):
    return next(c["provider"] for c in plan["components"] if c["name"] == "cuda")


@pytest.fixture
def from_wheels(provider):
    if provider == "framework":
        pytest.skip("CUDA is inside the framework's wheel")
    if provider != "wheel":
        pytest.skip("CUDA is the base image's")


@pytest.fixture
def inside(provider):
    if provider != "framework":
        pytest.skip("CUDA is not inside the framework's wheel")


@pytest.fixture
def driver(host, provider):
    """``driver(version)``: the start-up program with such a driver on the host."""
    if provider != "nvidia":
        pytest.skip("the base image is not NVIDIA's")

    def run(version, command="--decide"):
        line = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Tue Jul 13 16:14:05 UTC 2021"
        host.check_output("echo %s > /tmp/driver.smoke", line)
        return host.run(f"CUDA_COMPAT_DRIVER=/tmp/driver.smoke {command}")

    yield run
    host.run(f"rm -f /tmp/driver.smoke {CONF}; ldconfig")


def test_runtime_loads_by_name(python, plan):
    # CUDA 11's library gives 0 where there is no driver; the probe then asks what it belongs to.
    script = """
import ctypes
number = ctypes.c_int()
ctypes.CDLL("libcudart.so").cudaRuntimeGetVersion(ctypes.byref(number))
print(f"{number.value // 1000}.{number.value % 1000 // 10}")
"""
    assert python(script) in ({plan["cuda"], "0.0"} if plan["cuda"].startswith("11.") else {plan["cuda"]})


@pytest.mark.usefixtures("from_wheels")
@pytest.mark.parametrize("library", ["libcublas.so", "libcublasLt.so", "libcudnn.so", "libnvrtc.so"])
def test_libraries_load_by_name(python, library):
    python(f"import ctypes; ctypes.CDLL({library!r})")


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize("library", ["libcudart.so", "libcublas.so", "libcublasLt.so", "libnvrtc.so"])
def test_libraries_of_the_framework_load_by_name(python, library):
    # Of the files themselves: a second copy would have a state of its own.
    script = f"""
import ctypes, os, re
ctypes.CDLL({library!r})
name = {library!r}.split(".")[0]
maps = open("/proc/self/maps").read()
found = {{os.path.realpath(p) for p in re.findall(r"/\\S*/" + name + r"[-.]\\S*", maps)}}
print(sorted(os.path.basename(os.path.dirname(os.path.dirname(p))) for p in found))
"""
    assert python(script) == "['torch']"


@pytest.mark.usefixtures("from_wheels")
def test_home_holds_headers(host):
    assert host.file("/usr/local/cuda/include/cuda_runtime.h").exists


def test_home_has_no_dead_links(host):
    assert host.run("find -L /usr/local/cuda -type l").stdout.split() == []


@pytest.mark.usefixtures("from_wheels")
def test_one_runtime_in_a_process(python, framework):
    # Two copies of libcudart in one process have two states: errors of one are not seen by the other. (Wheels for older
    # CUDA carry a libcudart of their own inside.)
    module = "torch" if framework["name"] == "pytorch" else framework["name"]
    script = rf"""
import ctypes, json, os, re, {module}
ctypes.CDLL("libcudart.so")
maps = open("/proc/self/maps").read()
files = sorted(set(os.path.realpath(p) for p in re.findall(r"/\S*libcudart[^/\s]*\.so[.\d]*", maps)))
print(json.dumps(files))
"""
    assert len(json.loads(python(script))) == 1


class TestLibrariesForOlderDrivers:
    """NVIDIA's base brings a driver, for hosts whose own is older."""

    @pytest.fixture
    def library(self, host, provider):
        found = host.run("ls /opt/cuda-compat/libcuda.so.*.*").stdout.split()
        if provider != "nvidia" or not found:
            pytest.skip("the base image has none")
        return found[0]

    def test_no_loader_looks_there(self, host, provider):
        if provider != "nvidia":
            pytest.skip("the base image is not NVIDIA's")
        assert host.run("ls -d /usr/local/cuda*/compat").stdout.split() == []
        assert "/compat/" not in host.check_output("ldconfig -p")
        assert "cuda-compat" not in host.check_output("ldconfig -p")

    def test_an_older_driver_is_helped(self, host, driver, library):
        assert driver(OLD, "/usr/local/bin/cuda-compat true").rc == 0
        first = host.check_output("ldconfig -p | sed -n 's/.*libcuda\\.so\\.1 .*=> //p' | head -n 1")
        assert host.check_output("readlink -f %s", first) == library

    @pytest.mark.usefixtures("library")
    def test_a_newer_driver_is_not_shadowed(self, host, driver):
        driver(OLD, "/usr/local/bin/cuda-compat true")
        assert driver(NEW, "/usr/local/bin/cuda-compat true").rc == 0
        assert "cuda-compat" not in host.check_output("ldconfig -p")

    @pytest.mark.usefixtures("library")
    def test_bash_decides_where_the_entrypoint_is_another(self, driver):
        # SageMaker's Python SDK 3 starts jobs by /bin/bash -c.
        done = driver(OLD, "/bin/bash -c 'ldconfig -p'")
        assert "/opt/cuda-compat/libcuda.so.1" in done.stdout, done.stderr
        assert done.stderr == ""

    @pytest.mark.usefixtures("driver")
    def test_nothing_happens_without_a_driver(self, host):
        done = host.run("CUDA_COMPAT_DRIVER=/nonexistent /usr/local/bin/cuda-compat echo started")
        assert (done.rc, done.stdout, done.stderr) == (0, "started\n", "")
        assert not host.file(CONF).exists


@pytest.mark.usefixtures("requires_gpu")
def test_devices(python):
    script = (
        "import ctypes; n = ctypes.c_int(); lib = ctypes.CDLL('libcudart.so'); "
        "print(lib.cudaGetDeviceCount(ctypes.byref(n)), n.value > 0)"
    )
    assert python(script) == "0 True"
