"""How a draft differs from its image line: other versions, other providers, more or fewer components."""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.image_line import BASE, Selection
from trainwright.catalog.wheel_lock import Lock
from trainwright.plan.destination import CLUSTER, OF_SAGEMAKER
from trainwright.plan.draft import OPEN, Draft
from trainwright.plan.request import Request


def pinned(draft: Draft) -> dict[str, tuple[str, str]]:
    """Components changed by ``--set``: the line's version and the pinned one."""
    own = {**draft.line.options, **draft.line.components}
    return {
        name: (own[name].version, chosen.version)
        for name, chosen in draft.selections.items()
        if name in own
        and name != draft.line.main
        and chosen.version not in (own[name].version, OPEN)
        and own[name].version
    }


def provided(draft: Draft) -> dict[str, Selection]:
    """Components that come from another provider than the line's."""
    own = draft.line.components
    return {n: c for n, c in sorted(draft.selections.items()) if n in own and c.provider != own[n].provider}


def flavour(draft: Draft, gpus: Sequence[str] = ()) -> str:
    """What distinguishes the image from its line, as in a tag: with machine code for these GPUs alone, ``gpu80-90``."""
    own = draft.line.components
    parts = [draft.line.variant] if draft.line.variant else []
    place = draft.selections.get(CLUSTER)
    parts += [place.provider] if place else []
    added = (name for name, chosen in sorted(draft.selections.items()) if name not in own and chosen.provider != BASE)
    parts += [name for name in added if name != CLUSTER]
    # Elsewhere the absence of what is SageMaker's says nothing.
    parts += [
        f"no-{name}" for name in sorted(own) if name not in draft.selections and not (place and name in OF_SAGEMAKER)
    ]
    parts += [f"{name}-{chosen.provider}" for name, chosen in provided(draft).items()]
    parts += [f"{name}{version.replace('+', '.')}" for name, (_, version) in sorted(pinned(draft).items())]
    parts += ["gpu" + "-".join(gpus).replace(".", "")] if gpus else []
    return "-".join([*parts, "unproven"] if draft.unproven else parts)


def differences(request: Request, catalog: Catalog, draft: Draft, lock: Lock | None) -> list[str]:
    """What a user should know about a plan that differs from its line."""
    names = sorted({*pinned(draft), *provided(draft)})
    told = [_change(name, request, catalog, draft) for name in names]
    if draft.unproven:
        told.append(
            f"unproven: {', '.join(draft.unproven)}; the rest is as in {draft.file}, and this combination is untested"
        )
        if lock is None:
            told.append(
                "its Python packages have no lock yet; build and render make one, which needs the package index"
            )
    return told


def _change(name: str, request: Request, catalog: Catalog, draft: Draft) -> str:
    """How a component differs from the line's, and the word of the request that names it or brings it along."""
    has, own = draft.selections[name], {**draft.line.options, **draft.line.components}[name]
    moved, elsewhere = name in pinned(draft), name in provided(draft)
    pins, providers = dict(request.set_), catalog.components[name].component.providers
    ties = (providers[each.provider].tied for each in (has, own))
    asked = next((each for each in (name, *(tied.to for tied in ties if tied)) if each in pins), name)
    what = f"{name} {has.version}" if moved else name
    if asked == name and pins.get(name) != has.provider:
        how = " was asked for"
    else:
        how = (f" comes from {has.provider}" if elsewhere else " comes") + f" with --set {asked}={pins[asked]}"
    line = (own.version if moved else "it") + (f" from {own.provider}" if elsewhere else "")
    return f"{what}{how}; {draft.file} has {line}"
