"""Probes an image, and compares its content with its plan.

:func:`probe` runs ``templates/probe/probe.py`` inside the image; :mod:`trainwright.prove.differences` compares the
result with the plan. A difference fails the build.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from trainwright.core.errors import EngineError, ProofFailed
from trainwright.core.layout import size
from trainwright.core.paths import templates_dir
from trainwright.core.runner import Completed, run
from trainwright.prove.differences import differences
from trainwright.user import secret_files

SECONDS = 900.0  # for the whole probe
SESSION_LABEL = "io.trainwright.session"
_DOCKER_ITSELF_FAILED = 125
_NOT_FOUND = 127  # of the program in the container
_SHOWN = 3  # files in a note; the probe's document has all


def probe(
    client_path: str,
    image: str,
    plan: Mapping[str, Any],
    *,
    env: Mapping[str, str] | None = None,
    timeout: float = SECONDS,
) -> dict[str, Any]:
    """Run the probe program in a container of the image; nothing is mounted, so remote engines work as well.

    Args:
        client_path: the docker command line client.
        image: id or reference of an image in the engine.
        plan: the plan's JSON; its ``probes`` are run inside the image.
        env: variables for the client (``DOCKER_HOST`` and the like).
        timeout: seconds for the whole probe.

    Returns:
        What the program found (schema ``trainwright/probe/1``), with ``image``: the image's configuration and history.

    Raises:
        EngineError: the engine does not answer or cannot run the image.
        ProofFailed: the program failed, so the image has no usable ``python3``.
    """
    session = uuid.uuid4().hex[:12]
    name = f"trainwright-probe-{session}"
    options = ["--rm", "-i", "--name", name, "--label", f"{SESSION_LABEL}={session}"]
    request = json.dumps(request_of(plan))
    argv = [client_path, "run", *options, "--network", "none", "--entrypoint", "python3", image, "-", request]
    program = program_text()
    config = image_config(client_path, image, env)
    try:
        done = run(argv, env=env, stdin=program, timeout=timeout)
    finally:
        # If the client was killed, the container still exists.
        run([client_path, "rm", "-f", name], env=env, timeout=60)
    return {**_document(done, image), "image": config}


def request_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What the program is asked for an image of this plan."""
    return {"probes": list(plan.get("probes", ())), "secrets": secret_files.rules()}


def program_text() -> str:
    """The program."""
    return (templates_dir() / "probe" / "probe.py").read_text()


def _document(done: Completed, image: str) -> dict[str, Any]:
    if done.returncode == _DOCKER_ITSELF_FAILED:
        raise EngineError(
            f"the engine could not run {image}: {done.tail(3)}", remedy="./invoke doctor says what is wrong with it."
        )
    if done.returncode == _NOT_FOUND:
        raise ProofFailed(
            f"{image} has no python3 on PATH, so its contents cannot be read: {done.tail(1)}",
            remedy="Extend another image (./invoke list --all), or look inside: "
            f"docker run --rm -it --entrypoint /bin/sh {image}",
            image=image,
        )
    try:
        found = json.loads(done.stdout) if done.ok else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ProofFailed(
            f"the probe failed in {image} (exit status {done.returncode}): {done.tail(5)}",
            remedy=f"Look inside: docker run --rm -it --entrypoint /bin/sh {image}. It needs a python3 on PATH.",
            image=image,
        )
    return found


def image_config(client_path: str, image: str, env: Mapping[str, str] | None) -> dict[str, Any]:
    """The image's configuration in the engine: what a container starts with, before anything runs."""
    done = run([client_path, "image", "inspect", image], env=env, timeout=60)
    if not done.ok:
        raise EngineError(
            f"the engine cannot describe {image}: {done.tail(2)}",
            remedy="./invoke list --built shows the images built on this machine.",
        )
    data = json.loads(done.stdout)[0]
    history = run([client_path, "history", "--no-trunc", "--format", "{{json .CreatedBy}}", image], env=env, timeout=60)
    return {
        "id": data.get("Id", ""),
        "layers": (data.get("RootFS") or {}).get("Layers") or [],
        "size_bytes": data.get("Size", 0),
        "architecture": data.get("Architecture", ""),
        **_started_with(data.get("Config") or {}),
        "history": [json.loads(line) for line in history.stdout.splitlines() if line.strip()],
    }


def registry_config(image_id: str, configuration: Mapping[str, Any], size_bytes: int) -> dict[str, Any]:
    """The same as :func:`image_config`, from the configuration of an image in a registry (OCI image specification).

    Args:
        image_id: digest of the configuration.
        configuration: of the image.
        size_bytes: of the image.
    """
    return {
        "id": image_id,
        "layers": (configuration.get("rootfs") or {}).get("diff_ids") or [],
        "size_bytes": size_bytes,
        "architecture": configuration.get("architecture", ""),
        **_started_with(configuration.get("config") or {}),
        "history": [str(each.get("created_by", "")) for each in reversed(configuration.get("history") or [])],
    }


def _started_with(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a container starts with; engines and registries have the same names for it."""
    return {
        "entrypoint": config.get("Entrypoint"),
        "cmd": config.get("Cmd"),
        "user": config.get("User") or "",
        "working_dir": config.get("WorkingDir") or "",
        "environment": dict(pair.split("=", 1) for pair in config.get("Env") or []),
        "labels": config.get("Labels") or {},
        "volumes": sorted(config.get("Volumes") or {}),
    }


def copies_note(found: Mapping[str, Any]) -> str:
    """A note on the files that an image has twice, without those of its base; empty if it has none. Not an error."""
    below = [each["paths"] for each in found.get("base", {}).get("copies", ())]
    own = [each for each in found.get("copies", ()) if each["paths"] not in below]
    if not own:
        return ""
    wasted = sum(each["bytes"] * (len(each["paths"]) - 1) for each in own)
    shown = [f"{' = '.join(each['paths'])} ({size(each['bytes'])})" for each in own[:_SHOWN]]
    more = [f"{len(own) - _SHOWN} more"] if len(own) > _SHOWN else []
    return f"{size(wasted)} are second copies of files: {', '.join(shown + more)}"


def check(plan: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Check that an image matches its plan.

    Raises:
        ProofFailed: with every difference in the message and, as data, under ``differences``.
    """
    different = differences(plan, found)
    if not different:
        return
    remedies = list(dict.fromkeys(d.remedy for d in different))
    noun = "difference" if len(different) == 1 else "differences"
    raise ProofFailed(
        "\n".join([f"{len(different)} {noun} between plan and image", *(f"  {d}" for d in different)]),
        remedy="\n".join(remedies),
        differences=[asdict(d) for d in different],
    )
