"""Looks into the base image that a build extends: what it holds is found, not claimed.

The probe program runs in the base with the steps of every component of the catalog, so that it also finds what nobody
knew of. A component is there if its probe reports a version. What was found is kept by the image's id and a digest of
the steps, so a second build does not look again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.image_line import BASE, begins
from trainwright.catalog.incompatibilities import Composition, Fact, known_bad, notices
from trainwright.core.data_files import read_state
from trainwright.core.errors import Conflict, ProofFailed
from trainwright.core.heartbeat import heartbeat, waiting
from trainwright.core.owned import write_atomically
from trainwright.core.paths import state_dir
from trainwright.core.say import Say
from trainwright.engine.engine import Engine
from trainwright.plan.draft import same_version
from trainwright.plan.plan import Expectation, Plan, PlannedComponent, PlannedProbe, component_label
from trainwright.plan.request import Request
from trainwright.prove import probe as probing
from trainwright.prove.differences import differences, distribution
from trainwright.sources import base_image

# What an image has in common with its base is not the build's; see trainwright.prove.probe.
KEPT = ("driver_libraries", "compilers", "left_overs", "duplicates", "copies", "distributions")


def look(engine: Engine, reference: str, plan: Plan, catalog: Catalog, *, say: Say) -> dict[str, Any]:
    """What the probe program finds in a base image, from the state folder if it was looked at before.

    Args:
        engine: has the image, or pulls it.
        reference: what the build calls it.
        plan: its own steps come before those of the catalog.
        catalog: every component that may be found.
        say: progress callback.

    Raises:
        SourceError: the engine cannot pull the image.
        ProofFailed: the image has no usable ``python3``.
        EngineError: the engine cannot run it.
    """
    image = base_image.inspect(engine, reference) or base_image.pull(engine, reference, say=say)
    probes = [step.as_json() for step in _steps(plan, catalog)]
    digest = hashlib.sha256(json.dumps(probes, sort_keys=True).encode()).hexdigest()
    path = state_dir() / "bases" / f"{image.image_id.removeprefix('sha256:')[:16]}-{digest[:16]}.json"
    known = read_state(path)
    if isinstance(known, dict) and known.get("image", {}).get("id") == image.image_id:
        return known
    say(f"looking at what {reference} holds")
    with heartbeat(say, waiting(f"looking at what {reference} holds")):
        found = probing.probe(engine.client.path, image.image_id, {"probes": probes})
    write_atomically(path, json.dumps(found) + "\n")
    return found


def _steps(plan: Plan, catalog: Catalog) -> list[PlannedProbe]:
    """The steps for every component that a base image may hold, and that the plan does not install itself."""
    installed = {component.name for component in plan.components if component.provider != BASE}
    found = []
    for name, folder in sorted(catalog.components.items()):
        if name not in installed:
            steps = folder.component.providers[BASE].probe or folder.component.probe
            found += [PlannedProbe(component=name, **step.as_json()) for step in steps]
    return found


def versions(looked: Mapping[str, Any]) -> dict[str, str]:
    """The components in a base image with their versions, from what :func:`look` found."""
    facts: Mapping[str, Mapping[str, Any]] = looked.get("facts", {})
    return {name: str(own["version"]) for name, own in facts.items() if own.get("version")}


UNKNOWN = "unknown"  # what a probe says of a component without a version in it


def _says_less(found: str, asked: str) -> bool:
    """Whether a component in a base image names only a part of the version that was asked for, or none."""
    return found != asked and (found == UNKNOWN or begins(asked, found))


def check_claims(plan: Plan, request: Request, looked: Mapping[str, Any]) -> None:
    """Check that a base image is what its name says, and has what the user asked for.

    Raises:
        Conflict: it lacks what ``--with`` or ``--set`` asks for, or has what ``--without`` refuses.
        ProofFailed: Python, the framework, CUDA or the distribution is another than its name says.
    """
    found, image = versions(looked), str(plan.base.image)
    held = {component.name for component in plan.components if component.provider == BASE}
    rows = [
        (f"--with {name}", f"{name} is not in {image}") for name in request.with_ if name in held and name not in found
    ]
    for name, wanted in request.set_:
        has = found.get(name, "")
        fits = has and (wanted == BASE or same_version(has, wanted) or _says_less(has, wanted))
        if name in held and not fits:
            rows.append(
                (
                    f"--set {name}={wanted}",
                    f"{image} has {name} {found[name]}" if name in found else f"{name} is not in {image}",
                )
            )
    rows += [(f"--without {name}", f"{image} has {name} {found[name]}") for name in request.without if name in found]
    if rows:
        raise Conflict(
            f"the base image is not what was asked for: {', '.join(word for word, _ in rows)}",
            remedy="Leave these words out, or extend another image: ./invoke list",
            rows=[{"constraint": word, "evidence": why} for word, why in rows],
            offers=[],
        )
    named = held - {name for name, _ in request.set_}
    claims = {"components": [], "expect": [e.as_json() for e in plan.expect if e.component in named]}
    wrong = [str(d) for d in differences(claims, {"facts": looked.get("facts", {})}) if d.component in held]
    # Packages, their names and the label of the base depend on the distribution.
    if (system := distribution(looked.get("os", {}))) not in ("", plan.base.os):
        wrong.append(f"base: os should be {plan.base.os}, the image has {system}")
    if wrong:
        raise ProofFailed(
            "\n".join([f"the base image is not what its name says: {image}", *(f"  {each}" for each in wrong)]),
            remedy="Nothing was built. Pull the image again, or correct the image line that names it.",
            differences=wrong,
        )


def with_found(plan: Plan, looked: Mapping[str, Any], catalog: Catalog) -> Plan:
    """The plan with the versions of what the base image holds, as labels and expectations of the image.

    Id, tags and Dockerfile stay what they are. A component of the base without a version is not in it. What
    ``--allow-change`` names is not held to what it was. Notices about known-bad versions are about those found.
    """
    found = versions(looked)
    free = set(plan.user.allow_change)
    planned = [
        c if c.provider != BASE or c.version else c.replace(version=found.get(c.name, "")) for c in plan.components
    ]
    names = {component.name for component in planned}
    planned += [
        PlannedComponent(name=name, version=version, provider=BASE, order=catalog.components[name].component.order)
        for name, version in found.items()
        if name not in names
    ]
    planned = [c for c in planned if c.provider != BASE or not free & {c.name, *PACKAGES.get(c.name, ())}]
    planned.sort(key=lambda component: (component.order, component.name))
    base = [component for component in planned if component.provider == BASE and component.name in found]
    less = {c.name: c.version for c in base if _says_less(found[c.name], c.version)}
    probed = {step.component for step in plan.probes}
    labels = {name: text for component in base for name, text in component_label(component).items()}
    return plan.replace(
        components=tuple(planned),
        labels=labels | plan.labels,
        notices=(
            *_of_versions(plan, tuple(planned), catalog),
            *(f"--set {n}={v}: the base image only says that it has {n} {found[n]}" for n, v in less.items()),
        ),
        expect=(
            *(e for e in plan.expect if e.component not in less or e.fact != "version"),
            *(Expectation(component=c.name, fact="version", value=found[c.name]) for c in base),
        ),
        probes=(
            *plan.probes,
            *(s for s in _steps(plan, catalog) if s.component in found and s.component not in probed),
        ),
    )


def _of_versions(plan: Plan, found: tuple[PlannedComponent, ...], catalog: Catalog) -> list[str]:
    """The notices of a plan, those about known-bad versions of the base by what was found in it."""
    rules = known_bad(catalog.rules.rules)
    facts = Composition(
        framework=Fact(plan.framework),
        version=Fact(plan.version),
        cuda=Fact(plan.cuda),
        python=Fact(plan.python),
        os=Fact(plan.base.os),
        components={c.name: Fact(c.version, provider=c.provider) for c in found if c.version},
    )
    kept = [each for each in plan.notices if not any(each.startswith(f"{rule.notice} (") for rule in rules)]
    return [*kept, *(f"{told} (found in the base image)" for told in notices(rules, facts) if told not in kept)]


# The Python packages that decide what a component of another name is.
PACKAGES = {
    "pytorch": ("torch",),
    "sagemaker-toolkit": ("sagemaker-training",),
    "huggingface": ("transformers", "datasets", "accelerate", "tokenizers"),
    "nccl": ("nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13"),
}


def summary(looked: Mapping[str, Any]) -> dict[str, Any]:
    """What an image is compared with after its build: the part of what was found that a record keeps."""
    kept = {name: looked.get(name, {}) for name in KEPT}
    provider = looked.get("environment", {}).get("FI_PROVIDER")
    image = {"image_id": looked["image"]["id"], "layers": looked["image"].get("layers", [])}
    return {**kept, **image, "fi_provider": provider, "components": versions(looked)}
