"""Seeds of DataLoader workers that make all processes and epochs draw the same random numbers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.known import HELD_OUT
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at, meant, qualified

SAME_SEEDS = Rule(
    code="TW582",
    severity="warning",
    title="DataLoader workers are seeded with their number only, so all epochs and processes draw the same",
    source="PyTorch's notes on reproducibility, DataLoader: seed_worker takes torch.initial_seed(), which differs for "
    "each epoch; xingyizhou/CenterNet #233, open-mmlab/mmdetection #1083",
    remedy="np.random.seed((torch.initial_seed() + dist.get_rank()) % 2**32) in worker_init_fn; random.seed likewise.",
)
RULES = (SAME_SEEDS,)
_SEEDS = {"numpy.random.seed": "numpy.random.", "random.seed": "random."}
# What draws without a generator of its own.
_DRAWS = re.compile(
    r"(random|rand|randn|randint|randrange|random_sample|uniform|normal|gauss|choice|choices|sample|shuffle|permutation|"
    r"beta|betavariate|exponential|poisson|binomial|laplace|gamma)"
)
# What a seed has that is not the same everywhere, or may have.
_VARIES = re.compile(r"rank|epoch|time|world|offset|base|pid|host|node|shard|process|replica|device|info|state", re.I)
_OF_DATA = ("__getitem__", "__getitems__", "__iter__", "__call__")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or code.tensorflow or not code.mentions("worker_init_fn"):
        return
    trained = code.training_loader()
    for event in [trained] if trained is not None else code.ran("DataLoader"):
        workers, persistent = event.arg("num_workers", 5), event.arg("persistent_workers")
        kept = persistent is not None and persistent.single() is not False
        none = workers.single() == 0 if workers is not None else not event.opened
        if not event.name.startswith("torch.") or none or (kept and not code.several):
            continue
        names = (event.target, event.text, *(each.name for each in event.stack))
        if trained is None and HELD_OUT.search(" ".join(names)):
            continue
        for module, seed, library in _seeds(event):
            draw = _draw(code, library)
            if draw is not None:
                where = " and ".join(["in each epoch"] * (not kept) + ["in each process"] * code.several)
                what = f"`{ast.unparse(seed)[:60]}` is the same {where}, and so is `{ast.unparse(draw)[:50]}`"
                yield at(SAME_SEEDS, (module, seed), what)
                return


def _seeds(loader: Event) -> Iterator[tuple[Module, ast.Call, str]]:
    """Yield the calls that seed a loader's workers with nothing but their number and constants, and what they seed."""
    given = loader.arg("worker_init_fn", 9)
    written = next((each.value for each in loader.node.keywords if each.arg == "worker_init_fn"), None)
    written = meant(loader.module, written) if written is not None else None
    module: Module = loader.module
    node: ast.AST | None = written
    if given is not None and given.code is not None and not given.attrs:
        module, node = given.code.module, given.code.node
    if not isinstance(node, ast.FunctionDef | ast.Lambda):
        return
    parameters = [each.arg for each in node.args.args]
    number = parameters[-1] if parameters else ""
    for call in (n for n in ast.walk(node) if isinstance(n, ast.Call) and len(n.args) == 1):
        library = _SEEDS.get(qualified(module, call.func), "")
        if library and _alike(module, call.args[0], number):
            yield module, call, library


def _alike(module: Module, seed: ast.expr, number: str, depth: int = 8) -> bool:
    """Return whether a seed is made of the worker's number, constants and settings alone."""

    def inner(part: ast.expr) -> bool:
        return depth > 0 and _alike(module, part, number, depth - 1)

    match seed:
        case ast.Constant():
            return True
        case ast.Name():
            made = meant(module, seed)
            return seed.id == number or (made is not seed and not _VARIES.search(seed.id) and inner(made))
        case ast.Attribute() | ast.Subscript():
            return not _VARIES.search(ast.unparse(seed))
        case ast.BinOp():
            return inner(seed.left) and inner(seed.right)
        case ast.Call(func=ast.Name("int"), args=[part]):
            return inner(part)
    return False


def _draw(code: ScriptFacts, library: str) -> ast.Call | None:
    """Return a call that draws with a library's common generator in a data set, or in what one calls."""
    for module in code.modules:
        for node in (n for n in module.nodes if isinstance(n, ast.Call)):
            name = qualified(module, node.func)
            draws = name.startswith(library) and _DRAWS.fullmatch(name.removeprefix(library))
            if draws and _of_data(code, module, node):
                return node
    return None


def _of_data(code: ScriptFacts, module: Module, draw: ast.Call, depth: int = 2) -> bool:
    """Return whether a call is in a class of data or transforms, or in a function that such a class names."""
    function = next((n for n in ancestors(module, draw) if isinstance(n, ast.FunctionDef)), None)
    owner = next((n for n in ancestors(module, draw) if isinstance(n, ast.ClassDef)), None)
    if function is None or function.name == "__init__":
        return False
    if owner is not None:
        return any(isinstance(each, ast.FunctionDef) and each.name in _OF_DATA for each in owner.body)
    uses = (
        (each, node)
        for each in code.modules
        for node in each.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function.name
    )
    return depth > 0 and any(_of_data(code, each, node, depth - 1) for each, node in uses)
