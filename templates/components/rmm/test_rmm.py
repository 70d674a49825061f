"""RMM: it imports without a GPU and allocates with one."""

import pytest


def test_imports(python):
    assert python("import rmm; print(rmm.__name__)") == "rmm"


def test_headers_are_there(python):
    script = (
        "import importlib.metadata as m; print(any(str(f).endswith('rmm/device_buffer.hpp') for d in m.distributions() "
    )
    script += "if (d.metadata['Name'] or '').lower().replace('_', '-').startswith('librmm') for f in d.files or []))"
    assert python(script) == "True"


@pytest.mark.usefixtures("requires_gpu")
def test_pool(python):
    script = """
import rmm
rmm.reinitialize(pool_allocator=True, initial_pool_size=2**20)
print(rmm.DeviceBuffer(size=1000).size)
"""
    assert python(script) == "1000"
