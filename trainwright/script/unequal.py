"""Shares of a list of files: every n-th one, of which some processes have more than others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence

from trainwright.script.events import Event
from trainwright.script.values import NONE, Marks, Value

# As long as the process's share of a list; another process's share may have another length.
RAGGED: Marks = frozenset({"ragged"})
# What makes a data set, a loader or a tensor of a list, or a tensor of the same length.
_KEEP = frozenset(
    [
        *("list", "tuple", "sorted", "iter", "enumerate", "tqdm", "Subset", "DataLoader", "select", "shard"),
        *("cat", "concat", "concatenate", "stack", "tensor", "as_tensor", "from_numpy", "array", "asarray"),
        *("to", "cuda", "cpu", "float", "long", "int", "half", "double", "detach", "contiguous", "numpy", "clone"),
        *("unsqueeze", "squeeze", "flatten", "LongTensor", "FloatTensor"),
    ]
)
# What returns the names of files.
_LISTS = ("glob", "iglob", "rglob", "listdir", "iterdir", "list_directory", "scandir")


def shared(first: Value | None, step: Value | None) -> Marks:
    """Return what a slice is that begins with the rank and goes on by the number of processes."""
    by_rank = first is not None and step is not None and "rank" in first.tags and "world" in step.tags
    return frozenset({"unequal"}) if by_rank else NONE


def shares(base: Value, sliced: Marks) -> Marks:
    """Return the facts of a slice of a list: a share that may be longer than others, or whose files may hold more."""
    if "unequal" in sliced and "trimmed" not in base.tags:
        return RAGGED | (frozenset({"unequal"}) if "files" in base.tags else NONE)
    return sliced & {"trimmed"}


def dealt(listed: Value, tests: Iterable[ast.expr]) -> Marks:
    """Return what a comprehension takes of a list: ``[file for i, file in enumerate(files) if i % world == rank]``.

    What it makes of each item of a share is as long as the share.
    """
    base = listed.of if "element" in listed.tags and listed.of is not None else listed
    by_rank = any("%" in text and re.search(r"rank\b", text) for text in map(ast.unparse, tests))
    return (shares(base, frozenset({"unequal"})) if by_rank else NONE) | (base.tags & RAGGED)


def of_range(args: Sequence[Value]) -> Marks:
    """Return what ``range(rank, n, world)`` is; n may be a multiple of the number of processes."""
    by_rank = len(args) > 2 and shared(args[0], args[2])
    return RAGGED if by_rank and not args[1].tags & {"world", "per-replica", "part"} else NONE


def returned(event: Event) -> None:
    """Note that a call of a library returns names of files, a share of them, or so many items."""
    if event.last in _LISTS and not event.name.startswith("script."):
        event.result.tags |= {"files"}
    if event.name == "itertools.islice" and event.args:
        begin = event.args[1] if len(event.args) > 3 else None
        step = event.args[3] if len(event.args) > 3 else None
        event.result.tags = event.result.tags - {"unequal"} | shares(event.args[0], shared(begin, step))
    elif event.last in ("append", "extend") and event.over is not None and event.receiver is not None:
        event.receiver.tags |= _listed(event.over).tags & RAGGED
    elif event.result.instance and "dataset" in event.result.tags:
        event.result.tags |= _of_any((event.result.attrs or {}).values())
    elif not event.name.startswith("script."):
        _keep_length(event)


def _listed(value: Value) -> Value:
    """Return what ``enumerate`` or the like goes over."""
    return value.of if "element" in value.tags and value.of is not None else value


def _of_any(values: Iterable[Value]) -> Marks:
    return RAGGED if any(RAGGED & value.tags for value in values) else NONE


def _keep_length(event: Event) -> None:
    """Note whether the result of a library's call is as long as a share that it gets."""
    if event.last not in _KEEP:
        if RAGGED & event.result.tags and event.name != "range":
            event.result = event.result.without_tags(*RAGGED)
        return
    given = [event.receiver or Value(), *event.args[: 2 if event.last == "Subset" else 1]]
    long = bool(_of_any(each for value in given for each in (value, *(value.items or ()))))
    if event.last == "shard":
        long = any("rank" in value.tags for value in (*event.args, *event.keywords.values()))
    if event.last == "DataLoader":
        last = event.arg("drop_last", 8)
        sampled = event.arg("sampler", 3) is not None or event.arg("batch_sampler", 4) is not None
        long = long and not sampled and (last is None or last.single() is False)
    elif event.last in ("cat", "concat", "concatenate") and event.node.args:
        long = long and not isinstance(event.node.args[0], ast.List | ast.Tuple)  # one of them may fill it up
    if long and not RAGGED & event.result.tags:
        event.result = event.result.with_tags(*RAGGED)
    elif RAGGED & event.result.tags and not long:
        event.result = event.result.without_tags(*RAGGED)
