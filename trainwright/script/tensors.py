"""Tensors that a script creates, and which of them are in main memory."""

from __future__ import annotations

from trainwright.script.events import Event
from trainwright.script.values import NONE, Marks, Value

# Functions that create a tensor, by default in main memory.
TENSORS = frozenset(
    f"torch.{name}"
    for name in (
        *("tensor", "as_tensor", "from_numpy", "zeros", "ones", "empty", "full", "arange", "rand", "randn", "randint"),
        *("Tensor", "FloatTensor", "LongTensor", "IntTensor", "DoubleTensor"),
    )
)
# Functions that join a row of tensors; the result is where they are.
_JOIN = frozenset(f"torch.{name}" for name in ("stack", "cat", "concat", "vstack", "hstack"))
# Of a tensor that is on a device, or may be.
_PLACED = frozenset({"on-device", "moved", "placed"})
# Methods that make another tensor in the same place.
CASTS = frozenset({"long", "int", "bool", "short", "bincount", "cumsum"})


def joined(event: Event) -> Marks:
    """Return the fact of a tensor that is made of several, all of them in main memory."""
    row = event.args[0].items if event.name in _JOIN and event.args else None
    whole = bool(row) and all("cpu-tensor" in each.tags for each in row or ())
    return frozenset({"cpu-tensor"}) if whole else NONE


def made(event: Event, tags: Marks, like: Value | None = None) -> Value:
    """Return a new tensor with these facts, and in main memory unless the call or what is around it says otherwise."""
    kept = tags - {"cpu-tensor"} | ({"cpu-tensor"} if _on_cpu(event) else NONE)
    if like is None:
        return Value(made=frozenset({event.name}), tags=kept)
    return Value(made=frozenset({event.name}), tags=kept, constants=like.constants, sure=like.sure, of=like.of)


def _on_cpu(event: Event) -> bool:
    """Return whether a new tensor is in main memory."""
    given = event.arg("device")
    if given is not None:
        return given.single() == "cpu"
    # `torch.as_tensor(t)` is where t is.
    there = event.last == "as_tensor" and any(arg.tags & _PLACED for arg in event.args[:1])
    return not there and "**" not in event.keywords and not any("device" in name for name in event.contexts)
