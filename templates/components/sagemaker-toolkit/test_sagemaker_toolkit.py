"""SageMaker's training toolkit: its entry module, the launchers it calls, its hostname shim."""

import pytest

# A job that saves what it has when it is stopped, while a process of its own goes on with its work.
STOPPED = """
import multiprocessing, os, signal, sys, time
worker = multiprocessing.Process(target=time.sleep, args=(300,), daemon=True)
worker.start()
def save(*_):
    with open("/opt/ml/model/saved", "w") as out:
        out.write("worker alive: %s" % worker.is_alive())
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
open("/opt/ml/model/running", "w").close()
time.sleep(300)
"""
# Run as the container's first process would be; smoke has an init of its own, of which this one is a child. A simple
# command alone: only that is sure to be the process that $! names, as older shells keep one of their own for a list.
STOP = """
export SAGEMAKER_PROGRAM=train.py TRAINING_JOB_NAME=smoke AWS_REGION=us-west-2
cd /
training-init train & job=$!
until test -e /opt/ml/model/running; do kill -0 $job || exit 99; sleep 0.1; done
kill -TERM $job && wait $job
"""


# The image leaves out the tests of these packages and the symbols of their libraries.
SCIPY = """
import gevent, numpy, scipy, scipy.linalg, scipy.optimize, scipy.sparse.linalg, scipy.stats
for name in scipy.__all__:
    getattr(scipy, name)
worker = gevent.spawn(scipy.linalg.solve, numpy.diag([2.0, 4.0]), numpy.array([2.0, 8.0]))
gevent.joinall([worker], timeout=60)
print(worker.value.tolist(), round(scipy.optimize.brentq(lambda x: x * x - 4, 0, 9), 6), scipy.stats.norm.cdf(0))
"""


@pytest.fixture
def own_entrypoint(plan):
    provider = next(c["provider"] for c in plan["components"] if c["name"] == "sagemaker-toolkit")
    if provider == "base":
        pytest.skip("the toolkit and the ENTRYPOINT are the base image's")


def test_what_the_toolkit_brings_works_without_its_tests(python):
    assert python(SCIPY) == "[1.0, 2.0] 2.0 0.5"


@pytest.mark.usefixtures("own_entrypoint")
def test_bytecode_is_in_the_image(uncompiled):
    script = "import importlib, os, sagemaker_training.cli.train\n"
    script += "importlib.import_module(os.environ['SAGEMAKER_TRAINING_MODULE'].split(':')[0])"
    assert uncompiled(script) == []


@pytest.mark.usefixtures("own_entrypoint")
def test_arguments_of_a_function_are_matched(python):
    # As AWS's own functional tests of the toolkit's framework modules do; inspect.ArgSpec is gone since Python 3.11.
    script = """
from sagemaker_training import functions
print(functions.matching_args(lambda model_dir, epochs=1: None, {"model_dir": "/opt/ml/model", "other": 2}))
print(functions.matching_args(lambda **all: None, {"other": 2}))
"""
    assert python(script).splitlines() == ["{'model_dir': '/opt/ml/model'}", "{'other': 2}"]


def test_the_folder_of_the_platform_is_there(host):
    assert host.file("/opt/ml").is_directory


@pytest.mark.outside("no image has a configuration before all of its steps are built")
@pytest.mark.usefixtures("own_entrypoint")
def test_a_stop_reaches_the_script(training_job, within, probe):
    assert probe["image"]["entrypoint"] == ["/usr/local/bin/training-init"]
    training_job.prepare({"train.py": STOPPED})
    done = within(60, STOP)
    said = (done.stdout + done.stderr)[-3000:]
    assert training_job.has("model/saved"), said
    assert training_job.read("model/saved") == "worker alive: True"
    assert done.rc == 0, said
    assert training_job.has("output/success"), said


@pytest.mark.usefixtures("own_entrypoint")
@pytest.mark.parametrize("code", [0, 1, 77])
def test_exit_code_of_train_is_the_container_s(within, code):
    script = f"mkdir -p /tmp/train.smoke && cd /tmp/train.smoke && printf '#!/bin/sh\\nexit {code}\\n' > train"
    run = "PATH=/tmp/train.smoke:$PATH training-init train; code=$?; rm -r /tmp/train.smoke; exit $code"
    assert within(30, f"{script} && chmod +x train && {run}").rc == code


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
