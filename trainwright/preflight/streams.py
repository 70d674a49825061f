"""Streams: which classes of a script read them, and whether every process reads all of one."""

from __future__ import annotations

import ast
import re

from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts

_SHARE = re.compile(r"rank|world|shard|split|replica|host|node|process|rand|shuffle|permut|sampl|url|stream", re.I)
# Of these, what says which process this is, or that chance does.
_CERTAIN = re.compile(r"rank|world|replica|host|node|process|rand|shuffle|permut|sampl", re.I)
_OF_PROCESS = re.compile(r"rank|world|host|node|process", re.I)
# A variable of the environment that a launcher sets, or SageMaker.
_VARIABLE = re.compile(r"[A-Z_]*(RANK|WORLD_SIZE|HOST)[A-Z_]*")
_SEEDED = ("random.Random", "default_rng", "RandomState", "Generator().manual_seed")
# A seed that PyTorch gives a worker, or that a process makes itself.
_OF_WORKER = re.compile(r"info|worker|initial_seed|time|pid|random|uuid")
_OWN = {"rank", "local_rank", "world", "random"}  # tags of values that differ by process


def every_process_reads_all(code: ScriptFacts) -> bool:
    """Return whether the script's only streams are its own classes, which use neither a rank nor chance."""
    found = False
    for module in code.modules:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                if not any(ast.unparse(base).endswith("IterableDataset") for base in node.bases):
                    continue
                found = True
                helpers = _helpers(code, node)
                own = _followed(node, helpers)
                names = [name for part in (node, *helpers) for name in _names(module, part, own)]
                if not any(isinstance(n, ast.FunctionDef) and n.name == "__iter__" for n in node.body):
                    return False
                if _told_apart(code, node) or any(_SHARE.search(name) for name in names):
                    return False
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("IterableDataset"):
                return False
    return found and not _by_workers(code)


def _followed(stream: ast.ClassDef, helpers: list[ast.AST]) -> set[str]:
    """Return names that say nothing, as what they stand for is looked at itself: methods, functions, variables.

    ``self.shard()``, or ``shards = self.files[info.id::info.num_workers]``.
    """
    parts = (stream, *helpers)
    called = [n for n in (*stream.body, *helpers) if isinstance(n, ast.FunctionDef)]
    given = {each.arg for n in called for each in (*n.args.args, *n.args.kwonlyargs)}
    kept = (n for part in parts for n in ast.walk(part) if isinstance(n, ast.Name | ast.Attribute))
    stored = {n.id if isinstance(n, ast.Name) else n.attr for n in kept if isinstance(n.ctx, ast.Store)}
    return {n.name for n in called} | {name for name in stored - given if not _CERTAIN.search(name)}


def _by_workers(code: ScriptFacts) -> bool:
    """Return whether a function that each worker calls first may divide the stream: it names the process."""
    functions = {n.name: n for m in code.modules for n in m.nodes if isinstance(n, ast.FunctionDef)}
    given = [n.value for m in code.modules for n in m.nodes if isinstance(n, ast.keyword) and n.arg == "worker_init_fn"]
    return any(of_process(functions.get(ast.unparse(each).rpartition(".")[2], each)) for each in given)


def of_process(part: ast.AST) -> bool:
    """Return whether a part of the script has a name that may say which process this is, or a variable that does."""
    for node in ast.walk(part):
        if _OF_PROCESS.search(getattr(node, "id", getattr(node, "attr", ""))):
            return True
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _VARIABLE.fullmatch(node.value):
            return True
    return False


def _helpers(code: ScriptFacts, stream: ast.ClassDef, depth: int = 3) -> list[ast.AST]:
    """Return the script's functions outside of a class that it, or one of these, calls by name."""
    functions = {n.name: n for m in code.modules for n in m.tree.body if isinstance(n, ast.FunctionDef)}
    found: list[ast.AST] = [stream]
    for _ in range(depth):
        called = {n.id for part in found for n in ast.walk(part) if isinstance(n, ast.Name)}
        found += [functions[name] for name in sorted(called & functions.keys()) if functions[name] not in found]
    return found[1:]


def _names(module: Module, part: ast.AST, followed: set[str]) -> list[str]:
    """Return the names in a part of the script that may say that it takes a share, or draws."""
    fixed = _of_fixed_seed(part)
    nodes = [n for n in ast.walk(part) if isinstance(n, ast.Name | ast.Attribute) and n not in fixed]
    names = [n.id if isinstance(n, ast.Name) else n.attr for n in nodes if not _of_one_item(module, n)]
    texts = [n.value for n in ast.walk(part) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return [name for name in names if name not in followed] + [text for text in texts if _VARIABLE.fullmatch(text)]


def _of_one_item(module: Module, node: ast.Name | ast.Attribute) -> bool:
    """Return whether a name is for what is read: ``line.split(",")``, or a variable ``sample``."""
    around = module.parents.get(node)
    called = isinstance(around, ast.Call) and around.func is node
    if isinstance(node, ast.Name):
        return node.id in ("sample", "samples") and not called
    parts = isinstance(around, ast.Call) and called and not around.keywords
    texts = parts and all(isinstance(arg, ast.Constant) for arg in around.args)  # type: ignore[union-attr]
    return node.attr in ("splitlines", "splitext") or (node.attr in ("split", "rsplit") and texts)


def _told_apart(code: ScriptFacts, stream: ast.ClassDef) -> bool:
    """Return whether a stream gets what differs by process, under a name that does not say so: a seed, its files."""
    makers = [n for n in stream.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
    names = [each.arg for maker in makers for each in maker.args.args[1:]]
    given = [pair for e in code.ran(stream.name) for pair in (*zip(names, e.args, strict=False), *e.keywords.items())]
    return any(value.tags & _OWN and not _SHARE.search(name) for name, value in given)


def _of_fixed_seed(node: ast.AST) -> set[ast.AST]:
    """Return the names around generators with a seed, as in ``random.Random(self.seed + epoch).shuffle(files)``.

    Also those of what they draw after they were given a name: ``chance = random.Random(7)``, ``chance.shuffle(files)``.
    """
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
    seeded = [n for n in calls if n.args and ast.unparse(n.func).endswith(_SEEDED)]
    made = [n for n in seeded if not _OF_WORKER.search(ast.unparse(n.args[0]))]
    kept = [n for n in ast.walk(node) if isinstance(n, ast.Assign) and (n.value in made or _seeded_later(n, calls))]
    names = {ast.unparse(target) for assigned in kept for target in assigned.targets}
    generators = [(call, each.value) for call in calls for each in call.keywords if each.arg == "generator"]
    drawn_with = [call for call, given in generators if given in made or ast.unparse(given) in names]
    found = {part for call in (*made, *drawn_with) for part in ast.walk(call.func)}
    for each in ast.walk(node):
        owner = each.value if isinstance(each, ast.Attribute) else None
        drawn = owner is not None and (owner in made or ast.unparse(owner) in names)
        if drawn or (isinstance(each, ast.Name | ast.Attribute) and ast.unparse(each) in names):
            found.add(each)
    return found


def _seeded_later(assigned: ast.Assign, calls: list[ast.Call]) -> bool:
    """Return whether a generator gets a fixed seed in a further line: ``chance.manual_seed(self.seed + epoch)``."""
    if not ast.unparse(assigned.value).endswith("Generator()"):
        return False
    owners = {f"{ast.unparse(target)}.manual_seed" for target in assigned.targets}
    seeds = [call.args for call in calls if ast.unparse(call.func) in owners]
    return bool(seeds) and not any(_OF_WORKER.search(ast.unparse(arg)) for args in seeds for arg in args)
