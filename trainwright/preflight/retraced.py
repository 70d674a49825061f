"""TensorFlow functions that are traced again at every step, because a Python number among their arguments changes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at, enclosing_function, enclosing_loop

RETRACED = Rule(
    code="TW590",
    severity="warning",
    title="a tf.function gets a different Python number at every step, so it is traced again each time",
    source="TensorFlow's guide, Better performance with tf.function, controlling retracing: the type of a Python "
    "number is its value, and a function that retraces at every call is slower than without tf.function",
    remedy="Pass a tensor: train_step(batch, tf.constant(step)), or optimizer.iterations in the function.",
)
RULES = (RETRACED,)
_LEAVES = ("input_signature", "reduce_retracing", "experimental_relax_shapes", "**")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if not code.tensorflow or code.incomplete or not code.mentions("function") or code.mentions(*_LEAVES):
        return
    if code.mentions("run_functions_eagerly"):
        return
    trained = {each for e in code.ran("apply_gradients", live=True) for each in e.stack}
    for event in code.events if trained else ():
        function = event.called.code if event.called is not None else None
        if (
            function is None
            or function not in trained
            or event.detached
            or not event.loops
            or not _traced(function.decorators)
        ):
            continue
        for node in (*event.node.args, *(each.value for each in event.node.keywords)):
            loop = _counted(event, node)
            if loop is not None and _of_steps(loop, ast.unparse(node)):
                what = f"`{event.text}`: `{ast.unparse(node)}` is a different Python number at each step"
                yield at(RETRACED, event, what)
                return


def _traced(decorators: tuple[str, ...]) -> bool:
    return any(each.partition("(")[0] in ("tensorflow.function", "tf.function") for each in decorators)


def _counted(event: Event, given: ast.expr) -> ast.AST | None:
    """Return the loop around a call that counts with this name, or in which a number is added to it."""
    module, loop = event.module, enclosing_loop(event.module, event.node)
    if not isinstance(given, ast.Name) or loop is None:
        return None
    function = enclosing_function(module, event.node)
    named = [n for n in module.nodes if isinstance(n, ast.Name) and n.id == given.id and isinstance(n.ctx, ast.Store)]
    around = [module.parents.get(n) for n in named if enclosing_function(module, n) is function]
    if isinstance(loop, ast.For) and _counter(loop) == given.id:
        return loop if len(around) == 1 else None
    added = [n for n in around if isinstance(n, ast.AugAssign) and isinstance(n.value, ast.Constant)]
    begun = [n for n in around if isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant)]
    inside = any(loop in ancestors(module, node) for node in added)
    return loop if inside and begun and len(added) + len(begun) == len(around) else None


def _counter(loop: ast.For) -> str:
    """Return the name with which a loop counts: ``for step, batch in enumerate(data)``; or nothing."""
    call = loop.iter
    name = ast.unparse(call.func).rpartition(".")[2] if isinstance(call, ast.Call) else ""
    if name == "tqdm" and isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Call):
        call = call.args[0]
        name = ast.unparse(call.func).rpartition(".")[2]
    if name == "enumerate" and isinstance(loop.target, ast.Tuple):
        return ast.unparse(loop.target.elts[0])
    plain = isinstance(call, ast.Call) and ast.unparse(call.func) in ("range", "trange")
    return ast.unparse(loop.target) if plain else ""


def _of_steps(loop: ast.AST, counter: str) -> bool:
    """Return whether a loop goes over batches, and not over a few epochs, layers or pieces."""
    if not isinstance(loop, ast.For):
        return "epoch" not in counter.lower()
    text = f"{ast.unparse(loop.target)} {ast.unparse(loop.iter)}".lower()
    counts = isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func).endswith("range")
    return "epoch" not in text and (not counts or any(word in text for word in ("step", "iter", "batch")))
