"""The job's code as a ConfigMap of Kubernetes, so that a manifest is whole."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any

from trainwright.user.files import FoundFile

MAX_BYTES = 2**20  # Kubernetes documentation, ConfigMap: "The data stored in a ConfigMap cannot exceed 1 MiB"
MODE = 0o555  # a script of the shell must be executable


def config_map(name: str, files: Sequence[FoundFile]) -> dict[str, Any]:
    """Return the ConfigMap of a job's files: text in ``data``, anything else in ``binaryData``."""
    made: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    for key, file in _keys(files):
        content = file.path.read_bytes()
        try:
            made.setdefault("data", {})[key] = content.decode()
        except UnicodeDecodeError:
            made.setdefault("binaryData", {})[key] = base64.b64encode(content).decode()
    return made


def volume(name: str, files: Sequence[FoundFile]) -> dict[str, Any]:
    """Return the volume of a pod that puts each file where it was."""
    items = [{"key": key, "path": file.name} for key, file in _keys(files)]
    return {"name": "code", "configMap": {"name": name, "defaultMode": MODE, "items": items}}


def _keys(files: Sequence[FoundFile]) -> list[tuple[str, FoundFile]]:
    """A key for each file: Kubernetes takes letters, digits and ``-._``, and the names of two files may become one."""
    return [
        (f"{number:03d}-{re.sub('[^A-Za-z0-9._-]', '-', each.name)[-200:]}", each) for number, each in enumerate(files)
    ]
