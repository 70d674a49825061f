"""SageMaker's training toolkit: its entry module, the launchers it calls, its hostname shim."""

import pytest


def test_entry_module_is_importable(python):
    script = """
import importlib, os
module, _, function = os.environ["SAGEMAKER_TRAINING_MODULE"].partition(":")
print(callable(getattr(importlib.import_module(module), function or "main")))
"""
    assert python(script) == "True"


def test_hostname_shim_is_a_library(host, python):
    path = python("import gethostname; print(gethostname.__file__)")
    assert host.run("head -c 4 %s", path).stdout_bytes == b"\x7fELF"


@pytest.mark.parametrize("launcher", ["mpirun", "orted", "ssh"])
def test_launchers_are_on_path(host, launcher):
    assert host.run("command -v %s", launcher).rc == 0


def test_launcher_of_the_framework_is_on_path(host, torchrun):
    assert host.run("command -v %s", torchrun).rc == 0


def test_server_is_where_the_toolkit_calls_it(host):
    assert host.run("test -x /usr/sbin/sshd").rc == 0


def test_environment_file_can_be_written(host):
    # The toolkit writes the job's variables there for the ranks.
    assert host.run("touch -a /etc/environment && test -w /etc/environment").rc == 0


def test_files_of_a_job_can_be_watched(python):
    python("import inotify_simple; inotify_simple.INotify().close()")
