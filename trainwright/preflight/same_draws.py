"""Batches that each process draws at random: with one seed for all, they train on the same samples."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.data import divided_by_index
from trainwright.script.events import Event
from trainwright.script.known import HELD_OUT, NO_GRAPH
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at
from trainwright.script.values import IDENTITY, Value

SAME = Rule(
    code="TW551",
    severity="warning",
    title="every process draws the same samples, as all have the same seed",
    source="PyTorch's notes on reproducibility: with the same seed, a generator draws the same numbers; nanoGPT's "
    "train.py: torch.manual_seed(1337 + seed_offset), where the offset is the rank",
    remedy="Seed what draws the samples with seed + dist.get_rank(), or draw from this process's part of the data.",
)
RULES = (SAME,)
# Library functions that draw indices of samples, and what seeds them.
_DRAWS = ("randint", "randperm", "integers", "permutation", "choice", "choices", "sample", "randrange")
_MAKERS = ("default_rng", "Generator", "RandomState", "Random", "manual_seed")
_SEEDS = {
    "torch": ("torch.manual_seed", "torch.random.manual_seed"),
    "numpy": ("numpy.random.seed",),
    "random": ("random.seed",),
}
_ALL_CHANCES = ("set_seed", "seed_everything", "seed_all")
_ORDERS = ("randperm", "permutation")
# What gives a process its own part of the data, or its own numbers of a common generator.
_OWN = re.compile(r"rank|world|ordinal|process_index|shard|worker|host|replica|\bpid\b", re.I)
_MOVES = ("advance", "jumped", "spawn", "SeedSequence", "set_state", "set_rng_state", "setstate", "fork_rng")
# Processes that hold parts of one model need the same batches.
_MESHES = ("init_device_mesh", "parallelize_module", "PipelineModule", "initialize_model_parallel")
# If batches come from a loader, what is drawn is for something else, such as a crop or a mask.
_LOADERS = r"data_?loader|(train|val|valid|test)_?loader|^loader$"
_READS = re.compile(r"^(memmap|load|open|fromfile|from_file|read_\w+|load_from_disk|load_dataset)$")
# Buffers that each process fills itself.
_OF_PROCESS = re.compile(r"buffer|memory|replay|pool|queue|negativ", re.I)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    alone = not (code.several and code.cooperates) or code.managed or code.tensorflow
    if alone or code.incomplete or code.smp or code.mentions(*_MOVES, *_MESHES) or code.mentions_like(_LOADERS):
        return
    trained = [e for e in code.ran("backward", live=True) if e.loops]
    if not trained or divided_by_index(code) or _reads_own(code):
        return
    for event in code.ran(*_DRAWS, live=True):
        seed = _seed(code, event) if _for_training(event, trained[0]) and _takes_samples(event) else None
        if seed is not None:
            what = f"`{ast.unparse(event.node)[:60]}` after `{ast.unparse(seed.node)[:50]}` in line {seed.line}"
            yield at(SAME, event, what)
            return


def _reads_own(code: ScriptFacts) -> bool:
    """Return whether a process reads files or items of its own, or a seed is made with the rank somewhere."""
    if any(_told(value) for e in code.events if _READS.search(e.last) for value in e.args):
        return True
    for node in (n for m in code.modules for n in m.nodes):
        if isinstance(node, ast.BinOp | ast.AugAssign):
            text = ast.unparse(node)
            if "seed" in text and re.search("rank|offset", text):
                return True
        elif isinstance(node, ast.Subscript):
            text = "" if isinstance(node.slice, ast.Constant) else ast.unparse(node.slice)
            if _OWN.search(text):
                return True
    return False


def _told(value: Value) -> bool:
    return bool(value.tags & (IDENTITY | {"sharded", "own", "clock"}))


def _for_training(draw: Event, backward: Event) -> bool:
    """Return whether a draw is made in the training loop or in a generator; of an order, once per epoch."""
    names = (*draw.contexts, *(code.name for code in draw.stack))
    if any(NO_GRAPH.search(name) or HELD_OUT.search(name) for name in names):
        return False
    node = draw.stack[-1].node if draw.stack else None
    yields = node is not None and any(isinstance(each, ast.Yield) for each in ast.walk(node))
    within = draw.loops[: len(backward.loops)] == backward.loops[: len(draw.loops)]
    around = draw.module.parents.get(draw.node)
    if draw.last in _ORDERS and not (isinstance(around, ast.Subscript) and around.value is draw.node):
        return within and 0 < len(draw.loops) < len(backward.loops)
    return yields or (within and bool(draw.loops))


def _seed(code: ScriptFacts, draw: Event) -> Event | None:
    """Return the call that gives a draw the same seed in every process; None if there is none or it is unknown."""
    generator = draw.arg("generator")
    if generator is None and draw.receiver is not None and draw.receiver.made_by(*_MAKERS):
        generator = draw.receiver
    if generator is not None:
        made = code.maker(generator)
        seeds = [e for e in code.ran("manual_seed", live=True) if generator in (e.result, e.receiver)]
        seeds += [made] if made is not None and made.last in _MAKERS and made.args and made not in seeds else []
    else:
        names = _SEEDS.get(draw.name.partition(".")[0], ())
        library = (e for e in code.ran("manual_seed", "seed", *_ALL_CHANCES, live=True) if not e.name.startswith("?"))
        seeds = [e for e in library if names and (e.name in names or e.last in _ALL_CHANCES)]
    before = [e for e in seeds if e.order < draw.order]
    return before[-1] if before and all(_alike(code, each) for each in seeds) else None


def _alike(code: ScriptFacts, seed: Event) -> bool:
    """Return whether all processes seed with the same number: a constant, an argument or a setting."""
    if seed.by_rank is not None or seed.arg("device_specific") is not None or not seed.args:
        return False
    value = seed.args[0]
    part = value.of is not None and code.maker(value) is None  # of settings that cannot be read
    known = value.constants is not None or "flag" in value.tags or part
    return known and value.single() is not None and not any(map(_told, (*seed.args, *seed.keywords.values())))


def _takes_samples(draw: Event) -> bool:
    """Return whether the numbers drawn are indices into what their bound is the length of: ``data[i:i + 64]``."""
    statement = next((n for n in ancestors(draw.module, draw.node) if isinstance(n, ast.stmt)), None)
    function = next((n for n in ancestors(draw.module, draw.node) if isinstance(n, ast.FunctionDef | ast.Module)), None)
    if statement is None or function is None:
        return False
    names = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    bound = " ".join(ast.unparse(each) for each in (*draw.node.args, *(k.value for k in draw.node.keywords)))
    found, known = False, -1
    while known < len(names):  # until no further name is made from these
        known = len(names)
        for each in ast.walk(function):
            if isinstance(each, ast.comprehension | ast.For) and names & _names(each.iter):
                names |= _names(each.target)
            elif isinstance(each, ast.Assign) and names & _names(each.value):
                names |= {name for target in each.targets for name in _names(target)}
    for each in ast.walk(function):
        if isinstance(each, ast.Subscript) and (names & _names(each.slice) or draw.node in ast.walk(each.slice)):
            base = ast.unparse(each.value)
            found = found or (re.search(rf"(?<![\w.]){re.escape(base)}(?!\w)", bound) is not None)
            if _OF_PROCESS.search(base):
                return False
        if isinstance(each, ast.Assign | ast.Return) and names & _names(each) and _OWN.search(ast.unparse(each)):
            return False
    return found


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
