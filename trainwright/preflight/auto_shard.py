"""TensorFlow's automatic sharding of a data set among workers, by file or by sample."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, conditions, meant
from trainwright.script.values import Value

FEW_FILES = Rule(
    code="TW535",
    severity="error",
    title="a data set with fewer files than workers is sharded by file",
    source="TensorFlow's API documentation of tf.data.experimental.AutoShardPolicy, FILE: if there are fewer input "
    "files than workers, a runtime error is raised",
    remedy="AutoShardPolicy.DATA divides the samples; or write the data as at least one file for each worker.",
)
RULES = (FEW_FILES,)
_WORKERS = ("MultiWorkerMirroredStrategy", "CollectiveAllReduceStrategy")
_OF_FILES = ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset")
_BY_FUNCTION = ("distribute_datasets_from_function", "experimental_distribute_datasets_from_function")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    workers = code.launch.hosts or 1
    strategy = any("tensorflow" in e.name for e in code.ran(*_WORKERS, live=True))
    # A function that makes the data set of each worker shards it itself.
    if code.incomplete or workers < 2 or not strategy or code.mentions(*_BY_FUNCTION) or not _by_files(code):
        return
    made = [e for e in code.ran(*_OF_FILES, live=True) if e.name.startswith("tensorflow.")]
    for event in code.ran("with_options", live=True):
        own = [e for e in made if e.order < event.order and e.stack == event.stack]
        files = [_files(e) for e in own or made]
        few = [number for number in files if number is not None and number < workers]
        if few and len(few) == len(files):
            read = (own or made)[0]
            number = f"{few[0]} file{'s' if few[0] > 1 else ''}"
            what = f"`{ast.unparse(read.node)[:60]}` reads {number}, but is sharded by file among {workers} workers"
            yield at(FEW_FILES, read, what)
            return


def _by_files(code: ScriptFacts) -> bool:
    """Return whether the script's only policy is FILE, under no condition."""
    found = [
        (module, node)
        for module in code.modules
        for node in module.nodes
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith(".auto_shard_policy")
    ]
    return bool(found) and all(
        ast.unparse(meant(module, node.value)).endswith("AutoShardPolicy.FILE") and not conditions(module, node)
        for module, node in found
    )


def _files(event: Event) -> int | None:
    """Return how many files a data set reads; None if that cannot be seen."""
    names = event.arg("filenames", 0)
    if names is None or event.loops or "element" in names.tags:
        return None
    given = names.items if names.items is not None else (names,)
    return len(given) if given and all(_is_path(name) for name in given) else None


def _is_path(name: Value) -> bool:
    """Return whether a value is the path of one file, not a list of them."""
    joined = any(tag.startswith("root:") for tag in name.tags) and not name.made and name.attrs is None
    return name.items is None and (joined or isinstance(name.single(), str))
