"""GDRCopy's library: it loads, and says that there is no driver instead of failing in another way."""


def test_it_loads_by_name(python):
    # Without the driver's device there is no handle; nothing crashes.
    script = """
import ctypes, os
library = ctypes.CDLL("libgdrapi.so")
library.gdr_open.restype = ctypes.c_void_p
print(bool(library.gdr_open()) == os.path.exists("/dev/gdrdrv"))
"""
    assert python(script).splitlines()[-1] == "True"


def test_header_lies_beside_it(host):
    assert host.file("/opt/gdrcopy/include/gdrapi.h").exists


def test_nothing_is_missing(host):
    assert "not found" not in host.check_output("ldd /opt/gdrcopy/lib/libgdrapi.so")


def test_driver_and_programs_are_not_in_the_image(host):
    assert host.run("find / -xdev \\( -name 'gdrdrv*' -o -name gdrcopy_sanity -o -name copybw \\) -type f").stdout == ""
