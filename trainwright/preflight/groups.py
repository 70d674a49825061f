"""Process groups: how long they last, which lists their collectives take, and that loops over them are equally long."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.collectives import collective
from trainwright.preflight.lockstep import DOCS, LEFT
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, conditions, enclosing_function, meant
from trainwright.script.values import Value

LISTS = Rule(
    code="TW441",
    severity="error",
    title="a list of tensors that does not fit the collective in this process",
    source="torch/distributed/distributed_c10d.py: gather_list must not be specified on other ranks than dst, nor "
    f"scatter_list on others than src (ValueError); {DOCS}: all_gather takes one tensor for each process of the group",
    remedy="gather_list=parts if rank == 0 else None; torch.zeros_like(t) for _ in range(dist.get_world_size())",
)
GONE = Rule(
    code="TW442",
    severity="error",
    title="a collective after the process group was destroyed",
    source=f"{DOCS}, destroy_process_group: afterwards the default process group has not been initialized (ValueError)",
    remedy="Call destroy_process_group() at the very end.",
)
SUBGROUP = Rule(
    code="TW449",
    severity="error",
    title="a group of processes is made beside the backend smddp, which has only one group",
    source="AWS guide for SageMaker's data parallel library, PyTorch: the smddp backend does not support creating "
    "subprocess groups with torch.distributed.new_group, nor other backends beside it",
    remedy="Use the default group; for more groups use the backend nccl.",
)
NOT_AWAITED = Rule(
    code="TW456",
    severity="error",
    title="the result of a collective is used, though nothing waits for it",
    source=f"{DOCS}, async_op: the call returns a work handle, and its output may be used after wait()",
    remedy="work = dist.all_reduce(tensor, async_op=True); …; work.wait()",
)
AVERAGED = Rule(
    code="TW529",
    severity="error",
    title="ReduceOp.AVG with a backend that cannot average",
    source=f"{DOCS}, ReduceOp: AVG is only available with the NCCL backend; of smddp, aws/amazon-sagemaker-examples "
    "#3967: RuntimeError: SMDDP does not support: ReduceOp; of XLA, pytorch/xla #7782: Invalid reduce op",
    remedy="op=dist.ReduceOp.SUM, then tensor /= dist.get_world_size()",
)
OWN_GROUP = Rule(
    code="TW591",
    severity="error",
    title="each process creates only its own process group",
    source=f"{DOCS}, new_group: all processes enter it, members or not, and make all groups in the same "
    "order, unless use_local_synchronization=True; pytorch/pytorch #25390, #130102",
    remedy="for ranks in all_groups: group = dist.new_group(ranks); mine = group if rank in ranks else mine",
)
RULES = (NOT_AWAITED, SUBGROUP, LISTS, GONE, AVERAGED, OWN_GROUP)
# What tells which process this is: also the number of its host, if there are several.
_WHICH = frozenset({"rank", "local_rank", "host_rank"})


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or not code.several:
        return
    yield from _lists(code)
    yield from _lengths(code)
    yield from _gone(code)
    yield from _begun_apart(code)
    yield from _subgroups(code)
    yield from _own_groups(code)
    yield from _not_awaited(code)
    yield from _averaged(code)


def _backends(code: ScriptFacts) -> list[Value | None]:
    """Return the backend of each process group that is the default one."""
    groups = (e for e in code.roles("group") if e.last == "init_process_group" and not e.detached)
    return [event.arg("backend", 0) for event in groups]


def _averaged(code: ScriptFacts) -> Iterator[Finding]:
    """Report an average over the default group, where its backend can only add."""
    named = [b.single() if b is not None and code.decided(b) else ... for b in _backends(code)]
    if not named or any(name not in ("smddp", "gloo", "mpi", "xla") for name in named):
        return
    for event in code.roles("collective"):
        own = event.name.startswith("torch.distributed.") and not event.detached and event.arg("group") is None
        if own and any(ast.unparse(k.value).endswith("ReduceOp.AVG") for k in event.node.keywords if k.arg == "op"):
            yield at(AVERAGED, event, f"`{_text(event.node)}` with the backend {named[0]}")
            return


def _not_awaited(code: ScriptFacts) -> Iterator[Finding]:
    """Report a collective that is only begun, as nothing keeps what waits for it."""
    for event in code.roles("collective"):
        begun = event.arg("async_op")
        dropped = isinstance(event.module.parents.get(event.node), ast.Expr)
        dropped = dropped and event.name.startswith("torch.distributed.") and not event.detached
        if dropped and begun is not None and begun.single() is True:
            yield at(NOT_AWAITED, event, f"`{_text(event.node)}`")
            return


def _subgroups(code: ScriptFacts) -> Iterator[Finding]:
    """Report a group that is made of some processes where SageMaker's data parallel library is the backend."""
    backends = _backends(code)
    if not backends or any(b is None or b.single() != "smddp" or "flag" in b.tags for b in backends):
        return
    for event in code.ran("new_group", live=True):
        if event.name.startswith("torch.distributed."):
            yield at(SUBGROUP, event, f"`{_text(event.node)}`")
            return


def _own_groups(code: ScriptFacts) -> Iterator[Finding]:
    """Report a group whose members follow from the number of the process that makes it."""
    for event in code.ran("new_group", live=True):
        local = event.arg("use_local_synchronization")
        given = [k.value for k in event.node.keywords if k.arg == "ranks"] or event.node.args[:1]
        if not event.name.startswith("torch.distributed.") or event.opened or not given or local is not None:
            continue
        written = set(ast.walk(meant(event.module, given[0])))
        parts = [v for e in code.events if e.node in written and e.last in ("range", "list") for v in e.args]
        ranks = event.arg("ranks", 0)
        if ranks is not None and ranks.items is not None and len(ranks.items) == 1:
            continue  # nobody waits for another one in a group of its own
        parts += [ranks, *(ranks.items or ())] if ranks is not None else []
        which = {tag for part in parts for tag in part.tags & _WHICH} - (set() if code.several_hosts else {"host_rank"})
        if which and not any("each-rank" in part.tags for part in parts):
            yield at(OWN_GROUP, event, f"`{_text(event.node)}` has different members in each process")
            return


def _text(node: ast.AST) -> str:
    return ast.unparse(node)[:60]


def _lists(code: ScriptFacts) -> Iterator[Finding]:
    """Report a list of tensors that each process makes and gives to ``gather`` or ``scatter``."""
    for event in code.ran("gather", "scatter", live=True):
        if not event.name.startswith("torch.distributed.") or event.by_rank or event.under("world", "error"):
            continue
        keyword = f"{event.last}_list"
        given = [k.value for k in event.node.keywords if k.arg == keyword] or event.node.args[1:2]
        if given and _filled(_made(event, given[0])):
            yield at(LISTS, event, f"`{_text(event.node)}`: {keyword} in every process")
            return


def _made(event: Event, node: ast.expr) -> ast.expr | None:
    """Return the expression that makes what a name stands for, if it is the only one, and under no condition."""
    if not isinstance(node, ast.Name):
        return node
    function = enclosing_function(event.module, event.node) or event.module.tree
    names = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == node.id]
    places = [event.module.parents.get(n) for n in names if isinstance(n.ctx, ast.Store)]
    if len(places) != 1 or not isinstance(place := places[0], ast.Assign) or conditions(event.module, place):
        return None
    return place.value


def _filled(node: ast.expr | None) -> bool:
    """Return whether an expression is a list with something in it."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _filled(node.left)
    return isinstance(node, ast.ListComp) or (isinstance(node, ast.List) and bool(node.elts))


def _gone(code: ScriptFacts) -> Iterator[Finding]:
    """Report a collective that follows ``destroy_process_group`` with no new group between the two."""
    ends = [e for e in code.ran("destroy_process_group", live=True) if e.name.startswith("torch.") and not e.args]
    begins = [e for e in code.roles("group") if e.last == "init_process_group"]
    # A function that was followed before need not be followed again: what it begins, its next call begins, too.
    setups = {f"script.{function.name}" for e in begins for function in e.stack}
    begins += [e for e, after in pairwise(code.events) if e.name in setups and len(after.stack) <= len(e.stack)]
    for event in code.events:
        if event.role != "collective" or not event.name.startswith("torch.distributed.") or event.detached:
            continue
        around = set(event.guards)
        before = [e for e in ends if e.order < event.order and set(e.guards) <= around and not e.keywords]
        if not before or event.under("world", "error") or any(before[-1].order < e.order < event.order for e in begins):
            continue
        what = f"`{_text(event.node)}` after `{_text(before[-1].node)}` in line {before[-1].line}"
        yield at(GONE, event, what)
        return


def _lengths(code: ScriptFacts) -> Iterator[Finding]:
    """Report a list for ``all_gather`` that is as long as a host has GPUs, in a job of several hosts."""
    ranges = {event.node: event.args for event in code.ran("range")}
    for event in code.ran("all_gather", live=True):
        if not event.name.startswith("torch.distributed.") or "group" in event.keywords or len(event.args) > 2:
            continue
        made = _made(event, event.node.args[0]) if event.node.args else None
        if isinstance(made, ast.BinOp) and isinstance(made.left, ast.List) and _makes_tensor(made.left):
            what = f"`{_text(made)}` is the same tensor for each process: all parts end up as the last one"
            yield at(LISTS, event, what)
            return
        counted = made.generators[0].iter if isinstance(made, ast.ListComp) else None
        count = ranges.get(counted, []) if isinstance(counted, ast.Call) else []
        one_host = bool(count) and "gpus" in count[-1].tags and "world" not in count[-1].tags
        if one_host and code.several_hosts and code.several_per_host and made is not None:
            what = f"`{_text(made)}` is one tensor for each GPU of a host, but the group is that of all hosts"
            yield at(LISTS, event, what)
            return


def _makes_tensor(node: ast.List) -> bool:
    """Return whether a list has one new tensor in it: ``[torch.zeros(2)] * n`` is the same one ``n`` times."""
    return len(node.elts) == 1 and isinstance(node.elts[0], ast.Call) and "torch." in ast.unparse(node.elts[0].func)


def _begun_apart(code: ScriptFacts) -> Iterator[Finding]:
    """Report a loop that begins or ends elsewhere in one process, though all of them meet in its passes."""
    for event in code.ran("range", live=True):
        apart = any(value.tags & {"uneven", "rank", "local_rank"} for value in event.args)
        if event.by_rank is not None or not apart or len(event.args) > 2:  # range(rank, n, world): shares
            continue
        loop = event.module.parents.get(event.node)
        inside = (e for e in code.events if loop in e.loops and not (e.detached or e.by_rank or "group" in e.keywords))
        if (meets := next(filter(collective, inside), None)) is not None:
            what = f"`{_text(event.node)}` is not the same in all processes, which meet at {collective(meets)}"
            yield at(LEFT, event, f"{what} in line {meets.line}")
            return
    for event in code.ran("fit", "fit_generator", live=True):
        begins = event.arg("initial_epoch")
        if collective(event) and begins is not None and "uneven" in begins.tags and event.by_rank is None:
            what = (
                f"`initial_epoch={ast.unparse(_keyword(event, 'initial_epoch'))[:40]}` is not the same in all processes"
            )
            yield at(LEFT, event, f"{what}, which meet at each step")
            return


def _keyword(event: Event, name: str) -> ast.AST:
    return next((each.value for each in event.node.keywords if each.arg == name), event.node)
