"""Boost's shared libraries: all there, of one version, and the loader resolves them."""


def chosen(plan):
    return next(c for c in plan["components"] if c["name"] == "boost")


def test_every_library_is_there_in_that_version(host, plan):
    boost = chosen(plan)
    names = host.check_output("ls /opt/boost/lib").split()
    for library in boost["values"]["libraries"].split(","):
        assert f"libboost_{library}.so.{boost['version']}" in names, library


def test_loader_resolves_them(host):
    said = host.check_output("for f in /opt/boost/lib/*.so.*; do ldd $f || echo not found in $f; done")
    assert "not found" not in said


def test_a_library_loads_by_name(python, plan):
    name = f"libboost_thread.so.{chosen(plan)['version']}"
    assert python(f"import ctypes; ctypes.CDLL({name!r}); print('loaded')") == "loaded"


def test_nothing_is_for_a_compiler(host):
    # CMake would find a Boost here whose headers are not in the image.
    assert host.run("find /opt/boost/ -type f -not -name '*.so*'").stdout == ""
