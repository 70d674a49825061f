"""A bake file (``docker-bake.json``) with the contexts it names, for any buildx builder: a remote one, Kubernetes.

``docker buildx bake`` builds; it neither probes an image nor writes a record, so what it builds cannot be pushed by
``./invoke push``. ``./invoke build --builder NAME --registry REF`` on the same builder takes its layers from the cache
and proves them.

The form of the file: Docker's "Bake file reference". It holds nothing of this machine but the paths of secrets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainwright.build.context import write_context
from trainwright.core.errors import RequestError
from trainwright.core.owned import claim, clear, write_atomically
from trainwright.core.say import Say
from trainwright.engine.cache import cache_options
from trainwright.plan.plan import Plan, variant
from trainwright.site.site import Site
from trainwright.sources.fetch import fetch_base
from trainwright.sources.inputs import Inputs

BAKE_FILE = "docker-bake.json"
CONTEXTS = "contexts"
KIND = "bake"  # of folder, as its manifest says
SECRETS = "secrets"
# Where images go, and what the label of the source says: set in the environment of `docker buildx bake`.
VARIABLES = {"REGISTRY": "trainwright", "SOURCE_REVISION": "unknown"}


def target_name(plan: Plan) -> str:
    """The name of a plan's target: letters, digits and ``-``, as bake wants it."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", f"{plan.framework}-{variant(plan)}")


def bake_document(
    plans: Sequence[Plan],
    *,
    cache: Sequence[str] = (),
    secrets: Mapping[str, Mapping[str, str]] | None = None,
    arguments: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, Any]:
    """The bake file of several plans: a target for each, a group for each framework, ``default`` for all.

    Args:
        plans: what is built; each has its context in ``contexts/<target>`` beside the file.
        cache: references of registry caches, as of ``build --cache``.
        secrets: by target, the secret files by id, relative to the bake file.
        arguments: by target, further build arguments.

    Returns:
        A JSON document. Its variables ``REGISTRY`` and ``SOURCE_REVISION`` come from the environment of bake.

    Raises:
        RequestError: there are no plans, two give one target, or a cache is no reference.
    """
    if not plans:
        raise RequestError("a bake file needs at least one image", remedy="./invoke list shows the image lines.")
    targets: dict[str, dict[str, Any]] = {}
    groups: dict[str, list[str]] = {}
    for plan in plans:
        name = target_name(plan)
        if name in targets:
            raise RequestError(f"two plans give the target {name}", remedy="Name each image line once.")
        targets[name] = _target(plan, name, cache, secrets or {}, arguments or {})
        groups.setdefault(plan.framework, []).append(name)
    return {
        "variable": {name: {"default": value} for name, value in VARIABLES.items()},
        "group": {
            "default": {"targets": sorted(groups)},
            **{framework: {"targets": names} for framework, names in sorted(groups.items())},
        },
        "target": targets,
    }


def _target(
    plan: Plan,
    name: str,
    cache: Sequence[str],
    secrets: Mapping[str, Mapping[str, str]],
    arguments: Mapping[str, Mapping[str, str]],
) -> dict[str, Any]:
    imports, exports = cache_options(cache, plan)
    own = "trainwright/"
    target: dict[str, Any] = {
        "context": f"{CONTEXTS}/{name}",
        "dockerfile": "Dockerfile",
        "target": "final",
        "args": {"SOURCE_REVISION": "${SOURCE_REVISION}", **arguments.get(name, {})},
        "labels": dict(plan.labels),
        "tags": [f"${{REGISTRY}}/{tag.removeprefix(own)}" for tag in plan.tags],
        # What the engine that runs the image needs: one image, not an index with attestations.
        "attest": ["type=provenance,disabled=true"],
    }
    if imports:
        target["cache-from"] = imports
    if exports:
        target["cache-to"] = exports
    if of_target := secrets.get(name):
        target["secret"] = [f"id={id},src={path}" for id, path in sorted(of_target.items())]
    return target


def write_bake(
    images: Sequence[Inputs],
    folder: Path,
    *,
    cache: Sequence[str] = (),
    say: Say,
) -> Path:
    """Write a bake file with every context and secret that it names; returns its path.

    Args:
        images: what each build takes in. What of a site may hold a password lies in ``secrets/``, readable by its
            owner alone and ignored by git.
        folder: missing, empty, or filled by this function before; contexts of other targets in it go.
        cache: references of registry caches.
        say: told of long steps.

    Raises:
        Failure: as :func:`bake_document` and :func:`trainwright.build.context.write_context`.
    """
    plans = [inputs.plan for inputs in images]
    names = [target_name(plan) for plan in plans]
    bake_document(plans, cache=cache)  # what is wrong with the request is told before gigabytes are written
    path = folder / BAKE_FILE
    claim(folder, KIND, f"--output {folder}", whole=True)
    secrets, arguments = {}, {}
    for inputs, name in zip(images, names, strict=True):
        write_context(fetch_base(inputs, say=say), folder / CONTEXTS / name, say=say)
        secrets[name] = _secrets(inputs.plan, inputs.site, folder)
        arguments[name] = {image.argument: image.pinned for image in inputs.images if image.reference != image.name}
    for gone in (folder / CONTEXTS).iterdir():
        if gone.name not in names:
            clear(gone)
    document = bake_document(plans, cache=cache, secrets=secrets, arguments=arguments)
    write_atomically(path, json.dumps(document, indent=2) + "\n")
    return path


def _secrets(plan: Plan, site: Site, folder: Path) -> dict[str, str]:
    """The site's secret files for one distribution, by id, relative to the bake file."""
    place = folder / SECRETS / plan.base.os
    found = site.secrets(place, plan.base.os)
    (folder / SECRETS / ".gitignore").write_text("*\n")
    return {id: str(path.relative_to(folder) if path.is_relative_to(folder) else path) for id, path in found.items()}
