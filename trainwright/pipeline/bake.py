"""A bake file (``docker-bake.json``) and its contexts, for any buildx builder: a remote one, Kubernetes.

``docker buildx bake proved`` has the builder prove each image in place, but writes no record, so ``./invoke push``
refuses what it builds. ``./invoke build --builder NAME --registry REF`` on the same builder takes the layers from its
cache and writes one.

The format is Docker's "Bake file reference". Of this machine, the file contains only the paths of secrets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainwright.build.context import write_context
from trainwright.build.labels import content_labels
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
PROVED, PROOF = "proved", "proof"  # stages of a Dockerfile with a proof: one fails, the other has the results
PROOFS = "proofs"
SECRETS = "secrets"
# The registry and the source label: set them in the environment of `docker buildx bake`.
VARIABLES = {"REGISTRY": "trainwright", "SOURCE_REVISION": "unknown"}


def target_name(plan: Plan) -> str:
    """The name of a plan's target: letters, digits and ``-``, as bake requires."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", f"{plan.framework}-{variant(plan)}")


def bake_document(
    plans: Sequence[Plan],
    *,
    cache: Sequence[str] = (),
    secrets: Mapping[str, Mapping[str, str]] | None = None,
    arguments: Mapping[str, Mapping[str, str]] | None = None,
    labels: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, Any]:
    """The bake file of several plans: a target for each, a group for each framework, ``default`` for all.

    The group ``proved`` fails if an image is not what its plan says; ``proof`` writes what was found, also then, to
    ``proofs/<target>`` beside the file. An image on an AWS container is in neither: what its base brings is looked at
    in containers (:func:`trainwright.build.proved.proves`).

    Args:
        plans: the plans to build; the context of each is in ``contexts/<target>`` beside the file.
        cache: references of registry caches, as of ``build --cache``.
        secrets: by target, the secret files by id, relative to the bake file.
        arguments: by target, further build arguments.
        labels: by target, labels besides those of the plan.

    Returns:
        A JSON document. Its variables ``REGISTRY`` and ``SOURCE_REVISION`` come from the environment of bake.

    Raises:
        RequestError: there are no plans, two have the same target, or a cache reference is invalid.
    """
    if not plans:
        raise RequestError("a bake file needs at least one image", remedy="./invoke list shows the image lines.")
    targets: dict[str, dict[str, Any]] = {}
    groups: dict[str, list[str]] = {}
    for plan in plans:
        name = target_name(plan)
        if name in targets:
            raise RequestError(f"two plans have the target {name}", remedy="Name each image line once.")
        targets[name] = _target(plan, name, cache, secrets or {}, arguments or {})
        targets[name]["labels"] |= (labels or {}).get(name, {})
        groups.setdefault(plan.framework, []).append(name)
    provable = [target_name(plan) for plan in plans if plan.base.kind != "dlc"]
    for stage in (PROVED, PROOF) if provable else ():
        targets |= {f"{name}-{stage}": _proving(name, stage) for name in provable}
        groups[stage] = [f"{name}-{stage}" for name in provable]
    return {
        "variable": {name: {"default": value} for name, value in VARIABLES.items()},
        "group": {
            "default": {"targets": sorted({plan.framework for plan in plans})},
            **{framework: {"targets": names} for framework, names in sorted(groups.items())},
        },
        "target": targets,
    }


def _proving(name: str, stage: str) -> dict[str, Any]:
    """The target that proves an image: stage ``proof`` sends the results here, ``proved`` sends nothing."""
    output = f"type=local,dest={PROOFS}/{name}" if stage == PROOF else "type=cacheonly"
    return {"inherits": [name], "target": stage, "tags": [], "cache-to": [], "output": [output]}


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
        # The engine that runs the image needs a single image, not an index with attestations.
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
    """Write a bake file with its contexts and secrets; returns its path.

    Args:
        images: what each build takes in. What of a site may hold a password lies in ``secrets/``, readable by its
            owner alone and ignored by git.
        folder: missing, empty, or filled by this function before; contexts of other targets in it go.
        cache: references of registry caches.
        say: progress callback.

    Raises:
        Failure: as :func:`bake_document` and :func:`trainwright.build.context.write_context`.
    """
    plans = [inputs.plan for inputs in images]
    names = [target_name(plan) for plan in plans]
    bake_document(plans, cache=cache)  # refuses an invalid request before gigabytes are written
    path = folder / BAKE_FILE
    claim(folder, KIND, f"--output {folder}", whole=True)
    secrets, arguments, labels = {}, {}, {}
    for each, name in zip(images, names, strict=True):
        inputs = fetch_base(each, say=say)
        write_context(inputs, folder / CONTEXTS / name, say=say)
        labels[name] = content_labels(inputs)
        secrets[name] = _secrets(inputs.plan, inputs.site, folder)
        arguments[name] = {image.argument: image.pinned for image in inputs.images if image.reference != image.name}
    for gone in (folder / CONTEXTS).iterdir():
        if gone.name not in names:
            clear(gone)
    document = bake_document(plans, cache=cache, secrets=secrets, arguments=arguments, labels=labels)
    write_atomically(path, json.dumps(document, indent=2) + "\n")
    return path


def _secrets(plan: Plan, site: Site, folder: Path) -> dict[str, str]:
    """The site's secret files for one distribution, by id, relative to the bake file."""
    place = folder / SECRETS / plan.base.os
    found = site.secrets(place, plan.base.os)
    (folder / SECRETS / ".gitignore").write_text("*\n")
    return {id: str(path.relative_to(folder) if path.is_relative_to(folder) else path) for id, path in found.items()}
