"""The names of a script's arguments, also where a loop over a literal makes several."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from trainwright.script.reader import Module
from trainwright.script.syntax import Function, ancestors, meant

MOST = 200
OptionNames = Mapping[str, ast.expr]


def spelled(module: Module, node: ast.Call) -> list[tuple[str, ...]]:
    """Return the names that an ``add_argument`` gives, with their dashes, for each pass of the loops around it.

    Returns:
        no names at all, if some of them cannot be read.
    """
    passes: list[dict[str, ast.expr]] = [{}]
    for outer in ancestors(module, node):
        if isinstance(outer, Function | ast.Lambda):
            break
        if isinstance(outer, ast.For):
            inner = _passes(module, outer)
            passes = [{**there, **here} for there in passes for here in inner][:MOST]
    rows: dict[tuple[str, ...], None] = {}
    for names in passes:
        texts = [_text(each, names) for each in node.args]
        if None in texts or not texts:
            return []
        rows[tuple(text for text in texts if text is not None)] = None
    return list(rows)


def _passes(module: Module, loop: ast.For) -> list[dict[str, ast.expr]]:
    """Return what the names of a loop are in each of its passes; once nothing, if that cannot be read."""
    found: list[dict[str, ast.expr]] = []
    for element in islice(elements(module, loop.iter), MOST):
        if isinstance(loop.target, ast.Name):
            found.append({loop.target.id: element})
        elif isinstance(loop.target, ast.Tuple | ast.List) and isinstance(element, ast.Tuple | ast.List):
            pairs = zip(loop.target.elts, element.elts, strict=False)
            found.append({name.id: value for name, value in pairs if isinstance(name, ast.Name)})
    return found or [{}]


def elements(module: Module, iterated: ast.expr) -> Iterator[ast.expr]:
    """Yield what a loop goes over: of a literal, its elements; of the fields of a dataclass, their names.

    What another mapping brings (``**more``) is one element that is no text.
    """
    iterated = meant(module, iterated)
    if isinstance(iterated, ast.Tuple | ast.List | ast.Set):
        yield from iterated.elts
    elif isinstance(iterated, ast.Dict):
        pairs = zip(iterated.keys, iterated.values, strict=True)
        yield from (value if key is None else key for key, value in pairs)
    elif isinstance(iterated, ast.Call):
        yield from _of_call(module, iterated)
    else:
        yield from _of_fields(module, iterated)


def _of_call(module: Module, call: ast.Call) -> Iterator[ast.expr]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if isinstance(call.func, ast.Name) and name in ("sorted", "list", "tuple", "set") and len(call.args) == 1:
        yield from elements(module, call.args[0])
        return
    base = meant(module, call.func.value) if isinstance(call.func, ast.Attribute) else None
    if isinstance(base, ast.Dict) and not call.args and name in ("items", "keys"):
        for key, value in zip(base.keys, base.values, strict=True):
            pair = ast.Tuple([key, value], ast.Load()) if key is not None and name == "items" else key
            yield pair or value
    elif isinstance(base, ast.Constant) and isinstance(base.value, str) and name == "split" and not call.args:
        yield from map(ast.Constant, base.value.split())
    elif name == "fields" and len(call.args) == 1:
        yield from _fields(module, call.args[0])
    elif isinstance(call.func, ast.Attribute) and not call.args and name in ("items", "keys", "values"):
        for field in _of_fields(module, call.func.value):
            yield ast.Tuple([field, field], ast.Load()) if name == "items" else field


def _of_fields(module: Module, node: ast.expr) -> Iterator[ast.Constant]:
    """Yield the names of the fields in ``Settings.__dataclass_fields__``, or ``Settings.__annotations__``."""
    if isinstance(node, ast.Attribute) and node.attr in ("__dataclass_fields__", "__annotations__"):
        yield from _fields(module, node.value)


def _fields(module: Module, node: ast.expr) -> Iterator[ast.Constant]:
    """Yield the names of the fields of a class that inherits none."""
    of = _class(module, node, node.id) if isinstance(node, ast.Name) else None
    for each in of.body if of is not None and not of.bases else ():
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield ast.Constant(each.target.id)


def _class(module: Module, node: ast.AST, name: str) -> ast.ClassDef | None:
    """Return the class that a name stands for: ``cls`` is the class around."""
    around: Sequence[ast.AST] = list(ancestors(module, node)) if name == "cls" else module.nodes
    classes = [each for each in around if isinstance(each, ast.ClassDef) and name in (each.name, "cls")]
    return classes[0] if classes else None


def _text(node: ast.expr, names: OptionNames) -> str | None:
    """Return the text that an expression is, where names stand for these; None if that cannot be read."""
    parts: list[ast.expr] = []
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id=name), attr="name") if name in names:
            return _text(names[name], {})
        case ast.FormattedValue(value=value, format_spec=None):
            parts = [value]
        case ast.JoinedStr():
            parts = node.values
        case ast.BinOp(op=ast.Add()):
            parts = [node.left, node.right]
        case ast.Call(
            func=ast.Attribute(value=value, attr="replace"),
            args=[ast.Constant(value=str(old)), ast.Constant(value=str(new))],
        ):
            whole = _text(value, names)
            return whole.replace(old, new) if whole is not None else None
    texts = [_text(part, names) for part in parts]
    known = [text for text in texts if text is not None]
    return "".join(known) if parts and len(known) == len(texts) else None
