"""What an interpreted script does: calls in the order in which they run, with the conditions under which they run."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Literal

from trainwright.sagemaker.distribution import Launcher
from trainwright.script.known import role
from trainwright.script.reader import Module
from trainwright.script.values import Code, Value

# one: only the first process; host: the first of each host; others: all but these; ranks: depends on the rank in
# another way; dp: one process of each data-parallel group; rdp: of each group whose processes have the same part of
# the model; world: whether there are several processes; own: what
# the process computed from its own share of the data; clock: its own time; flag: an argument; error: an exception;
# other: anything else.
Reach = Literal["one", "host", "others", "ranks", "dp", "rdp", "world", "own", "clock", "flag", "error", "other"]
OF_RANK: frozenset[str] = frozenset({"one", "host", "others", "ranks"})
LAUNCHED: frozenset[str] = frozenset({"torchrun", "mpi", "smddp", "xla"})


@dataclass(frozen=True)
class JobStart:
    """How the job starts the script; None where the job file does not say so.

    Attributes:
        launcher: what starts it.
        hosts: number of instances that train together.
        per_host: processes on each.
        gpus: GPUs of each.
        hyperparameters: what the job passes as arguments.
        environment: what the job adds to the environment, and the script with a value that is known.
        kept: of the environment, what the script has not set again.
        instances: number of all instances.
    """

    launcher: Launcher | None = None
    hosts: int | None = None
    per_host: int | None = None
    gpus: int | None = None
    hyperparameters: dict[str, object] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    instances: int | None = None

    @property
    def processes(self) -> int | None:
        """Processes of the whole job."""
        return self.hosts * self.per_host if self.hosts is not None and self.per_host is not None else None

    @property
    def launched(self) -> bool:
        """Whether a launcher starts one process per GPU."""
        return self.launcher in LAUNCHED


@dataclass(frozen=True, eq=False, slots=True)
class Guard:
    """A condition under which code runs, and its side: True in the ``if`` branch.

    ``chosen``: an argument or something unknown decides as well, as in ``args.wandb and rank == 0``. ``default``: what
    the condition is where neither a hyperparameter nor a variable changes a default. ``local``: it tells the processes
    of a host apart, as in ``local_rank != 0``.
    """

    kind: Reach
    node: ast.expr
    side: bool
    chosen: bool = False
    default: bool | None = None
    local: bool = False

    @property
    def off(self) -> bool:
        """Whether the code runs only if a hyperparameter or variable changes a default."""
        return self.default is not None and self.default is not self.side


@dataclass(frozen=True, eq=False, slots=True)
class Exit:
    """A place where code leaves a loop early: ``break``, ``continue``, or ``return`` from within it.

    Attributes:
        kind: which of them.
        node: its place.
        module: its file.
        guards: the conditions around it.
        loops: the loops that it leaves (``continue``: whose pass it ends), innermost last.
        order: how many calls were made before it.
        detached: the interpreter did not see who calls the function.
    """

    kind: Literal["break", "continue", "return"]
    node: ast.stmt
    module: Module
    guards: tuple[Guard, ...]
    loops: tuple[ast.AST, ...]
    order: int
    detached: bool


@dataclass(frozen=True, eq=False, slots=True)
class Replacement:
    """A layer that is put into a model, or an optimizer that takes the place of another.

    Attributes:
        module: its file.
        node: the place that gets it.
        value: what is put there.
        into: the model, or the optimizer that was there before.
        guards: the conditions around it.
        order: how many calls were made before it.
    """

    module: Module
    node: ast.Name | ast.Attribute | ast.Subscript
    value: Value
    into: Value
    guards: tuple[Guard, ...]
    order: int


@dataclass(eq=False, slots=True)
class Event:
    """A call.

    Attributes:
        name: the function with everything resolved: ``torch.save``, ``torch.optim.SGD.step``; ``?.step`` of an unknown.
        node: its place.
        module: its file.
        args: the positional arguments.
        keywords: the named ones; ``**`` for those of an unpacked mapping.
        receiver: the object whose method is called.
        guards: the conditions around it, also those of its callers.
        loops: the loops around it, outermost first, also those of its callers.
        stack: the functions around it, outermost first.
        contexts: the ``with`` blocks around it.
        detached: the interpreter did not see who calls the function.
        result: what it returns.
        later: of what it returns, attributes that are set afterwards, with the place.
        model: the model that is called.
        called: what is called, if that is no library's function: a layer, a loss, a function of the script.
        over: what the innermost loop around it goes over.
        role: what the function is to a training script (:func:`trainwright.script.known.role`).
        last: ``save`` of ``torch.save``.
    """

    name: str
    node: ast.Call
    module: Module
    args: list[Value]
    keywords: dict[str, Value]
    receiver: Value | None
    guards: tuple[Guard, ...]
    loops: tuple[ast.AST, ...]
    stack: tuple[Code, ...]
    contexts: tuple[str, ...]
    detached: bool
    order: int
    role: str = field(init=False)
    last: str = field(init=False)
    result: Value = field(default_factory=Value)
    later: dict[str, ast.expr] = field(default_factory=dict)
    model: Value | None = None
    called: Value | None = None
    over: Value | None = None

    def __post_init__(self) -> None:
        self.role = role(self.name)
        self.last = self.name.rpartition(".")[2]

    def again(self, name: str, args: list[Value], keywords: dict[str, Value], order: int) -> Event:
        """Return another call at the same place."""
        around = (self.guards, self.loops, self.stack, self.contexts, self.detached)
        return Event(name, self.node, self.module, args, keywords, None, *around, order)

    @property
    def opened(self) -> bool:
        """Whether it gets a mapping whose keys are not all known, so that it may have other arguments."""
        given = self.keywords.get("**")
        return given is not None and (given.attrs is None or "**" in given.attrs)

    @property
    def line(self) -> int:
        """The line number."""
        return self.node.lineno

    @property
    def text(self) -> str:
        """The call as it is written, or its beginning."""
        return ast.unparse(self.node)[:60]

    @property
    def target(self) -> str:
        """What is assigned the result, as it is written; empty if nothing is."""
        around = self.module.parents.get(self.node)
        return ast.unparse(around.targets[0]) if isinstance(around, ast.Assign) else ""

    def arg(self, keyword: str, position: int | None = None) -> Value | None:
        """Return the argument with this name or position; None if it is not given."""
        if keyword in self.keywords:
            return self.keywords[keyword]
        if position is not None and position < len(self.args):
            starred = any(isinstance(a, ast.Starred) for a in self.node.args[: position + 1])
            return None if starred else self.args[position]
        return None

    def excludes(self, other: Event) -> bool:
        """Return whether the two calls are on different sides of a condition, or of two that say the opposite."""
        sides = {guard.node: guard.side for guard in self.guards}
        if any(sides.get(guard.node, guard.side) is not guard.side for guard in other.guards):
            return True
        told = _told(other.guards) if self.guards else {}
        return any(told.get(text, side) is not side for text, side in _told(self.guards).items())

    def under(self, *kinds: Reach) -> Guard | None:
        """Return a condition of one of these kinds around the call."""
        return next((guard for guard in self.guards if guard.kind in kinds), None)

    @property
    def off(self) -> Guard | None:
        """A condition because of which it runs only if a hyperparameter or variable changes a default."""
        return next((guard for guard in self.guards if guard.off), None)

    @property
    def by_rank(self) -> Guard | None:
        """A condition because of which only some processes make the call."""
        return next((guard for guard in self.guards if guard.kind in OF_RANK), None)


def _told(guards: tuple[Guard, ...]) -> dict[str, bool]:
    """Return what conditions say of attributes: of ``args.amp and not args.bf16``, that one is true and one false.

    Plain names may have another value elsewhere, and calls another result.
    """
    told: dict[str, bool] = {}
    todo = [(guard.node, guard.side) for guard in reversed(guards)]  # the innermost of two that say the opposite counts
    while todo:
        node, side = todo.pop()
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            todo.append((node.operand, not side))
        elif isinstance(node, ast.BoolOp) and side is isinstance(node.op, ast.And):
            todo += [(each, side) for each in node.values]
        elif isinstance(node, ast.Attribute):
            told[ast.unparse(node)] = side
    return told
