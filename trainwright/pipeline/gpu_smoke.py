"""Smoke tests on a GPU in CodeBuild: buildspecs of builds whose environment is the image itself, by its digest.

CodeBuild's GPU environments (``LINUX_GPU_CONTAINER``) give their GPUs to the container of the build, and that container
can be any image of ECR: service model of CodeBuild, ``StartBuild``, ``imageOverride`` and
``imagePullCredentialsTypeOverride``. So no engine is started there, and nothing is built again. The test is the one
that runs in a cluster (:mod:`trainwright.pipeline.kubernetes`).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from trainwright.pipeline import buildspec
from trainwright.pipeline.images import ChosenImage
from trainwright.pipeline.kubernetes import manifest, smoke_arguments

# As on the platform, where the first host of a job has this name.
_HOST = "grep -q algo-1 /etc/hosts || echo '127.0.0.1 algo-1' >> /etc/hosts"
RESULT = "SMOKE_RESULT"  # the exported variable by which the result comes back
_FILE = "/tmp/smoke-result.json"  # noqa: S108 - of a container
# After a failed build phase, too: CodeBuild's user guide, "Build phase transitions".
_EXPORT = f'export {RESULT}="$(cat {_FILE})"'


def path_of(image: ChosenImage, folder: str) -> str:
    """Where the buildspec of an image's test is; empty for an image without CUDA, which has none."""
    return "" if image.plan.cuda == "cpu" else f"{folder}/{image.name}.yml"


def files(images: Sequence[ChosenImage], *, folder: str, gpus: int, command: str) -> dict[str, str]:
    """Path and text of the buildspec for each image with CUDA.

    Args:
        images: those of the pipeline.
        folder: for the files, relative to the root of the source.
        gpus: how many GPUs the framework has to see.
        command: that writes them, for their first line.

    Raises:
        RequestError: a text is not a valid buildspec.
    """
    texts = {}
    for image in images:
        if path := path_of(image, folder):
            test = shlex.join(["python3", "-c", *smoke_arguments(image, gpus=gpus)])
            document = {
                "version": 0.2,
                "env": {"variables": {"RESULT": _FILE}, "exported-variables": [RESULT]},
                "phases": {"build": {"commands": [_HOST, test]}, "post_build": {"commands": [_EXPORT]}},
            }
            texts[path] = f"# Made by `{command}`: the smoke test of {image.name}, in the image.\n{manifest(document)}"
            buildspec.check(texts[path], path)
    return texts
