"""SageMaker's data parallel library: made for this Python, its launcher on PATH, its libraries whole."""

import json

import pytest

# The driver's libraries come with the host; PyTorch's own are loaded by PyTorch, which is imported first.
OF_THE_HOST = {"libcuda.so.1", "libnvidia-ml.so.1"}


def test_wheel_is_made_for_this_python(python):
    script = """
import glob, json, sys, sysconfig
about = glob.glob(sysconfig.get_paths()["purelib"] + "/smdistributed_dataparallel-*.dist-info/WHEEL")
tags = [line.split()[1] for line in open(about[0]) if line.startswith("Tag:")]
print(json.dumps([tags, "cp%d%d" % sys.version_info[:2]]))
"""
    tags, wanted = json.loads(python(script))
    assert {tag.split("-")[0] for tag in tags} == {wanted}


def test_launcher_is_on_path(host):
    assert host.run("command -v smddprun").rc == 0


def test_imports(python):
    assert python("import smdistributed.dataparallel as s; print(s.__name__)") == "smdistributed.dataparallel"


def test_libraries_are_on_the_loader_path(host, python):
    folder = python("import smdistributed.dataparallel as s; print(list(s.__path__)[0])") + "/lib"
    if host.run("test -d %s", folder).rc != 0:
        pytest.skip("this version has no libraries of its own")
    assert host.check_output("cat /etc/ld.so.conf.d/smdistributed-dataparallel.conf") == folder


def test_libraries_lack_nothing_but_the_driver(host, python):
    folder = python("import smdistributed.dataparallel as s; print(list(s.__path__)[0])")
    torch = python("import os, torch; print(os.path.dirname(torch.__file__) + '/lib')")
    said = host.check_output("find %s -name '*.so*' -exec env LD_LIBRARY_PATH=%s ldd {} +", folder, torch)
    assert {line.split()[0] for line in said.splitlines() if "not found" in line} <= OF_THE_HOST
