"""Files with which other programs open an image for development: Dev Containers (VS Code, …) and Docker Compose.

Both start the image that `build` tagged, with the project's folder at ``/workspace`` as `run` has it, and without the
image's entry point, which would start a training job.
"""

from __future__ import annotations

import json
from typing import Any

from trainwright.pipeline.text import dump
from trainwright.plan.plan import Plan
from trainwright.prove.session import FOLDER

DEVCONTAINER, COMPOSE = ".devcontainer/devcontainer.json", "compose.yaml"
_SHARED_MEMORY = "1gb"  # what loaders of PyTorch pass batches through; Docker's default of 64 MB is too little


def devcontainer(plan: Plan) -> str:
    """The text of ``.devcontainer/devcontainer.json`` for the image of a plan (https://containers.dev)."""
    document: dict[str, Any] = {
        "name": plan.tags[0],
        "image": plan.tags[0],
        # Otherwise the container would run the image's entry point, and end.
        "overrideCommand": True,
        "init": True,
        "runArgs": [f"--shm-size={_SHARED_MEMORY}"],
        "workspaceFolder": FOLDER,
        "workspaceMount": f"source=${{localWorkspaceFolder}},target={FOLDER},type=bind",
        "customizations": {"vscode": {"extensions": ["ms-python.python"]}},
    }
    if plan.cuda != "cpu":
        document["hostRequirements"] = {"gpu": "optional"}
    return json.dumps(document, indent=2) + "\n"


def compose(plan: Plan) -> str:
    """The text of ``compose.yaml`` for the image of a plan: a service ``training``, and ``gpu`` if it has CUDA."""
    services: dict[str, Any] = {
        "training": {
            "image": plan.tags[0],
            "pull_policy": "never",  # it is in no registry under this name
            "entrypoint": [],
            "command": ["bash"],
            "init": True,
            "stdin_open": True,
            "tty": True,
            "shm_size": _SHARED_MEMORY,
            "working_dir": FOLDER,
            "volumes": [{"type": "bind", "source": ".", "target": FOLDER}],
        }
    }
    if plan.cuda != "cpu":
        devices = [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]
        services["gpu"] = {
            "extends": {"service": "training"},
            "profiles": ["gpu"],  # `docker compose up` on a machine without one leaves it out
            "deploy": {"resources": {"reservations": {"devices": devices}}},
        }
    return dump({"services": services})
