"""Manifests for Kubernetes: within the published schemas, and with what the job file says."""

from __future__ import annotations

import base64
import json
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cluster_jobs import EFS, FSX, IMAGE, cluster_subject, documents, expanded, pod_of, variables
from tests.support.estimator_jobs import ROOT, facts
from trainwright.estimator.manifest import as_yaml, literally, manifest

KINDS = ("pytorchjob", "hyperpod")
SCHEMAS = {kind: json.loads((ROOT / "tests/support/manifest_schemas" / f"{kind}.json").read_text()) for kind in KINDS}
CPU = {"instance_type": "ml.c5n.18xlarge"}
EVERYTHING = {
    "inputs": {"train": "s3://bucket/train", "fsx": FSX, "efs": EFS},
    "checkpoint": {"s3_uri": "s3://bucket/checkpoints"},
    "retries": 3,
    "hyperparameters": {"lr": 0.1},
}
ALONE: dict[str, Any] = {"distribution": {}, "instance_count": 1, "instance_type": "ml.g5.xlarge"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changes", [{}, EVERYTHING, CPU, ALONE])
def test_a_manifest_is_within_the_published_schema(tmp_path, kind, changes):
    # The extracts are closed: a name that the schema does not have is an error, though a cluster would only drop it.
    jsonschema.Draft7Validator(SCHEMAS[kind]).validate(documents(tmp_path, kind, **changes)[-1])


@pytest.mark.parametrize("kind", KINDS)
def test_the_extracts_find_a_wrong_name_and_a_wrong_type(tmp_path, kind):
    job = documents(tmp_path, kind)[-1]
    validator = jsonschema.Draft7Validator(SCHEMAS[kind])
    pod = pod_of([job])
    pod["hostIpc"] = True
    assert not validator.is_valid(job)
    del pod["hostIpc"]
    pod["containers"][0]["env"][1]["value"] = 8
    assert not validator.is_valid(job)


def test_a_pytorchjob_is_what_the_operator_and_its_webhook_want(tmp_path):
    job = documents(tmp_path, "pytorchjob", name="My_Job")[-1]
    assert (job["apiVersion"], job["kind"], job["metadata"]["name"]) == ("kubeflow.org/v1", "PyTorchJob", "my-job")
    # The webhook: elasticPolicy needs Worker, and a container named pytorch.
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert worker["replicas"] == 2
    assert pod_of([job])["containers"][0]["name"] == "pytorch"
    assert job["spec"]["nprocPerNode"] == "8"
    assert job["spec"]["elasticPolicy"] == {"rdzvBackend": "c10d", "minReplicas": 2, "maxReplicas": 2}
    assert pod_of([job])["containers"][0]["command"] == ["torchrun", "train.py"]
    assert pod_of([job])["containers"][0]["image"] == IMAGE
    assert worker["restartPolicy"] == "Never"
    assert "backoffLimit" not in job["spec"]["runPolicy"]


def test_attempts_and_the_longest_time_are_the_operators(tmp_path):
    spec = documents(tmp_path, "pytorchjob", retries=3, max_run=3600)[-1]["spec"]
    assert spec["runPolicy"] == {"cleanPodPolicy": "Running", "activeDeadlineSeconds": 3600, "backoffLimit": 3}
    assert spec["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] == "OnFailure"
    policy = documents(tmp_path, "hyperpod", retries=3, max_run=3600)[-1]["spec"]["runPolicy"]
    assert (policy["jobMaxRetryCount"], policy["activeDeadlineSeconds"]) == (3, 3600)


def test_hyperpods_operator_starts_hyperpodrun_on_healthy_nodes(tmp_path):
    job = documents(tmp_path, "hyperpod")[-1]
    assert (job["apiVersion"], job["kind"]) == ("sagemaker.amazonaws.com/v1", "HyperPodPyTorchJob")
    pod = pod_of([job])
    container = pod["containers"][0]
    assert container["command"] == ["hyperpodrun", "--nnodes=2", "--nproc_per_node=8", "train.py"]
    assert container["ports"] == [{"containerPort": 8080}]
    assert pod["nodeSelector"] == {"node.kubernetes.io/instance-type": "ml.p5.48xlarge"}
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert required[0]["matchExpressions"] == [
        {"key": "sagemaker.amazonaws.com/node-health-status", "operator": "In", "values": ["Schedulable"]}
    ]


# AWS's table of EFA instance types: interfaces per instance.
@pytest.mark.parametrize(
    ("kind", "gpus", "efa"),
    [
        ("ml.p4d.24xlarge", 8, 4),
        ("ml.p5.48xlarge", 8, 32),
        ("ml.p5en.48xlarge", 8, 16),
        ("ml.g5.48xlarge", 8, 1),
        ("ml.g6.12xlarge", 4, 1),
    ],
)
def test_devices_are_those_of_the_instance_type(tmp_path, kind, gpus, efa):
    pod = pod_of(documents(tmp_path, "pytorchjob", instance_type=kind))
    devices = {"nvidia.com/gpu": gpus, "vpc.amazonaws.com/efa": efa, "hugepages-2Mi": "5120Mi"}
    asked = pod["containers"][0]["resources"]
    # Kubernetes: devices and huge pages have equal limits and requests; huge pages need one for memory beside them.
    assert asked == {"limits": devices, "requests": {**devices, "memory": "32000Mi"}}
    assert pod["nodeSelector"] == {"node.kubernetes.io/instance-type": kind.removeprefix("ml.")}
    assert variables(pod)["FI_PROVIDER"] == "efa"
    assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in pod["volumes"]


@pytest.mark.parametrize("changes", [{"instance_count": 1}, {"instance_type": "ml.p3.16xlarge"}])
def test_without_efa_or_a_second_host_no_efa_is_asked_for(tmp_path, changes):
    pod = pod_of(documents(tmp_path, "pytorchjob", **changes))
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert "FI_PROVIDER" not in variables(pod)


def test_hosts_without_gpus_are_kept_apart(tmp_path):
    pod = pod_of(documents(tmp_path, "pytorchjob", **CPU))
    assert pod["topologySpreadConstraints"][0]["topologyKey"] == "kubernetes.io/hostname"
    assert "nvidia.com/gpu" not in pod["containers"][0]["resources"]["limits"]


def test_one_host_without_a_launcher_runs_the_script_alone(tmp_path):
    job = documents(tmp_path, "pytorchjob", **ALONE, hyperparameters={"lr": 0.1})[-1]
    assert list(job["spec"]["pytorchReplicaSpecs"]) == ["Master"]
    assert "elasticPolicy" not in job["spec"]
    assert pod_of([job])["containers"][0]["command"] == ["python", "train.py", "--lr", "0.1"]
    assert json.loads(variables(pod_of([job]))["SM_HOSTS"]) == ["training-master-0"]


def test_variables_and_arguments_are_those_of_the_toolkit(tmp_path):
    # sagemaker-training 5.1.4, mapping.py: arguments are sorted; mappings are a=1,b=2 there and JSON in variables.
    values = {"lr": 0.1, "flag": True, "many": [1, 2], "table": {"b": 2, "a": "x"}, "n": None, "learning-rate": 1}
    pod = pod_of(documents(tmp_path, "pytorchjob", hyperparameters=values, inputs={"train": "s3://b/k"}))
    arguments = [
        "--flag",
        "True",
        "--learning-rate",
        "1",
        "--lr",
        "0.1",
        "--many",
        "[1, 2]",
        "-n",
        "",
        "--table",
        "a=x,b=2",
    ]
    assert pod["containers"][0]["command"][2:] == arguments
    found = variables(pod)
    assert json.loads(found["SM_USER_ARGS"]) == arguments
    assert json.loads(found["SM_HPS"]) == values
    assert {name: found[name] for name in ("SM_HP_FLAG", "SM_HP_TABLE", "SM_HP_N")} == {
        "SM_HP_FLAG": "true",
        "SM_HP_TABLE": '{"a":"x","b":2}',
        "SM_HP_N": "",
    }
    assert found["SM_CHANNEL_TRAIN"] == "/opt/ml/input/data/train"
    assert json.loads(found["SM_HOSTS"]) == ["training-worker-0", "training-worker-1"]
    assert "SM_HP_LEARNING-RATE" not in found
    current = next(each for each in pod["containers"][0]["env"] if each["name"] == "SM_CURRENT_HOST")
    assert current["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}


def test_the_jobs_own_variables_win(tmp_path):
    given = {"NCCL_SOCKET_IFNAME": "eth1", "FI_PROVIDER": "tcp", "OWN": "1"}
    found = variables(pod_of(documents(tmp_path, "pytorchjob", environment=given)))
    assert {name: found[name] for name in given} == given


@given(text=st.text())
def test_kubernetes_expands_nothing_in_a_value(text):
    assert expanded(literally(text), dict.fromkeys(("HOME", "x", ""), "expanded")) == text


def test_a_value_that_looks_like_a_variable_arrives(tmp_path):
    pod = pod_of(documents(tmp_path, "pytorchjob", hyperparameters={"note": "$(HOME) $$"}))
    assert pod["containers"][0]["command"][-1] == "$$(HOME) $$$$"


# --- volumes --------------------------------------------------------------------------------------------------------


def test_channels_checkpoints_and_output_are_volumes(tmp_path):
    found = documents(tmp_path, "pytorchjob", **EVERYTHING)
    volumes = {each["metadata"]["name"]: each["spec"] for each in found if each["kind"] == "PersistentVolume"}
    claims = {each["metadata"]["name"]: each["spec"] for each in found if each["kind"] == "PersistentVolumeClaim"}
    assert (
        set(volumes)
        == set(claims)
        == {f"training-{n}" for n in ("train", "fsx", "efs", "checkpoints", "model", "output")}
    )
    for name, claim in claims.items():
        assert claim["volumeName"] == name
        assert claim["accessModes"] == volumes[name]["accessModes"]
        assert claim["storageClassName"] == ""
    train = volumes["training-train"]
    assert train["csi"]["driver"] == "s3.csi.aws.com"
    assert train["csi"]["volumeAttributes"] == {"bucketName": "bucket"}
    assert train["mountOptions"] == ["prefix train/", "region us-west-2"]
    assert train["accessModes"] == ["ReadOnlyMany"]
    assert volumes["training-fsx"]["csi"]["volumeAttributes"] == {
        "dnsname": "fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com",
        "mountname": "abcd1234/train",
    }
    assert volumes["training-efs"]["csi"]["volumeHandle"] == "fs-0123456789abcdef1:/train"
    model = volumes["training-model"]
    assert model["mountOptions"] == [
        "prefix out/training/model/",
        "region us-west-2",
        "allow-delete",
        "allow-overwrite",
    ]
    assert model["accessModes"] == ["ReadWriteMany"]
    places = {each["name"]: each for each in pod_of(found)["containers"][0]["volumeMounts"]}
    assert places["train"] == {"name": "train", "mountPath": "/opt/ml/input/data/train", "readOnly": True}
    assert places["checkpoints"] == {"name": "checkpoints", "mountPath": "/opt/ml/checkpoints"}


def test_a_whole_bucket_has_no_prefix(tmp_path):
    found = documents(tmp_path, "pytorchjob", inputs={"train": "s3://bucket"})
    assert found[0]["spec"]["mountOptions"] == ["region us-west-2"]


# --- code -----------------------------------------------------------------------------------------------------------


def code_of(found: list[dict[str, Any]]) -> dict[str, bytes]:
    """The files that a pod sees: path → content."""
    (made,) = (each for each in found if each["kind"] == "ConfigMap")
    (volume,) = (each["configMap"] for each in pod_of(found)["volumes"] if each["name"] == "code")
    assert volume["name"] == made["metadata"]["name"]
    content = {key: text.encode() for key, text in made.get("data", {}).items()}
    content |= {key: base64.b64decode(text) for key, text in made.get("binaryData", {}).items()}
    return {item["path"]: content[item["key"]] for item in volume["items"]}


def test_the_code_comes_along_with_its_folders(tmp_path):
    source = tmp_path / "src"
    (source / "lib").mkdir(parents=True)
    files = {
        "train.py": b"import lib\n",
        "lib/a b.py": "x = 'é'\r\n\tif".encode(),
        "lib/a-b.py": b"",
        "x.bin": b"\xff\x00",
    }
    for name, content in files.items():
        (source / name).write_bytes(content)
    (source / "__pycache__").mkdir()
    (source / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert code_of(documents(tmp_path, "pytorchjob")) == files


def test_without_a_source_dir_only_the_script_comes_along(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "other.py").touch()
    found = documents(tmp_path, "pytorchjob", source_dir=None, entry_point="src/train.py")
    assert set(code_of(found)) == {"train.py"}
    assert pod_of(found)["containers"][0]["command"] == ["torchrun", "train.py"]


def test_code_in_the_image_is_left_there(tmp_path):
    image = facts(entry_point="main.py")
    found = documents(tmp_path, "pytorchjob", known=image, source_dir=None, entry_point=None)
    assert {each["kind"] for each in found} == {"PersistentVolume", "PersistentVolumeClaim", "PyTorchJob"}
    assert pod_of(found)["containers"][0]["command"] == ["torchrun", "main.py"]
    assert pod_of(found)["containers"][0]["workingDir"] == "/opt/ml/code"


@given(text=st.text(st.characters(codec="utf-8")))
def test_any_text_survives_yaml(text):
    assert yaml.safe_load(as_yaml({"data": {"key": text}})) == {"data": {"key": text}}


def test_the_manifest_says_what_it_lacks(tmp_path):
    text = manifest(cluster_subject(tmp_path, "pytorchjob", spot=True, tags={"a": "b"}), "pytorchjob")
    comments = [line for line in text.splitlines() if line.startswith("# Not carried over: ")]
    assert [line.split(": ")[1] for line in comments] == ["spot", "tags"]
