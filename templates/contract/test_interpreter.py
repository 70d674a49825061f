"""One interpreter for both contracts: the one that `train`, pip3 and SDK 3's drivers find."""

import json

import pytest

FRAMEWORK_MODULE = {"pytorch": "torch", "tensorflow": "tensorflow"}


@pytest.mark.parametrize("name", ["bash", "chmod", "python", "python3", "pip", "pip3", "sh", "cat", "mkdir", "base64"])
def test_on_path(host, name):
    # SDK 3 starts a job by `/bin/bash -c "chmod +x ... && .../sm_train.sh"`, which calls python3 and pip.
    assert host.run("command -v %s", name).rc == 0


def test_bash_is_where_sdk_3_calls_it(host):
    assert host.run("/bin/bash -c 'set -o pipefail; true'").rc == 0


@pytest.fixture
def own(plan):
    """A package of the image that no job may replace: the toolkit, or what the framework needs."""
    toolkit = any(c["name"] == "sagemaker-toolkit" for c in plan["components"])
    return "sagemaker_training" if toolkit else "numpy"


def test_python3_imports_the_framework(framework, python):
    assert python(f"import {FRAMEWORK_MODULE[framework['name']]}, sys; print(sys.executable)")


@pytest.mark.sagemaker
def test_python3_has_what_a_job_imports(framework, python):
    modules = [FRAMEWORK_MODULE[framework["name"]], "paramiko", "mpi4py", "sagemaker_training", "gethostname"]
    script = f"import importlib, json, sys; [importlib.import_module(m) for m in {modules!r}]; print(sys.executable)"
    assert python(script)


def test_pip3_installs_for_that_interpreter(host, probe):
    said = host.check_output("pip3 --version")
    assert probe["interpreter"]["prefix"] in said or probe["interpreter"]["site_packages"] in said


def test_python_and_python3_are_one(host):
    prefix = "%s -c 'import sys; print(sys.prefix, sys.version)'"
    assert host.check_output(prefix % "python") == host.check_output(prefix % "python3")


@pytest.mark.sagemaker
def test_train_uses_that_interpreter(host, probe):
    first = host.check_output("head -n 1 %s", host.check_output("command -v train")).removeprefix("#!").strip()
    prefix = host.check_output("%s -c 'import sys; print(sys.prefix)'", first.split()[0])
    assert prefix == probe["interpreter"]["prefix"]


def test_dependencies_fit_each_other(within):
    done = within(120, "python3 -m pip check --disable-pip-version-check")
    assert done.rc == 0, done.stdout


WHEEL = r"""
import zipfile
def make(name, version, more=""):
    about = name + "-" + version + ".dist-info/"
    with zipfile.ZipFile("/tmp/" + name + "-" + version + "-py3-none-any.whl", "w") as wheel:
        wheel.writestr(name + ".py", "value = 42")
        said = "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n" + more
        wheel.writestr(about + "METADATA", said)
        wheel.writestr(about + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(about + "RECORD", "".join(about + n + ",,\n" for n in ("METADATA", "WHEEL", "RECORD")))
make("twsmoke", "1")
"""


def test_a_package_can_be_installed_at_start(python, within):
    # A job's requirements.txt is installed into the image's environment when the job starts; here without a network.
    python(WHEEL)
    try:
        done = within(60, "pip3 install -q --no-index --no-deps /tmp/twsmoke-1-py3-none-any.whl")
        assert done.rc == 0, done.stderr
        assert python("import twsmoke; print(twsmoke.value)") == "42"
    finally:
        within(60, "pip3 uninstall -q -y twsmoke; rm -f /tmp/twsmoke-1-py3-none-any.whl")


def test_a_job_cannot_replace_the_image_s_packages(python, within, own):
    # One line of a requirements.txt could: torchvision brings a torch of its own, on every host, when the job starts.
    python(f'{WHEEL}make("{own}", "0.0.1")\nmake("twneeds", "1", "Requires-Dist: {own}==0.0.1\\n")')
    try:
        done = within(60, "pip3 install --no-index --find-links /tmp twneeds")
        assert done.rc != 0
        assert "constraint" in done.stdout + done.stderr
        inner = {"sagemaker_training": "sagemaker_training.environment", "numpy": "numpy.linalg"}[own]
        assert python(f"import {inner} as inner; print(inner.__name__)") == inner
    finally:
        within(60, f"pip3 uninstall -q -y twneeds; rm -f /tmp/tw*.whl /tmp/{own}-*.whl")


def test_environment_is_the_plan_s(host, plan):
    # What a process in a running container really sees, not what the image's configuration says.
    seen = json.loads(host.check_output("python3 -c 'import json, os; print(json.dumps(dict(os.environ)))'"))
    # In a container of AWS's the plan puts folders in front of a PATH that it does not know.
    wanted = dict(plan["environment"])
    for name, value in plan["environment"].items():
        if value.endswith("${PATH}") and seen.get(name, "").startswith(value[: -len("${PATH}")]):
            wanted[name] = seen[name]
    assert {name: seen.get(name) for name in wanted} == wanted
