"""Metrics with a numerator from all processes and a denominator from one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, enclosing_function, enclosing_loop
from trainwright.script.values import Value

OWN_COUNT = Rule(
    code="TW572",
    severity="warning",
    title="a sum over all processes is divided by the number of samples of one process",
    source="PyTorch's ImageNet example, AverageMeter.all_reduce: the sum and the count are reduced together; "
    "vllm-project/speculators #759: a numerator summed once more than its denominator makes an accuracy larger by the "
    "number of processes",
    remedy="total = torch.tensor([correct, seen], device=device); dist.all_reduce(total); (total[0] / total[1]).item()",
)
RULES = (OWN_COUNT,)
# What is added for each batch to count its samples, and what makes a measure of a model's output.
_COUNTS = re.compile(r"^1(\.0)?$|^len\(.*\)$|\.size\(0\)$|\.shape\[0\]$|\.numel\(\)$|^\w*batch_size$")
_MEASURES = re.compile(r"==|\.eq\(|argmax|topk|loss|criterion|acc|correct|err|entropy|abs\(|square|pow\(", re.I)
# What leaves a value what it is.
_SAME = ("item", "cpu", "float", "double", "int", "sum", "detach", "clone", "numpy", "tolist", "squeeze")
_HARMLESS = ("print", "int", "float", "max", "min", "len", "round", "str", "format", "info", "debug", "log", "write")
_PROCESSES = re.compile(r"world|size\(\)|replicas|procs|num_?(gpus|proc)|workers|ranks|hosts", re.I)
_MORE_JOINS = ("reduce", "gather", "mean", "average", "sync")


@dataclass(frozen=True)
class _Place:
    """The function, or the file outside of functions, in which a sum is reduced.

    Attributes:
        event: the reduction.
        nodes: what is in that function.
        beside: for a method, what is in the other methods of its class.
    """

    code: ScriptFacts
    event: Event
    nodes: tuple[ast.AST, ...]
    beside: tuple[ast.AST, ...]

    @property
    def module(self) -> Module:
        return self.event.module

    def sets(self, function: ast.AST | None, text: str) -> bool:
        """Return whether a method gives a value to an attribute, and does not only add to it."""
        stored = (
            n for n in self.beside if isinstance(n, ast.Assign) and any(ast.unparse(t) == text for t in n.targets)
        )
        return any(enclosing_function(self.module, n) is function for n in stored)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or not code.several or code.managed:
        return
    for event in code.ran("all_reduce", "reduce", live=True):
        if not event.name.startswith("torch.distributed.") or not event.node.args or not _sums(event):
            continue
        function = enclosing_function(event.module, event.node)
        nodes = tuple(n for n in event.module.nodes if enclosing_function(event.module, n) is function)
        own = event.stack[-1].owner if event.stack else None
        others = [each.node for each in own.methods.values() if each.node is not function] if own is not None else []
        place = _Place(code, event, nodes, tuple(node for each in others for node in ast.walk(each)))
        for total in _totals(place):
            found = _divided(place, total)
            if found is not None and not _averaged(place, total, found):
                what = f"`{ast.unparse(found)[:60]}`: line {event.line} has summed the numerator alone"
                yield at(OWN_COUNT, (event.module, found), what)
                return


def _sums(event: Event) -> bool:
    given = event.arg("op", 1 if event.last == "all_reduce" else 2)
    return "group" not in event.keywords and (given is None or given.name.endswith(".SUM"))


def _totals(place: _Place) -> list[str]:
    """Return the names of the reduced sums: one, or those over which a loop goes."""
    given = place.event.node.args[0]
    loop = enclosing_loop(place.module, place.event.node)
    if isinstance(loop, ast.For) and ast.unparse(loop.target) == ast.unparse(given):
        each = loop.iter.elts if isinstance(loop.iter, ast.Tuple | ast.List) else []
        return [ast.unparse(item) for item in each]
    return [ast.unparse(given)] if isinstance(given, ast.Name | ast.Attribute) else []


def _divided(place: _Place, total: str) -> ast.BinOp | ast.AugAssign | None:
    """Return where a sum of a measure is divided, after its reduction, by a number that this process counted."""
    names = {total}
    later = [n for n in place.nodes if getattr(n, "lineno", 0) > place.event.line]
    adds = {enclosing_function(place.module, each) for each in _added(place)}
    later += [n for n in place.beside if enclosing_function(place.module, n) not in adds]
    for node in sorted(later, key=lambda each: getattr(each, "lineno", 0)):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and _base(node.value) in names:
            names.add(ast.unparse(node.targets[0]))
        if not isinstance(node, ast.BinOp | ast.AugAssign) or not isinstance(node.op, ast.Div):
            continue
        above, below = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
        if _base(above) in names and _measured(place, total) and _counted(place, total, below):
            return node
    return None


def _base(node: ast.expr) -> str:
    """Return the name of which a numerator is made: ``total`` of ``100 * total[0].item()``."""
    match node:
        case ast.Subscript():
            return _base(node.value)
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=[]) if name in _SAME:
            return _base(inner)
        case ast.Call(func=ast.Name(id=name), args=[inner]) if name in _SAME:
            return _base(inner)
        case ast.BinOp(op=ast.Mult()):
            one, other = node.left, node.right
            factor = one if isinstance(one, ast.Constant) else other
            return _base(other if factor is one else one) if isinstance(factor, ast.Constant) else ""
        case ast.Name() | ast.Attribute():
            return ast.unparse(node)
    return ""


def _measured(place: _Place, total: str) -> bool:
    """Return whether a sum, or what it is made of, is added up over this process's share of the data."""
    names = {total}
    for node in place.nodes:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == total and node.lineno < place.event.line:
            names |= {ast.unparse(each) for each in ast.walk(node.value) if isinstance(each, ast.Name | ast.Attribute)}
    out = any("out" in value.tags for value in place.event.args[:1])
    return any(
        _base(added.target) in names
        and not _counts(place, added.value)
        and (out or _MEASURES.search(ast.unparse(added.value)))
        for added in _added(place)
    )


def _added(place: _Place) -> Iterator[ast.AugAssign]:
    """Yield what is added to in a loop over this process's share of the data, also by methods of the same class."""
    for node in (*place.nodes, *place.beside):
        if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Add):
            continue
        function = enclosing_function(place.module, node)
        loop: ast.AST | None = enclosing_loop(place.module, node)
        while loop is not None and not _of_share(place.code.iterated(loop)):
            loop = enclosing_loop(place.module, loop)
        if loop is None and isinstance(node.target, ast.Attribute) and function is not None and node in place.beside:
            codes = ((e, e.called.code) for e in place.code.ran(function.name) if e.called is not None)
            loops = (each for e, code in codes if code is not None and code.node is function for each in e.loops)
            loop = next((each for each in loops if _of_share(place.code.iterated(each))), None)
        if loop is not None:
            yield node


def _of_share(value: Value | None) -> bool:
    """Return whether a loop goes over the batches of this process, also if it counts them."""
    while value is not None and "own" not in value.tags:
        value = value.of if "element" in value.tags or value.made_by("enumerate", "tqdm") else None
    return value is not None and "loader" in value.tags


def _counts(place: _Place, added: ast.expr) -> bool:
    """Return whether what is added for each batch is the number of its samples, also as a method's argument."""
    text = ast.unparse(added)
    if not isinstance(added, ast.Name) or _COUNTS.search(text):
        return bool(_COUNTS.search(text))
    function = enclosing_function(place.module, added)
    names = [each.arg for each in function.args.args] if function is not None else []
    if function is not None and text in names:
        number = names.index(text) - (names[0] == "self")
        calls = [each.node.args for each in place.code.ran(function.name)]
        given = [args[number] for args in calls if len(args) > number]
    else:
        given = [n.value for n in place.module.nodes if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == text]
    return bool(given) and all(_COUNTS.search(ast.unparse(each)) for each in given)


def _counted(place: _Place, total: str, below: ast.expr) -> bool:
    """Return whether a number is one that this process counted and never shares."""
    if isinstance(below, ast.Call) and isinstance(below.func, ast.Name) and below.func.id in ("float", "max", "int"):
        return bool(below.args) and _counted(place, total, below.args[0])
    if isinstance(below, ast.Call):
        lengths = (e for e in place.code.ran("len") if e.node is below)
        return any("own-batches" in e.result.tags for e in lengths)
    if not isinstance(below, ast.Name | ast.Attribute) or _shared(place, total, ast.unparse(below)):
        return False
    text = ast.unparse(below)
    given = [n.value for n in place.nodes if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == text]
    if len(given) == 1 and isinstance(given[0], ast.Call) and ast.unparse(given[0].func) == "len":
        return _counted(place, total, given[0])
    added = [each for each in _added(place) if ast.unparse(each.target) == text]
    return bool(added) and all(_counts(place, each.value) for each in added)


def _shared(place: _Place, total: str, text: str) -> bool:
    """Return whether a count may be joined with those of other processes: set again, or given to a function."""
    for node in (*place.nodes, *place.beside):
        match node:
            case ast.Call() if ast.unparse(node.func).rpartition(".")[2] not in _HARMLESS:
                given: list[ast.AST] = [*node.args, *(keyword.value for keyword in node.keywords)]
            case ast.For(iter=ast.Tuple(elts=items) | ast.List(elts=items)):
                given = list(items)
            case ast.AugAssign() if not isinstance(node.op, ast.Add):
                given = [node.target]
            case ast.Assign() if _joins(place, total, node):
                given = [each for target in node.targets for each in ast.walk(target)]
            case _:
                given = []
        if any(ast.unparse(each) == text for each in given):
            return True
    return False


def _joins(place: _Place, total: str, node: ast.Assign) -> bool:
    """Return whether what is set may be of all processes: no length, and not where the sum itself begins."""
    function = enclosing_function(place.module, node)
    if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "len":
        return False
    return not place.sets(function, total) if node in place.beside else node.lineno >= place.event.line


def _averaged(place: _Place, total: str, found: ast.BinOp | ast.AugAssign) -> bool:
    """Return whether the sum, or the quotient, may be divided by the number of processes, here or by a caller."""
    parent = place.module.parents.get(found)
    names = {total}
    if isinstance(parent, ast.Assign):
        names |= {ast.unparse(each) for each in parent.targets}
    callers = {each.node for each in place.event.stack[:-1]}
    for module in place.code.modules:
        for node in module.nodes:
            if not isinstance(node, ast.BinOp | ast.AugAssign) or not isinstance(node.op, ast.Div):
                continue
            above, below = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
            if not _PROCESSES.search(ast.unparse(below)):
                continue
            function = enclosing_function(module, node)
            here = node in place.nodes or node in place.beside
            if here and (_base(above) in names or found in ast.walk(node)):
                return True
            if not here and (function in callers or function is None):
                return True
    joined = (n for n in place.nodes if isinstance(n, ast.Call) and n.lineno >= found.lineno)
    return any(
        any(word in ast.unparse(call.func).rpartition(".")[2].lower() for word in _MORE_JOINS)
        for call in joined
        if any(ast.unparse(each) in names - {total} for each in call.args) or found in ast.walk(call)
    )
