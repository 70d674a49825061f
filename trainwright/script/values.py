"""What is known of a value in a script: what made it, which constants it may be, which facts it carries along.

A tag is a fact that survives assignments, conversions and calls. ``rank``, ``local_rank``, ``host_rank`` and
``dp_rank`` say which number identifies the process; ``zero:rank`` is a condition that is true in one process only
(``zero:local``: in one of each host); ``root:model`` is a path below SM_MODEL_DIR; ``ddp``, ``fsdp``, ``smp`` … is a
model that was wrapped; ``own`` was computed from this process's share of the data, and no collective has joined it with
those of the others (``graphless``: where no graph is kept, ``mean-of-own``: and divided by the size of the share,
``measured``: both);
``of-root`` was reduced or gathered to one process, and is unfinished in the others; ``cpu-tensor`` is a tensor in main
memory; ``as:softmax`` are probabilities; ``share-length`` counts the batches of a loader that Accelerate has divided,
``all-batches`` those that all samples of a data set make, ``own-batches`` those of a process's own loader, and
``divided-twice`` is their number divided by that of the processes;
``unequal`` is a process's share of a list of ``files``, or what is read from it, of which another process may have more
(not of one that was ``trimmed`` before), ``ragged`` any list of which processes have shares that may differ by one, and
what is as long; ``played`` comes from an environment of the process's own; ``clock`` is a time of the
process's own clock, or follows from one;
``detached`` has no graph for backward; ``empty-elsewhere`` is a state of which other processes than the first get
nothing, and its length.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainwright.script.reader import Module

Marks = frozenset[str]
NONE: Marks = frozenset()
# Which process this is. A value made of such a value still tells processes apart.
IDENTITY: Marks = frozenset({"rank", "local_rank", "host_rank", "dp_rank", "rdp_rank", "random"})
# What a loss or an output inherits from the model and the tensors that it was computed from.
FLOWS: Marks = frozenset(
    {
        "out",
        "known-out",
        "grad",
        "scaled",
        "sharded",
        "wrapped-out",
        "on-device",
        "ddp",
        "fsdp",
        "fsdp2",
        "partial",
        "state",
        "own",
        "played",
        "mean-of-own",
        "measured",
        "graphless",
        "of-root",
        "clock",
        "share-length",
        "all-batches",
        "own-batches",
        "divided-twice",
        "files",
        "trimmed",
        "unequal",
    }
)
# Of what is ``own``: a mean over the share, and that it was taken where no graph is kept.
MEANS: Marks = frozenset({"mean-of-own", "measured"})
# By what a process may decide otherwise than the others.
BY_ITSELF: Marks = frozenset({"own", "played", "clock"})
# A layer, or a row of them, that ends with a softmax or a sigmoid, and what it makes.
ENDS: Marks = frozenset({"ends:softmax", "ends:sigmoid"})
SQUASHED: Marks = frozenset({"as:softmax", "as:sigmoid"})
# A variable's text that stands for a number or a list; where the other value is one, nothing is known of both.
TEXT: Marks = frozenset({"number", "json"})
WRAPPERS: Marks = frozenset({"ddp", "fsdp", "smp", "hvd", "deepspeed", "accelerate", "dp", "mirrored", "lightning"})
# Wrappers that hide the methods of the model in them.
_AROUND = ("ddp", "dp", "accelerate")
# What DistributedDataParallel has itself (torch/nn/parallel/distributed.py), and every module.
_OWN = frozenset(
    [
        *("module", "device", "device_type", "dim", "logger", "device_ids", "output_device", "process_group"),
        *("reducer", "join", "no_sync", "training", "forward", "train", "eval", "to", "cpu", "cuda", "half", "float"),
        *("double", "type", "bfloat16", "apply", "compile", "zero_grad", "add_module", "extra_repr", "share_memory"),
        *("parameters", "buffers", "modules", "children", "state_dict", "load_state_dict", "requires_grad_"),
        *("get_parameter", "get_buffer", "get_submodule", "get_extra_state", "set_submodule", "set_extra_state"),
        "to_empty",
    ]
)
MOST_CONSTANTS = 6
# Of so many known items, each is followed.
MOST_ITEMS = 4


@dataclass(eq=False, slots=True)
class Code:
    """A function, class or module of the script.

    Attributes:
        module: its file.
        node: its syntax tree.
        decorators: the dotted names of its decorators.
        bases: for a class, its bases.
        scope: the names that it can see: of the functions around it, and of its module.
        methods: for a class, its functions.
        fields: for a class, its other names.
        runs: how often it was run.
        owner: of a method, its class.
        made: of a class, an instance.
        alias: of the function that a decorator makes of another, the name of that one.
        registered: a decorator may have kept the function, and call it.
    """

    module: Module
    node: ast.AST
    scope: Scope
    decorators: tuple[str, ...] = ()
    bases: tuple[Value, ...] = ()
    methods: dict[str, Code] = field(default_factory=dict)
    fields: dict[str, Value] = field(default_factory=dict)
    runs: int = 0
    owner: Code | None = None
    made: Value | None = None
    alias: str = ""
    registered: bool = False

    @property
    def name(self) -> str:
        """The name in the script."""
        return str(getattr(self.node, "name", "<lambda>"))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters that a call fills by place, without the object of a method."""
        if not isinstance(self.node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return ()
        listed = (*self.node.args.posonlyargs, *self.node.args.args)
        return tuple(each.arg for each in listed if each.arg not in ("self", "cls"))

    def method(self, name: str) -> Code | None:
        """The function of a class or of its bases in the script."""
        if name in self.methods:
            return self.methods[name]
        inner = (base.code.method(name) for base in self.bases if base.code is not None)
        return next((code for code in inner if code is not None), None)

    def origins(self) -> Iterable[str]:
        """The libraries' classes that a class is derived from."""
        for base in self.bases:
            if base.code is not None:
                yield from base.code.origins()
            elif base.name:
                yield base.name


class Scope:
    """Names and values of a function or module, and the scope around it."""

    __slots__ = ("names", "outer")

    def __init__(self, outer: Scope | None = None) -> None:
        self.names: dict[str, Value] = {}
        self.outer = outer

    def get(self, name: str) -> Value | None:
        """Return the value of a name; None if it is not known here or further out."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None


@dataclass(eq=False, slots=True)
class Value:
    """A value.

    Attributes:
        name: the library's thing that this is: ``torch.save``.
        made: what made it, if it is something's result: ``torch.optim.SGD``.
        tags: facts that it carries.
        constants: everything that it may be, if that is known.
        sure: it is one of the constants for certain in this job, not just by default.
        items: of a tuple, list or dict's values.
        attrs: of an object.
        code: of the script: a function, a class, an instance's class, a module.
        of: the object that it belongs to or was made from: ``model`` of ``model.parameters()``.
        instance: it is an instance of ``code``.
        sources: of a sum, product or the like, what it was computed from.
    """

    name: str = ""
    made: Marks = NONE
    tags: Marks = NONE
    constants: tuple[object, ...] | None = None
    sure: bool = False
    items: tuple[Value, ...] | None = None
    attrs: dict[str, Value] | None = None
    code: Code | None = None
    of: Value | None = None
    instance: bool = False
    sources: tuple[Value, ...] = ()

    def made_by(self, *names: str) -> bool:
        """Return whether one of these names (whole, or their last part) may have made it."""
        return any(made == name or made.rpartition(".")[2] == name for made in self.made for name in names)

    def made_like(self, ending: str) -> bool:
        """Return whether something whose name ends so may have made it: ``Trainer`` of ``Seq2SeqTrainer``."""
        return any(made.endswith(ending) for made in self.made)

    def part_of(self, *names: str) -> bool:
        """Return whether it, or what it is a part of, was made by one of these names."""
        outer: Value | None = self
        while outer is not None and not outer.made_by(*names):
            outer = outer.of
        return outer is not None

    def single(self) -> object:
        """Return the constant that it is, if there is one; else Ellipsis."""
        return self.constants[0] if self.constants is not None and len(self.constants) == 1 else ...

    def may_be(self, constant: object) -> bool:
        """Return whether it may be this constant, as far as constants are known."""
        return self.constants is not None and any(type(c) is type(constant) and c == constant for c in self.constants)

    def with_tags(self, *tags: str) -> Value:
        """Return a copy that carries more facts."""
        return self._with(self.tags | set(tags))

    def without_tags(self, *tags: str) -> Value:
        """Return a copy that lacks these facts."""
        return self._with(self.tags - set(tags))

    def _with(self, tags: Marks) -> Value:
        return Value(
            self.name,
            self.made,
            tags,
            self.constants,
            self.sure,
            self.items,
            self.attrs,
            self.code,
            self.of,
            self.instance,
            self.sources,
        )


def graphless(contexts: Iterable[str]) -> Marks:
    """Return the fact of what is computed in these contexts, if they keep no graph."""
    kept = not any("no_grad" in name or "inference_mode" in name for name in contexts)
    return NONE if kept else frozenset({"graphless"})


def mean_of_own(total: Value, contexts: Iterable[str]) -> Marks:
    """Return the facts of a mean over a process's own share that is taken of a total in these contexts."""
    return MEANS if "graphless" in total.tags | graphless(contexts) else MEANS - {"measured"}


def covers(wrapper: Value, name: str) -> bool:
    """Return whether a value is a model in DistributedDataParallel alone, and only the model itself has a name."""
    model = wrapper.of
    if model is None or not model.instance or model.code is None or wrapper.made == NONE or len(wrapper.made) > 1:
        return False
    if not wrapper.made_by("DistributedDataParallel") or "ddp" not in wrapper.tags or name in _OWN:
        return False
    own = name in (model.attrs or {}) or model.code.method(name) is not None
    return own and not name.startswith(("_", "named_", "register_"))


def within(value: Value | None, whole: Value, depth: int = 3) -> bool:
    """Return whether a value is another one, or a part of it: of its attributes, or made from it."""
    inner = value
    while inner is not None and inner is not whole:
        inner = inner.of
    parts = (whole.attrs or {}).values() if inner is None and depth else ()
    return inner is whole or any(value is not None and within(value, part, depth - 1) for part in parts)


def unknown(*tags: str) -> Value:
    """Return a value of which only some facts are known."""
    return Value(tags=frozenset(tags))


def constant(what: object, *tags: str, sure: bool = True) -> Value:
    """Return a constant."""
    return Value(tags=frozenset(tags), constants=(what,), sure=sure)


def join(first: Value, second: Value) -> Value:
    """Return what is known where a value is one of two."""
    if first is second:
        return first
    constants: tuple[object, ...] | None = None
    if first.constants is not None and second.constants is not None:
        known = list(first.constants)
        known += [c for c in second.constants if not any(type(c) is type(k) and c == k for k in known)]
        constants = tuple(known) if len(known) <= MOST_CONSTANTS else None
    tags = (first.tags | second.tags) - ((first.tags ^ second.tags) & (ENDS | SQUASHED | TEXT))
    if first.may_be(None) != second.may_be(None):
        tags |= {"maybe-none"}
    if "endless" in first.tags ^ second.tags:
        tags |= {"sometimes"}  # the condition may be whether it is for training
    items = first.items if second.items is None else second.items
    if items is not None and (first.items is None or second.items is None):
        items = tuple(each if each.constants is None else join(each, Value()) for each in items)
    if first.items is not None and second.items is not None:
        same = len(first.items) == len(second.items)
        items = tuple(map(join, first.items, second.items)) if same else (*first.items, *second.items)
    attrs = first.attrs if second.attrs is None else second.attrs
    if first.attrs is not None and second.attrs is not None and first.attrs is not second.attrs:
        attrs = {**first.attrs, **second.attrs}
        for key in first.attrs.keys() ^ second.attrs.keys():
            option = attrs[key].constants is not None or "sampler" in attrs[key].tags
            if option and first.code is None and second.code is None:
                attrs[key] = attrs[key].with_tags("sometimes")
    return Value(
        first.name or second.name,
        first.made | second.made,
        tags,
        constants,
        first.sure and second.sure and constants is not None and len(constants) == 1,
        items,
        attrs,
        first.code or second.code,
        first.of or second.of,
        first.instance or second.instance,
    )


def of_several(value: Value) -> bool:
    """Return whether an object may be an instance of several classes of the script, so that any of them may answer."""
    return value.instance and sum(each.startswith("script.") for each in value.made) > 1


def chosen(values: Sequence[Value], made: Collection[Value]) -> Value:
    """Return what is known of a value that a condition chooses; of a model and its wrapper, it is the model.

    ``model.module if hasattr(model, "module") else model`` takes the wrapper off where there is one. Where the wrapper
    is made in the branch itself (``model = DDP(model) if several else model``), it is put on.

    Args:
        values: at least one.
        made: what the branches make.
    """
    result = values[0]
    for value in values[1:]:
        for plain, other in ((result, value), (value, result)):
            if other.of is plain and other.tags.intersection(_AROUND) and not _among(other, made):
                result = join(plain, other.without_tags(*_AROUND))
                break
        else:
            result = join(result, value)
    return result


def _among(wrapper: Value, made: Collection[Value]) -> bool:
    """Return whether a wrapper, or one of two that a condition has joined, is among what branches make."""
    return any(each is wrapper or (each.made and each.made <= wrapper.made and each.of is wrapper.of) for each in made)


def for_one(there: Value, elsewhere: Value) -> None:
    """Mark what only the first process has: items of its list, or what its lambda returns."""
    for item in _held(there):
        if not any(item is each for each in _held(elsewhere)):
            item.tags |= {"only-one"}


def _held(value: Value) -> list[Value]:
    made = (value.attrs or {}).get("(returned)")
    return [*(value.items or ()), *([made] if made is not None else [])]


def merge(values: Iterable[Value]) -> Value:
    """Return what is known of a value that is one of several."""
    result: Value | None = None
    for value in values:
        result = value if result is None else join(result, value)
    return result if result is not None else Value()
