"""Streams: which classes of a script read them, and whether every process reads all of one."""

from __future__ import annotations

import ast
import re

from trainwright.script.script_facts import ScriptFacts

_SHARE = re.compile(r"rank|world|shard|split|replica|host|node|process|rand|shuffle|permut|sampl|url|stream", re.I)
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
                fixed = _of_fixed_seed(node)
                names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n not in fixed]
                names += [n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute) and n not in fixed]
                if not any(isinstance(n, ast.FunctionDef) and n.name == "__iter__" for n in node.body):
                    return False
                if _told_apart(code, node) or any(_SHARE.search(name) for name in names):
                    return False
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("IterableDataset"):
                return False
    return found


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
    kept = [n for n in ast.walk(node) if isinstance(n, ast.Assign) and n.value in made]
    names = {ast.unparse(target) for assigned in kept for target in assigned.targets}
    found = {part for call in made for part in ast.walk(call.func)}
    found |= {part for call in calls for part in ast.walk(call.func) if _given(call) in names}
    for each in ast.walk(node):
        owner = each.value if isinstance(each, ast.Attribute) else None
        drawn = owner is not None and (owner in made or ast.unparse(owner) in names)
        if drawn or (isinstance(each, ast.Name | ast.Attribute) and ast.unparse(each) in names):
            found.add(each)
    return found


def _given(call: ast.Call) -> str:
    """Return the name of the generator that a function of PyTorch gets."""
    return next((ast.unparse(each.value) for each in call.keywords if each.arg == "generator"), "")
