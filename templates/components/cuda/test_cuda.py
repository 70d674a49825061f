"""The CUDA libraries: once in the image, and /usr/local/cuda leads to them."""

import json

import pytest


def test_runtime_loads_by_name(python, plan):
    # CUDA 11's library gives 0 where there is no driver; the probe then asks the wheel it belongs to.
    script = """
import ctypes
number = ctypes.c_int()
ctypes.CDLL("libcudart.so").cudaRuntimeGetVersion(ctypes.byref(number))
print(f"{number.value // 1000}.{number.value % 1000 // 10}")
"""
    assert python(script) in ({plan["cuda"], "0.0"} if plan["cuda"].startswith("11.") else {plan["cuda"]})


@pytest.mark.parametrize("library", ["libcublas.so", "libcublasLt.so", "libcudnn.so", "libnvrtc.so"])
def test_libraries_load_by_name(python, library):
    python(f"import ctypes; ctypes.CDLL({library!r})")


def test_home_holds_headers_and_no_dead_links(host):
    assert host.file("/usr/local/cuda/include/cuda_runtime.h").exists
    assert host.run("find -L /usr/local/cuda -type l").stdout.split() == []


def test_one_runtime_in_a_process(python):
    # Two copies of libcudart in one process have two states: errors of one are not seen by the other.
    script = r"""
import ctypes, json, os, re, torch
ctypes.CDLL("libcudart.so")
maps = open("/proc/self/maps").read()
files = sorted(set(os.path.realpath(p) for p in re.findall(r"/\S*libcudart[^/\s]*\.so[.\d]*", maps)))
print(json.dumps(files))
"""
    assert len(json.loads(python(script))) == 1


@pytest.mark.usefixtures("requires_gpu")
def test_devices(python):
    script = (
        "import ctypes; n = ctypes.c_int(); lib = ctypes.CDLL('libcudart.so'); "
        "print(lib.cudaGetDeviceCount(ctypes.byref(n)), n.value > 0)"
    )
    assert python(script) == "0 True"
