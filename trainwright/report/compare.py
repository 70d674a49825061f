"""Compares what two images, plans or locks contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

from trainwright.build.ledger import BuiltLayer
from trainwright.report.contents import SOURCES, Contents
from trainwright.report.documents import ChangedBytes, ChangedName, Comparison, Pull


def compare(before: Contents, after: Contents) -> Comparison:
    """What is different in ``after``. Parts that only one side can have are left out, and named."""
    parts = [part for part in after.parts if part in before.parts]
    # A file that only one side has is another version's, which is said of the package or component.
    both = {SOURCES: before.parts.get(SOURCES, {}).keys() & after.parts.get(SOURCES, {}).keys()}
    return Comparison(
        schema="trainwright/diff/1",
        before=before.name,
        after=after.name,
        compared={part: len(before.parts[part].keys() | after.parts[part].keys()) for part in parts},
        skipped=tuple(sorted(before.parts.keys() ^ after.parts.keys())),
        changes=tuple(
            change
            for part in parts
            for change in changes(part, before.parts[part], after.parts[part])
            if part != SOURCES or change.name in both[SOURCES]
        ),
        pull=pull(before.layers, after.layers),
        weights=tuple(weights(before.weights, after.weights)) if before.weights and after.weights else (),
    )


def weights(before: Mapping[str, int], after: Mapping[str, int]) -> list[ChangedBytes]:
    """The components whose bytes differ, the largest change first."""
    rows = [ChangedBytes(name=n, before=before.get(n, 0), after=after.get(n, 0)) for n in before.keys() | after.keys()]
    return sorted((r for r in rows if r.before != r.after), key=lambda r: (-abs(r.after - r.before), r.name))


def changes(part: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[ChangedName]:
    """The names whose values differ, sorted."""
    return [
        ChangedName(part=part, name=name, before=before.get(name, ""), after=after.get(name, ""))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def pull(here: Sequence[BuiltLayer], wanted: Sequence[BuiltLayer]) -> Pull | None:
    """What is downloaded of an image where another one is; nothing is known without the layers of both.

    containerd asks for the layers that it has in no image (``fetch`` in its remotes/handlers.go). Docker's own store
    knows a layer by all that lies below it, and downloads everything above the first difference (``Download`` in moby's
    distribution/xfer/download.go: ``missingLayer``).
    """
    if not here or not wanted:
        return None
    held = {layer.digest for layer in here}
    new = [layer for layer in wanted if layer.digest not in held]
    same = zip((layer.digest for layer in here), (layer.digest for layer in wanted), strict=False)
    below = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], same))
    return Pull(
        layers=len(wanted),
        bytes=sum(layer.bytes for layer in wanted),
        new_layers=len(new),
        new_bytes=sum(layer.bytes for layer in new),
        above_layers=len(wanted) - below,
        above_bytes=sum(layer.bytes for layer in wanted[below:]),
    )
