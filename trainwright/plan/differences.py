"""How a draft differs from its image line: other versions, other providers, more or fewer components."""

from __future__ import annotations

from trainwright.catalog.image_line import BASE, Selection
from trainwright.catalog.wheel_lock import Lock
from trainwright.plan.destination import CLUSTER, OF_SAGEMAKER
from trainwright.plan.draft import OPEN, Draft


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


def flavour(draft: Draft) -> str:
    """What distinguishes the image from its line, as in a tag."""
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
    return "-".join([*parts, "unproven"] if draft.unproven else parts)


def differences(draft: Draft, lock: Lock | None) -> list[str]:
    """What a user should know about a plan that differs from its line."""
    told = [
        f"{name} {version} was asked for; {draft.file} has {own}"
        for name, (own, version) in sorted(pinned(draft).items())
    ]
    told += [
        f"{name} comes from {chosen.provider}; {draft.file} has {draft.line.components[name].provider}"
        for name, chosen in provided(draft).items()
    ]
    if draft.unproven:
        told.append(
            f"unproven: {', '.join(draft.unproven)}; the rest is as in {draft.file}, and this combination is untested"
        )
        if lock is None:
            told.append(
                "its Python packages have no lock yet; build and render make one, which needs the package index"
            )
    return told
