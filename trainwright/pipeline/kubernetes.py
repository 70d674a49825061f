"""Jobs of Kubernetes: rootless BuildKit builds each image, and its smoke test runs by the digest that was pushed.

No container engine is needed, neither in the cluster nor where the script is run. How a Job runs rootless BuildKit is
what moby/buildkit's ``examples/kubernetes/job.rootless.yaml`` and ``docs/rootless.md`` say (version of August 2026).
What a site sets stands as ``${NAME}`` in the manifests, which ``run.sh`` fills in.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainwright.core.paths import templates_dir
from trainwright.engine.cache import EXPORT, own_tag
from trainwright.pipeline.bake import target_name
from trainwright.pipeline.images import ChosenImage
from trainwright.pipeline.in_cluster import WORKSPACE
from trainwright.pipeline.sharing import Group, group_of
from trainwright.pipeline.text import render
from trainwright.plan.destination import SAGEMAKER
from trainwright.plan.plan import Plan
from trainwright.plan.totals import download
from trainwright.prove.job_files import FOLDERS, job_files
from trainwright.user import secret_files

RUN_FILE = "run.sh"
# What `run.sh` fills in.
NAMES = (
    *("REGISTRY", "REPOSITORY_PREFIX", "CACHE", "BUILDKIT_IMAGE", "AWS_CLI_IMAGE", "SERVICE_ACCOUNT", "BUILD_CPU"),
    *("DEADLINE", "KEPT", "RUN", "DIGEST"),
)
MODULES = {"pytorch": "torch", "tensorflow": "tensorflow"}
_SCRIPT = """
import json, os
import {module}
with open(os.path.join(os.environ["SM_MODEL_DIR"], "report.json"), "w") as out:
    json.dump({{"gpus": os.environ.get("SM_NUM_GPUS")}}, out)
"""
USER = 1000  # of BuildKit's rootless image, whose tables of subordinate ids name it
_BUILDKIT_DATA = "/home/user/.local/share/buildkit"
_GIB = 1 << 30
_NUMBERS = ("${DEADLINE}", "${KEPT}")
_ECR = re.compile(r"[0-9]{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(?:\.cn)?")


def files(
    images: Sequence[ChosenImage], groups: Sequence[Group], *, folder: str, command: str, catalog: str, gpus: int
) -> dict[str, str]:
    """Name and content of the files: a manifest for each Job, and the script that creates them.

    Args:
        images: the images to build, in order.
        groups: their groups of shared stages, each after its parent.
        folder: where the files are.
        command: the command that writes them.
        catalog: folder of the user's own catalog, or nothing.
        gpus: how many GPUs the smoke test of an image with CUDA gets.
    """
    by_name = {image.name: image for image in images}
    manifests: dict[str, dict[str, Any]] = {}
    for group in groups:
        manifests[f"{group.name}.build.yaml"] = stages_job(group, by_name[group.images[0]])
    for image in images:
        manifests[f"{image.name}.build.yaml"] = image_job(image, group_of(image.name, groups))
        manifests[f"{image.name}.smoke.yaml"] = smoke_job(image, gpus=gpus)
    values = {
        "command": command,
        "catalog": "'" + catalog.replace("'", "'\\''") + "'" if catalog else "",
        "names": NAMES,
        "images": [
            {"name": image.name, "target": target_name(image.plan), "framework": image.plan.framework}
            for image in images
        ],
        "groups": [
            {
                "name": group.name,
                "target": target_name(by_name[group.images[0]].plan),
                "stages": ",".join(group.stages),
            }
            for group in groups
        ],
    }
    head = f"# Made by `{command}` from the catalog; see docs/pipeline.md. {RUN_FILE} fills it in.\n"
    made = {f"{folder}/{name}": head + manifest(job) for name, job in manifests.items()}
    return {f"{folder}/{RUN_FILE}": render(f"kubernetes/{RUN_FILE}.j2", values), **made}


def manifest(job: Mapping[str, Any]) -> str:
    """A Job as YAML: scripts as they are read, texts that are filled in quoted, and numbers that are not."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Knows no aliases: a manifest says everything where it stands."""

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - of yaml's own
            """Whether to write it out."""
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else '"' if "${" in value and value not in _NUMBERS else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)

    Dumper.add_representer(str, text)
    written: str = yaml.dump(dict(job), Dumper=Dumper, sort_keys=False, default_flow_style=False, width=1 << 16)
    return written


def image_job(image: ChosenImage, group: Group | None) -> dict[str, Any]:
    """The Job that builds an image and pushes it by its digest."""
    tags = [own_tag(image.plan), *([group.name] if group else [])]
    repository = f"${{REGISTRY}}/${{REPOSITORY_PREFIX}}/{image.plan.framework}"
    return _build_job(image.name, image.plan, repository=repository, tags=tags)


def stages_job(group: Group, first: ChosenImage) -> dict[str, Any]:
    """The Job that builds the stages of a group into the cache; the first image's context has them."""
    tags = [group.name, *([group.parent] if group.parent else [])]
    return _build_job(group.name, first.plan, repository="", tags=tags)


def smoke_job(image: ChosenImage, *, gpus: int) -> dict[str, Any]:
    """The Job that runs in an image, by its digest.

    Args:
        image: the image.
        gpus: how many GPUs it gets if it has CUDA.
    """
    own = gpus if image.plan.cuda != "cpu" else 0
    arguments = smoke_arguments(image, gpus=own)
    resources: dict[str, Any] = {"requests": {"cpu": "2", "memory": "4Gi"}}
    more: dict[str, Any] = {}
    if own:
        resources["limits"] = {"nvidia.com/gpu": str(own)}
        more["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    container = {
        "name": "smoke",
        "image": f"${{REGISTRY}}/${{REPOSITORY_PREFIX}}/{image.plan.framework}@${{DIGEST}}",
        "command": ["python3", "-c", *map(escaped, arguments)],
        # Its result becomes its message.
        "env": [{"name": "IMAGE_DIGEST", "value": "${DIGEST}"}, {"name": "RESULT", "value": "/dev/termination-log"}],
        "resources": resources,
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - what loaders of PyTorch need
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
        # As on the platform, where the first host of a job has this name.
        "hostAliases": [{"ip": "127.0.0.1", "hostnames": ["algo-1"]}],
        **more,
    }
    return _job(f"{image.name}-smoke", spec)


def smoke_arguments(image: ChosenImage, *, gpus: int) -> list[str]:
    """The smoke test that runs in an image, as arguments of ``python3 -c``: the program, that of the probe, a request.

    Args:
        image: the image.
        gpus: how many GPUs its framework has to see.
    """
    plan = image.plan.as_json()
    names = {component.name for component in image.plan.components}
    module = next((MODULES[name] for name in (image.plan.framework, *MODULES) if name in MODULES and name in names), "")
    request = {
        "plan": image.plan.id,
        "probes": plan["probes"],
        "secrets": secret_files.rules(),
        "expect": plan["expect"],
        "module": module,
        "gpus": gpus,
        "job": smoke_training(module) if plan.get("destination", SAGEMAKER) == SAGEMAKER else None,
    }
    probe = (templates_dir() / "probe" / "probe.py").read_text()
    return [_template("smoke.py"), probe, json.dumps(request)]


def smoke_training(module: str) -> dict[str, Any]:
    """Folders and files of the job that the smoke test runs: it imports the framework's module, and leaves a report."""
    code = {"train.py": _SCRIPT.format(module=module or "os")}
    return {"folders": FOLDERS, "files": job_files(code)}


def _build_job(name: str, plan: Plan, *, repository: str, tags: Sequence[str]) -> dict[str, Any]:
    base = (plan.base.image or "").partition("/")[0]
    registries = ["${REGISTRY}", *([base] if _ECR.fullmatch(base) else [])]
    environment = {
        "JOB": name,
        "TARGET": target_name(plan),
        "REPOSITORY": repository,
        "CACHE": "${CACHE}",
        "CACHE_TAGS": " ".join(tags),
        "CACHE_EXPORT": EXPORT,
        "DOCKER_CONFIG": "/docker",
        # Kubernetes masks parts of /proc, so that a build step can have none of its own.
        "BUILDKITD_FLAGS": "--oci-worker-no-process-sandbox",
    }
    workspace = {"name": "workspace", "mountPath": WORKSPACE}
    docker = {"name": "docker", "mountPath": "/docker"}
    wait = f"until [ -e {WORKSPACE}/complete ]; do sleep 1; done"
    requests = {
        "cpu": "${BUILD_CPU}",
        "memory": f"{memory_gib(plan)}Gi",
        "ephemeral-storage": f"{disk_gib(plan)}Gi",
    }
    spec = {
        "serviceAccountName": "${SERVICE_ACCOUNT}",
        # One user for every container: the token of the role can be read by it alone. No fsGroup, whose set-gid bit
        # folders of layers would inherit.
        "securityContext": {"runAsUser": USER, "runAsGroup": USER},
        "initContainers": [
            _container("context", "${BUILDKIT_IMAGE}", wait, {}, [workspace]),
            _container(
                "login",
                "${AWS_CLI_IMAGE}",
                _template("login.sh"),
                {"REGISTRIES": " ".join(registries), "HOME": "/tmp"},  # noqa: S108 - of a container
                [docker],
            ),
        ],
        "containers": [
            {
                **_container(
                    "buildkit",
                    "${BUILDKIT_IMAGE}",
                    _template("build.sh"),
                    environment,
                    [workspace, docker, {"name": "buildkitd", "mountPath": _BUILDKIT_DATA}],
                ),
                "securityContext": {
                    "seccompProfile": {"type": "Unconfined"},
                    "appArmorProfile": {"type": "Unconfined"},  # Kubernetes 1.30
                },
                "resources": {"requests": requests},
            }
        ],
        "volumes": [
            {"name": "workspace", "emptyDir": {}},
            {"name": "docker", "emptyDir": {"medium": "Memory"}},
            {"name": "buildkitd", "emptyDir": {}},
        ],
    }
    return _job(name, spec)


def _container(
    name: str, image: str, script: str, environment: Mapping[str, str], mounts: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    variables = [{"name": key, "value": escaped(value)} for key, value in environment.items()]
    return {
        "name": name,
        "image": image,
        "command": ["sh", "-c", escaped(script)],
        **({"env": variables} if variables else {}),
        "volumeMounts": [dict(mount) for mount in mounts],
    }


def _job(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "trainwright", "trainwright/run": "${RUN}"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": f"{resource_name(name)}-", "labels": labels},
        "spec": {
            # A pod that lost its node is replaced; what failed by itself would fail again (Kubernetes 1.31).
            "backoffLimit": 2,
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0]}},
                ]
            },
            "activeDeadlineSeconds": "${DEADLINE}",
            "ttlSecondsAfterFinished": "${KEPT}",
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    **spec,
                },
            },
        },
    }


def resource_name(name: str) -> str:
    """A name for objects of Kubernetes (RFC 1123), short enough that five more characters fit into a label."""
    made = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if len(made) <= _LONGEST and made:
        return made
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{made[: _LONGEST - len(digest) - 1].strip('-')}-{digest}".lstrip("-")


_LONGEST = 50


def escaped(text: str) -> str:
    """Text of a command or a variable, in which Kubernetes expands nothing: ``$(NAME)`` there names a variable."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def memory_gib(plan: Plan) -> int:
    """What a build needs: BuildKit and the packing of layers, and one job of the most demanding compiler."""
    return 4 + round(max((component.compile_memory_gb for component in plan.components), default=0) + 0.5)


def disk_gib(plan: Plan) -> int:
    """What a build writes: locked files with the cache of their installer, the layers unpacked, and packed again.

    The images of the proofs have twice the bytes of their locked files; the base and its packages come on top.
    """
    return 20 + -(-5 * download(plan, None).bytes // _GIB)


def _template(name: str) -> str:
    return (templates_dir() / "pipeline" / "kubernetes" / name).read_text()
