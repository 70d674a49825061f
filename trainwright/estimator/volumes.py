"""A job's channels, checkpoints and output as volumes of Kubernetes: AWS's CSI drivers, provisioned statically.

Sources, each the driver's own example of static provisioning: awslabs/mountpoint-s3-csi-driver 57c6bed,
kubernetes-sigs/aws-fsx-csi-driver 5b22712, kubernetes-sigs/aws-efs-csi-driver a4fc676 (whose older form of a volume's
handle every version reads).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.estimator.cluster_job import ClusterJob, Mount
from trainwright.sagemaker.job_parts import FileSystem

CAPACITY = "1200Gi"  # the drivers ignore it, and Kubernetes requires it
# Volumes that are not channels, here and in the pods.
OWN_VOLUMES = ("model", "output", "checkpoints", "code", "shm")


def claims(job: ClusterJob, region: str | None) -> list[dict[str, Any]]:
    """Return a volume and its claim for each mount of a job; volumes are the whole cluster's, so both have its name."""
    found: list[dict[str, Any]] = []
    for mount in job.mounts:
        name = claim_name(job, mount)
        modes = ["ReadWriteMany" if mount.writable else "ReadOnlyMany"]
        common = {"accessModes": modes, "storageClassName": ""}
        spec = {"capacity": {"storage": CAPACITY}, **common, "persistentVolumeReclaimPolicy": "Retain"}
        claim = {**common, "resources": {"requests": {"storage": CAPACITY}}, "volumeName": name}
        found += [
            _resource("PersistentVolume", name, spec | dict(_csi(mount, name, region))),
            _resource("PersistentVolumeClaim", name, claim),
        ]
    return found


def claim_name(job: ClusterJob, mount: Mount) -> str:
    """Return the name of a mount's volume and claim."""
    return f"{job.name}-{volume_name(mount.name)}"


def volume_name(name: str) -> str:
    """Return the name of a mount's volume in a pod: a channel's may have characters that Kubernetes refuses."""
    return name.lower().replace("_", "-").replace(".", "-")


def pod_volumes(job: ClusterJob) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the volumes of a pod, and where its container has them."""
    volumes = [
        {"name": volume_name(each.name), "persistentVolumeClaim": {"claimName": claim_name(job, each)}}
        for each in job.mounts
    ]
    places = [
        {"name": volume_name(each.name), "mountPath": each.path} | ({} if each.writable else {"readOnly": True})
        for each in job.mounts
    ]
    return volumes, places


def _csi(mount: Mount, name: str, region: str | None) -> Mapping[str, Any]:
    source = mount.source
    if isinstance(source, str):
        bucket, _, prefix = source.removeprefix("s3://").partition("/")
        # A Mountpoint shows what is below a prefix with a slash at its end.
        options = [f"prefix {prefix.rstrip('/')}/"] if prefix else []
        options += [f"region {region}"] if region else []
        options += ["allow-delete", "allow-overwrite"] if mount.writable else []
        return ({"mountOptions": options} if options else {}) | {"csi": _driver("s3", name, {"bucketName": bucket})}
    return {"csi": _file_system(source, name, region)}


def _file_system(source: FileSystem, name: str, region: str | None) -> dict[str, Any]:
    if source.file_system_type == "EFS":
        return _driver("efs", f"{source.file_system_id}:{source.directory_path}", {})
    # The path of a job begins with the file system's mount name, and the driver mounts dnsname@tcp:/mountname. It does
    # not read the handle, which must differ where one pod has two folders of one file system.
    address = f"{source.file_system_id}.fsx.{region}.amazonaws.com"
    return _driver("fsx", name, {"dnsname": address, "mountname": source.directory_path.strip("/")})


def _driver(kind: str, handle: str, attributes: dict[str, str]) -> dict[str, Any]:
    made: dict[str, Any] = {"driver": f"{kind}.csi.aws.com", "volumeHandle": handle}
    return made | ({"volumeAttributes": attributes} if attributes else {})


def _resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
