"""What published packages say of SageMaker's instance types: each is read into claims."""

from __future__ import annotations

import ast
import gzip
import json
from collections.abc import Mapping
from typing import Any

from trainwright.core.errors import RequestError

Fact = int | float | str | bool
Facts = dict[str, Fact]
Claims = Mapping[str, Mapping[str, Facts]]  # source → instance type → facts


def valid_types(service_model: bytes) -> list[str]:
    """The training instance types that SageMaker's API accepts, from botocore's ``service-2.json.gz``."""
    names: list[str] = json.loads(gzip.decompress(service_model))["shapes"]["TrainingInstanceType"]["enum"]
    return names


def claims_of_core(table: bytes) -> dict[str, Facts]:
    """GPU count and memory from sagemaker-core's ``instance_gpu_info.json``.

    Raises:
        RequestError: two regions of the table differ about one type.
    """
    claims: dict[str, Facts] = {}
    for region, types in json.loads(table).items():
        for name, said in types.items():
            count = said["Count"]
            facts: Facts = {"gpus": count, "gpu_memory_gib": _gib(said["TotalGpuMemoryInMiB"] / count)}
            if claims.setdefault(name, facts) != facts:
                raise RequestError(f"sagemaker-core: {name} differs between regions: {facts} in {region}")
    return claims


def claims_of_hyperpod(module: bytes) -> dict[str, Facts]:
    """Counts, vCPUs and memory from the constant ``INSTANCE_RESOURCES`` of sagemaker-hyperpod."""
    return {
        name: {
            "gpus": said["gpu"],
            "neuron_devices": said["trainium"],
            "efa": said["efa"],
            "vcpus": said["cpu"],
            "memory_gib": said["memory"],
        }
        for name, said in constant(module, "INSTANCE_RESOURCES").items()
    }


def claims_of_moto(table: bytes) -> dict[str, Facts]:
    """Everything that EC2's DescribeInstanceTypes answered when moto took its ``instance_types.json.gz``."""
    return {f"ml.{name}": _from_ec2(said) for name, said in json.loads(gzip.decompress(table)).items()}


def claims_of_toolkit(module: bytes) -> dict[str, Facts]:
    """Which types get EFA variables from sagemaker-training by itself (the two lists in its ``__init__.py``)."""
    rdma = set(constant(module, "SM_EFA_RDMA_INSTANCES"))
    efa = set(constant(module, "SM_EFA_NCCL_INSTANCES"))
    return {name: {"toolkit_efa": name in efa, "toolkit_rdma": name in rdma} for name in sorted(efa | rdma)}


def constant(module: bytes, name: str) -> Any:
    """The literal that a Python module assigns to ``name``; the module is parsed, not run.

    Raises:
        RequestError: there is no such assignment, or not of a literal.
    """
    for statement in ast.parse(module).body:
        if isinstance(statement, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in statement.targets
        ):
            try:
                return ast.literal_eval(statement.value)
            except ValueError:
                raise RequestError(f"{name} is no literal any more") from None
    raise RequestError(f"there is no constant {name}")


def _from_ec2(said: Mapping[str, Any]) -> Facts:
    network = said["NetworkInfo"]
    facts: Facts = {
        "gpus": 0,
        "neuron_devices": 0,
        "neuron_cores": 0,
        "efa": network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        "vcpus": said["VCpuInfo"]["DefaultVCpus"],
        "memory_gib": _gib(said["MemoryInfo"]["SizeInMiB"]),
        "architecture": said["ProcessorInfo"]["SupportedArchitectures"][-1],  # i386 comes before x86_64
    }
    if "GpuInfo" in said:
        gpus = said["GpuInfo"]["Gpus"]
        facts["gpus"] = sum(each["Count"] for each in gpus)
        facts["gpu"] = gpus[0]["Name"]
        facts["gpu_memory_gib"] = _gib(gpus[0]["MemoryInfo"]["SizeInMiB"])
    if "NeuronInfo" in said:
        devices = said["NeuronInfo"]["NeuronDevices"]
        facts["neuron_devices"] = sum(each["Count"] for each in devices)
        facts["neuron_cores"] = sum(each["Count"] * each["CoreInfo"]["Count"] for each in devices)
    return facts


def _gib(mib: float) -> int | float:
    gib = round(mib / 1024, 2)
    return int(gib) if gib == int(gib) else gib
