"""`train`, run as the platform runs it: `/opt/ml` filled with the three JSON files, judged by what it leaves there.

The exit status alone says nothing: `train` can end with 0 after a total failure (sagemaker-training 5.1.4, where
/opt/ml/output is missing).
"""

import json

import pytest

REPORT = """
import argparse, json, os, socket, sys
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
args = parser.parse_args()
import {module}
print("hello from the script", flush=True)
names = ("SM_CURRENT_HOST", "SM_HOSTS", "SM_MODEL_DIR", "SM_CHANNEL_TRAINING", "SM_OUTPUT_DATA_DIR", "SM_NUM_GPUS",
         "SM_HP_EPOCHS", "RANK", "WORLD_SIZE", "LOCAL_RANK")
report = {{name: os.environ.get(name) for name in names}}
report.update(epochs=args.epochs, cwd=os.getcwd(), version={module}.__version__, python=sys.prefix)
with open(os.path.join(os.environ["SM_MODEL_DIR"], "report.json"), "w") as out:
    json.dump(report, out)
"""
pytestmark = pytest.mark.sagemaker
MODULES = {"pytorch": "torch", "tensorflow": "tensorflow"}
# Steps of one builder can have one network: two images that are proven side by side would meet there.
listens = pytest.mark.outside("it listens on a port of its own choice, and build steps may share their ports")


@pytest.fixture
def script(framework):
    return REPORT.format(module=MODULES[framework["name"]])


def test_train_is_on_path_and_executable(host):
    path = host.check_output("command -v train")
    assert host.run("test -f %s && test -x %s", path, path).rc == 0


def test_a_job_succeeds(training_job, script, plan, probe):
    training_job.prepare({"train.py": script}, {"epochs": 3})
    done = training_job.train()
    said = (done.stdout + done.stderr)[-3000:]
    assert not training_job.has("output/failure"), training_job.read("output/failure")
    assert training_job.has("output/success"), said
    assert done.rc == 0, said
    assert "hello from the script" in done.stdout + done.stderr
    report = json.loads(training_job.read("model/report.json"))
    assert report["SM_CURRENT_HOST"] == "algo-1"
    assert json.loads(report["SM_HOSTS"]) == ["algo-1"]
    assert report["SM_MODEL_DIR"] == "/opt/ml/model"
    assert report["SM_CHANNEL_TRAINING"] == "/opt/ml/input/data/training"
    assert report["SM_OUTPUT_DATA_DIR"] == "/opt/ml/output/data"
    assert (report["epochs"], report["SM_HP_EPOCHS"]) == (3, "3")
    assert report["cwd"] == "/opt/ml/code"
    assert report["version"].split("+")[0] == plan["version"].split("+")[0]
    assert report["python"] == probe["interpreter"]["prefix"]


def test_a_failing_job_says_so(training_job):
    training_job.prepare({"train.py": "import sys\nprint('about to fail', flush=True)\nsys.exit(3)\n"})
    done = training_job.train()
    assert done.rc != 0
    assert not training_job.has("output/success")
    # The platform shows the first 1024 characters of this file as the reason of the failure.
    reason = training_job.read("output/failure")
    assert "ExecuteUserScriptError" in reason
    assert "ExitCode 3" in reason


@listens
@pytest.mark.usefixtures("torchrun")
def test_torchrun_is_launched(training_job, script):
    wanted = {"epochs": 1, "sagemaker_torch_distributed_enabled": True, "sagemaker_instance_type": "ml.m5.xlarge"}
    training_job.prepare({"train.py": script}, wanted)
    done = training_job.train()
    assert training_job.has("output/success"), (done.stdout + done.stderr)[-3000:]
    report = json.loads(training_job.read("model/report.json"))
    # One process where there is no GPU, else one per GPU; a plain process would have no rank at all.
    assert report["LOCAL_RANK"] is not None
    assert report["WORLD_SIZE"] == str(max(1, int(report["SM_NUM_GPUS"])))


def test_code_is_baked_only_where_the_plan_says_so(host, plan):
    # A non-empty /opt/ml/code silently disables the estimator's source_dir; SAGEMAKER_PROGRAM beats its entry_point.
    entry_point = (plan.get("user") or {}).get("entry_point") or plan["environment"].get("SAGEMAKER_PROGRAM")
    code = host.run("ls -A /opt/ml/code 2>/dev/null").stdout.split()
    program = host.run("printenv SAGEMAKER_PROGRAM").stdout.strip()
    if entry_point:
        assert program == entry_point
        assert host.run("test -f %s", f"/opt/ml/code/{entry_point}").rc == 0
        # As AWS's guide to one's own containers has them.
        assert host.run("printenv SAGEMAKER_SUBMIT_DIRECTORY").stdout.strip() == "/opt/ml/code"
        assert host.run("printenv PATH").stdout.split(":")[0] == "/opt/ml/code"
    else:
        assert code == []
        assert program == ""
