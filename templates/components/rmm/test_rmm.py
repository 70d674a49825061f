"""RMM: it imports without a GPU and allocates with one; as a C++ library it is whole but for the driver."""

import pytest


@pytest.fixture
def wheel(plan):
    if next(c for c in plan["components"] if c["name"] == "rmm")["provider"] != "wheel":
        pytest.skip("the C++ library alone")


@pytest.fixture
def library(plan):
    if next(c for c in plan["components"] if c["name"] == "rmm")["provider"] != "source":
        pytest.skip("the wheels")
    return "/opt/rmm/lib/librmm.so"


@pytest.mark.usefixtures("wheel")
def test_imports(python):
    assert python("import rmm; print(rmm.__name__)") == "rmm"


@pytest.mark.usefixtures("wheel")
def test_headers_come_with_a_compiler(python, plan):
    script = (
        "import importlib.metadata as m; print(any(str(f).endswith('rmm/device_buffer.hpp') for d in m.distributions() "
    )
    script += "if (d.metadata['Name'] or '').lower().replace('_', '-').startswith('librmm') for f in d.files or []))"
    compiles = any(c["name"] in ("compiler", "cuda-compiler") for c in plan["components"])
    assert python(script) == str(compiles)


@pytest.mark.usefixtures("requires_gpu", "wheel")
def test_pool(python):
    script = """
import rmm
rmm.reinitialize(pool_allocator=True, initial_pool_size=2**20)
print(rmm.DeviceBuffer(size=1000).size)
"""
    assert python(script) == "1000"


def test_library_lacks_nothing_but_the_driver(host, library):
    missing = {line.split()[0] for line in host.check_output("ldd %s", library).splitlines() if "not found" in line}
    assert missing <= {"libcuda.so.1"}


def test_library_is_not_linked_with_a_stub(host, library):
    assert "stubs" not in host.check_output("ldd %s", library)


@pytest.mark.usefixtures("library")
def test_headers_of_the_library_are_there(host):
    assert host.check_output("find /opt/rmm/include/rmm -name '*.h' -o -name '*.hpp'") != ""
