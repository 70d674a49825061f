"""The state of the abstract interpreter: its place in a script, what it has recorded, and access to parts of values."""

from __future__ import annotations

import ast
import re

from trainwright.script import paths
from trainwright.script.events import Event, Exit, Guard, JobStart, Replacement
from trainwright.script.known import LIGHTNING, role, said
from trainwright.script.reader import Module
from trainwright.script.values import FLOWS, NONE, Code, Value, covers, join, merge, of_several

# Of what super() returns: the bases of the class whose method runs.
DERIVED = "(bases)"
# A condition that holds in every job on GPUs.
_HAS_GPU = re.compile(r"cuda|gpu", re.I)
_PATH_PARTS = ("parent", "stem", "absolute", "as_posix")
# What Lightning's objects have.
_PARTS = {"trainer": "lightning.Trainer", "strategy": "lightning.Strategy"}


class AbstractState:
    """The state of an interpreter, as the models of libraries see it; :class:`calls.Calls` adds calls.

    Args:
        launch: how the job starts the script.
    """

    def __init__(self, launch: JobStart) -> None:
        self.launch = launch
        self.events: list[Event] = []
        self.exits: list[Exit] = []
        # How many of the loops are around the function that runs.
        self.outside = 0
        self.module: Module
        self.module = None  # type: ignore[assignment]
        self.guards: tuple[Guard, ...] = ()
        self.loops: tuple[ast.AST, ...] = ()
        self.contexts: tuple[str, ...] = ()
        self.stack: tuple[Code, ...] = ()
        self.shared: set[tuple[int, str]] = set()
        self.arguments: dict[str, Value] = {}
        # Objects of the script's classes whose ``__init__`` runs, and those whose methods run.
        self.building: list[Value] = []
        self.selves: list[Value | None] = []
        self.detached = False
        self.cut = False
        self.depth = 0
        self.fuel = 120_000
        # What each loop of the script iterates over.
        self.iterated: dict[ast.AST, Value] = {}
        # Values of the environment that are used as numbers or lists: file, place, variable.
        self.misused: list[tuple[Module, ast.expr, str]] = []
        # Where a sum over one process's share is divided by the length of all data.
        self.fractions: list[tuple[Module, ast.BinOp]] = []
        # Where a number is divided by the number of one host's GPUs.
        self.quotients: list[tuple[Module, ast.BinOp]] = []
        # Functions that are used without a call, as a condition or in a comparison: file, place.
        self.uncalled: list[tuple[Module, ast.expr]] = []
        # Loops, and attributes that are set, for which the process's own clock decides: file, place.
        self.clocked: list[tuple[Module, ast.While | ast.Attribute]] = []
        # Loops that each process ends by what it computed from its own share of the data: file, place.
        self.own_loops: list[tuple[Module, ast.While]] = []
        # Layers that are put into a model, and optimizers that take the place of others.
        self.replacements: list[Replacement] = []
        # What is asked of a wrapper, though only the model in it has it: file, place, conditions.
        self.covered: list[tuple[Module, ast.Attribute, tuple[Guard, ...]]] = []
        # Names that only some processes have, by scope, with the value that they got there and the condition.
        self.unset: dict[tuple[int, str], tuple[Value, Guard]] = {}
        # Where other processes read such a name: file, place, condition.
        self.missing: list[tuple[Module, ast.Name, Guard]] = []
        # Where variables of the environment are read though no condition is open, so that the job comes there.
        self.reached: set[ast.AST] = set()
        # Libraries that are imported, with the conditions.
        self.imported: list[tuple[str, tuple[Guard, ...]]] = []
        # Reads of environment variables that must be set: file, place, name.
        self.needed: list[tuple[Module, ast.expr, str]] = []
        # Number of enclosing ``try`` statements with handlers.
        self.tried = 0
        # Attributes that are set under conditions: where, name, what was there before.
        self.set_there: list[tuple[dict[str, Value], str, Value | None]] = []

    def call_code(self, code: Code, args: list[Value], keywords: dict[str, Value], bound: Value | None) -> Value:
        """Run a function of the script."""
        raise NotImplementedError

    def call(
        self, node: ast.Call, called: Value, base: Value | None, args: list[Value], keywords: dict[str, Value]
    ) -> Value:
        """Record a call, and return what is known of its result."""
        raise NotImplementedError

    def made_since(self, start: int) -> list[Value]:
        """Return what the calls made after the first ``start`` of them, with the parts of it."""
        return [value for e in self.events[start:] for value in (e.result, *(e.result.items or ()))]

    def attribute(self, base: Value, name: str, node: ast.Attribute | None = None) -> Value:
        """Return what is known of an attribute, which is read at a node."""
        if base.attrs is not None and name in base.attrs:
            return base.attrs[name]
        if base.code is not None:
            if isinstance(base.code.node, ast.Module):
                found = base.code.scope.names.get(name)
                return found if found is not None else Value(name=f"{base.name}.{name}")
            method = base.code.method(name)
            if method is not None:
                if "property" in method.decorators or "functools.cached_property" in method.decorators:
                    return self.call_code(method, [], {}, base)
                if "classmethod" in method.decorators:
                    return Value(code=method, of=Value(code=base.code))
                return Value(code=method, of=base if base.instance else None)
            if name in base.code.fields:
                return join(base.code.fields[name], Value()) if of_several(base) else base.code.fields[name]
        if base.attrs is not None and DERIVED in base.attrs:
            bases = base.attrs[DERIVED].items or ()
            inner = (each.code.method(name) for each in bases if each.code is not None)
            method = next((code for code in inner if code is not None), None)
            return Value(code=method, of=base.of) if method is not None else Value()
        if base.name:
            whole = f"{base.name}.{name}"
            return Value(name=whole)
        if name in _PARTS and (part := _part(base, name)):
            return Value(made=frozenset({part}), of=base)
        for made in sorted(base.made):
            known = role(f"{made}.{name}")
            if known and known not in ("collective", "group"):
                return Value(tags=frozenset({known}), of=base)
        if name == "module" and "model" in base.tags and base.of is not None:
            return base.of
        if node is not None and not self.detached and covers(base, name):
            self.covered.append((self.module, node, self.guards))
        if name == "dataset" and "loader" in base.tags and base.of is not None:
            base.of.tags |= {"dataset"}
            return base.of
        if name == "sampler" and "loader" in base.tags:
            maker = next((event for event in reversed(self.events) if event.result is base), None)
            sampler = maker.arg("sampler", 3) if maker is not None else None
            if sampler is not None:
                return sampler
        if name == "grad":
            return Value(tags=frozenset({"grad"}), of=base)
        flows = base.tags & FLOWS if name not in ("shape", "ndim", "dtype", "device") else NONE
        extra = {"root:" + tag[5:] for tag in base.tags if tag.startswith("root:")} if name in _PATH_PARTS else set()
        extra |= {"detached"} if name == "data" else set()
        if name == "parent" and base.constants is not None:
            return paths.folder(base)
        return Value(tags=flows | extra | set(said(name)), of=base)

    def put_back(self, mark: int) -> list[tuple[dict[str, Value], str, Value]]:
        """Take back the attributes that one side of a condition has set; the other side does not see them."""
        latest: dict[tuple[int, str], tuple[dict[str, Value], str, Value]] = {}
        for attrs, name, there in reversed(self.set_there[mark:]):
            if name in attrs:
                latest.setdefault((id(attrs), name), (attrs, name, attrs[name]))
            if there is not None:
                attrs[name] = there
            else:
                attrs.pop(name, None)
        return list(latest.values())

    def put_again(self, taken: list[tuple[dict[str, Value], str, Value]], mark: int) -> None:
        """Set what :meth:`put_back` has taken, beside what the other side has set since ``mark``."""
        since = {(id(attrs), name) for attrs, name, _ in self.set_there[mark:]}
        for attrs, name, value in taken:
            attrs[name] = join(attrs[name], value) if (id(attrs), name) in since and name in attrs else value

    def each(self, value: Value) -> Value:
        """Return what is known of the elements of something that is iterated over."""
        if value.attrs is not None and "element" in value.attrs:
            return value.attrs["element"]
        if value.items is not None and "element" not in value.tags:
            return merge(value.items)
        return Value(tags=value.tags & (FLOWS | {"params"}), of=value.of)

    def put(self, mapping: Value, key: str, value: Value) -> None:
        """Set a value of a mapping; under a condition it may also be another, or none."""
        attrs = mapping.attrs or {}
        around = self.guards[len(self.guards) - self.depth :]
        if not all(_HAS_GPU.search(ast.unparse(guard.node)) for guard in around):
            value = value.with_tags("sometimes")
        mapping.attrs = {**attrs, key: value}


def _part(base: Value, name: str) -> str:
    return _PARTS[name] if any(made.startswith(LIGHTNING) for made in base.made) else ""
