"""What every process must have alike: the same split of the data, and the same parameters in training."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.data import SEEDS
from trainwright.script.events import Event
from trainwright.script.known import DDP
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at
from trainwright.script.values import within

SPLIT = Rule(
    code="TW436",
    severity="warning",
    title="each process splits the data by its own chance, so that some of them train on what others validate on",
    source="PyTorch's documentation of random_split: a fixed generator makes the split reproducible; "
    "scikit-learn's and datasets' of train_test_split: random_state and seed, which are None",
    remedy="random_split(…, generator=torch.Generator().manual_seed(0)), train_test_split(…, random_state=0) or "
    "seed=0; or seed every process alike before it.",
)
FROZEN = Rule(
    code="TW437",
    severity="error",
    title="parameters are frozen or freed after DistributedDataParallel has taken the model",
    source="PyTorch's documentation of DistributedDataParallel: it registers the parameters that require a gradient "
    "when it is made; to change requires_grad afterwards is not supported",
    remedy="Set requires_grad on the model itself, then wrap it.",
)
RULES = (SPLIT, FROZEN)
# What sets the chance, as its last part or in its name.
_SEEDED = "seed_all|set_.*seed|seed_every|init_seed|^seed$|deterministic|reproducib"
_TORCH_SEEDS = ("torch.manual_seed", "torch.random.manual_seed")
# Functions of libraries that seed Python, NumPy and PyTorch at once.
_ALL_CHANCES = ("set_seed", "seed_everything")
# Lightning calls it in one process of each host, and nothing that it makes is kept.
_ONCE = ("prepare_data",)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or not code.several:
        return
    yield from _split(code)
    yield from _frozen(code)


def _split(code: ScriptFacts) -> Iterator[Finding]:
    """Report a random split without a seed where nothing in the script seeds the processes alike."""
    if not code.cooperates:
        return
    for event in code.ran("random_split", "train_test_split"):
        if event.by_rank is not None or any(function.name in _ONCE for function in event.stack):
            continue
        if not event.name.startswith(("torch.", "sklearn.", "datasets.")) or _fixed(event):
            continue
        own = own_seed(code, event, _TORCH_SEEDS if event.name[:6] == "torch." else ("numpy.random.seed",))
        if own is None and seeded(code):
            continue
        why = "without a seed"
        if own is not None:
            why = f"after `{ast.unparse(own.node)[:50]}` in line {own.line}, which seeds each process differently"
        yield at(SPLIT, event, f"`{ast.unparse(event.node)[:50]}` {why}")
        return


def seeded(code: ScriptFacts) -> bool:
    """Return whether anything in the script seems to set the chance."""
    return code.mentions(*SEEDS) or code.mentions_like(_SEEDED)


def own_seed(code: ScriptFacts, drawn: Event, library: tuple[str, ...] = _TORCH_SEEDS) -> Event | None:
    """Return the call that gives each process a chance of its own, if it is the last that seeds what a call draws."""
    seeds = [
        event
        for event in code.ran("manual_seed", "seed", "set_seed", "seed_everything", live=True)
        if event.order < drawn.order
        and (event.name in library or (event.last in _ALL_CHANCES and not event.name.startswith(("script.", "?"))))
    ]
    if not seeds or seeds[-1].by_rank is not None:
        return None
    own = seeds[-1].arg("device_specific", 1)
    by_rank = any(value.tags & {"rank", "local_rank"} for value in seeds[-1].args)
    if any(isinstance(node, ast.Sub) for node in ast.walk(seeds[-1].node)):
        return None  # the rank may have been added before
    return seeds[-1] if by_rank or (own is not None and own.single() is True) else None


def _fixed(event: Event) -> bool:
    """Return whether the arguments decide how a split comes out, or might."""
    if event.opened:
        return True
    given = [event.arg(name) for name in ("generator", "random_state", "seed")]
    given.append(event.arg("generator", 2) if event.last == "random_split" else None)
    if any(value is not None and not value.may_be(None) for value in given):
        return True
    shuffle = event.arg("shuffle")
    return shuffle is not None and not shuffle.may_be(True)


def _frozen(code: ScriptFacts) -> Iterator[Finding]:
    """Report parameters of a wrapped model whose ``requires_grad`` is set though the model is trained as it was taken.

    One whole model that is frozen is a teacher. A loop that frees and freezes in turn, as for GANs, has other means.
    """
    wraps = [e for e in code.wrapped_events if DDP.search(e.name) and not e.detached]
    changes = [
        (event, change, wrap, whole)
        for event in code.ran("parameters", "named_parameters", "requires_grad_", live=True)
        for change in ([event.node] if event.last == "requires_grad_" else _changed(event))
        for wrap, whole in _taken(event, wraps)
    ]
    turns = any(event.loops and _set_to(change, event) is not True for event, change, _, _ in changes)
    for event, change, wrap, whole in changes:
        if (whole and not _chosen(change, event)) or (event.loops and turns):
            continue
        above = event.stack[-1:] == wrap.stack[-1:] and event.line < wrap.line
        if above and not set(event.loops) & set(wrap.loops):
            continue  # the function runs twice
        unused = wrap.arg("find_unused_parameters")
        if unused is not None and not unused.may_be(False) and _set_to(change, event) is False:
            continue  # it asks in every step which parameters have a gradient
        what = f"`{ast.unparse(change)[:50]}` after `{ast.unparse(wrap.node)[:40]}` in line {wrap.line}"
        yield at(FROZEN, (event.module, change), what)
        return


def _taken(event: Event, wraps: list[Event]) -> Iterator[tuple[Event, bool]]:
    """Yield the wrapper that has the model of a call, if it is the last one, and whether the call is for all of it."""
    last = all(wrap.order < event.order and not _again(wrap, event) for wrap in wraps)
    for wrap in wraps[-1:] if last else ():
        model = wrap.args[0] if wrap.args else wrap.arg("module")
        inner, whole = event.receiver, True
        while inner is not None:
            if inner is wrap.result or (model is not None and inner is model):
                yield wrap, whole
                break
            inner, whole = inner.of, False
        else:
            if model is not None and model.instance and within(event.receiver, model):
                yield wrap, False


def _again(wrap: Event, event: Event) -> bool:
    """Return whether a function that wraps the model is called once more afterwards."""
    names = {each.name for each in wrap.stack if each not in event.stack}
    later = (n for n in event.module.nodes if isinstance(n, ast.Call) and n.lineno > event.line)
    return any(ast.unparse(call.func) in names for call in later)


def _loop_over(event: Event) -> ast.For | None:
    """Return the ``for`` loop that iterates over the result of a call, if any."""
    child: ast.AST = event.node
    while not isinstance(child, ast.stmt):
        parent = event.module.parents[child]
        if isinstance(parent, ast.For) and child is parent.iter:
            return parent
        child = parent
    return None


def _changed(event: Event) -> list[ast.AST]:
    """Return where a loop over these parameters sets ``requires_grad`` of one."""
    found: list[ast.AST] = []
    loop = _loop_over(event)
    names = _names(loop)
    for each in (inner for statement in (loop.body if loop else ()) for inner in ast.walk(statement)):
        if isinstance(each, ast.Assign):
            targets = [t for t in each.targets if isinstance(t, ast.Attribute) and t.attr == "requires_grad"]
            if any(isinstance(t.value, ast.Name) and t.value.id in names for t in targets):
                found.append(each)
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
            owner = each.func.value
            if each.func.attr == "requires_grad_" and isinstance(owner, ast.Name) and owner.id in names:
                found.append(each)
    return found


def _names(loop: ast.For | None) -> set[str]:
    """Return the names of the loop variables."""
    return {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)} if loop else set()


def _value(change: ast.AST) -> ast.expr | None:
    """Return what ``requires_grad`` is set to; None where a call takes the default, True."""
    if isinstance(change, ast.Assign):
        return change.value
    assert isinstance(change, ast.Call)
    return next(iter((*change.args, *(each.value for each in change.keywords))), None)


def _chosen(change: ast.AST, event: Event) -> bool:
    """Return whether only some parameters of those in the loop are changed, or each to what its name says."""
    loop, value = _loop_over(event), _value(change)
    if loop is None:
        return False
    names = _names(loop)
    if value is not None and any(isinstance(e, ast.Name) and e.id in names for e in ast.walk(value)):
        return True
    return any(isinstance(n, ast.If) and any(each is change for each in ast.walk(n)) for n in ast.walk(loop))


def _set_to(change: ast.AST, event: Event) -> object:
    """Return the constant that ``requires_grad`` is set to; Ellipsis if it is not one.

    An argument is what the function is called with in a loop, if that is the same in all of them.
    """
    value = _value(change)
    if value is None:
        return True
    owner = event.stack[-1].node if event.stack else None
    if isinstance(value, ast.Name) and isinstance(owner, ast.FunctionDef):
        place = next((i for i, each in enumerate(owner.args.args) if each.arg == value.id), None)
        calls = [n for n in event.module.nodes if isinstance(n, ast.Call) and ast.unparse(n.func) == owner.name]
        looped = [n for n in calls if any(isinstance(a, ast.For | ast.While) for a in ancestors(event.module, n))]
        given = {ast.unparse(n.args[place]) for n in looped if place is not None and len(n.args) > place}
        return given == {"True"} if given in ({"True"}, {"False"}) else ...
    return value.value if isinstance(value, ast.Constant) else ...
