"""WebDataset: whether each worker of a loader gets a file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.versions import before
from trainwright.script.call import Call
from trainwright.script.events import Event
from trainwright.script.known import LOADER
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, meant
from trainwright.script.values import Value

EMPTY_WORKERS = Rule(
    code="TW569",
    severity="error",
    title="a WebDataset has fewer files per process than its loader has workers (a warning if the job's "
    "webdataset is not known)",
    source="webdataset, shardlists.py: split_by_node deals the files out to the processes, split_by_worker to their "
    "workers; compat.py, check_empty: a worker without any raises ValueError; webdataset/webdataset #65",
    remedy="As many workers as each process has files, at most; or more and smaller files, or resampled=True.",
)
RULES = (EMPTY_WORKERS,)
# The first release that checks it (compat.py at the tag 0.2.90; there is no empty_check at v0.2.88).
_CHECKED_SINCE = "0.2.90"
_SPLITTERS = {"nodesplitter": "split_by_node", "workersplitter": "split_by_worker"}
_JOINS = ("join", "joinpath", "braceexpand", "expand_urls")
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_CHOICE = re.compile(r"\{[^{}.]*,[^{}.]*\}")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    processes = code.launch.processes
    if code.incomplete or code.job is None or processes is None or not code.mentions("WebDataset"):
        return
    made = [e for e in code.ran("WebDataset", live=True) if e.name.startswith("webdataset.")]
    known = before(code, "webdataset", _CHECKED_SINCE) if made else True
    if known is True:
        return
    for loader in code.events:
        source = _source(loader, made) if LOADER.search(loader.name) and not loader.detached else None
        if source is None:
            continue
        files, workers = _dealt(code, source, processes), _workers(code, loader)
        if files is None or workers is None or files // processes >= max(workers, 1):
            continue
        each = f" with {workers} workers each" if workers else ""
        number = f"{files} file{'s' if files > 1 else ''} for {processes} process{'es' if processes > 1 else ''}"
        what = f"`{ast.unparse(source.node)[:50]}` in line {source.line} has {number}{each}"
        yield at(EMPTY_WORKERS, loader, what, None if known is False else "warning")
        return


def _source(loader: Event, made: list[Event]) -> Event | None:
    """Return the call that made the data set of a loader: the last one before it, in the same function."""
    given = loader.arg("dataset", 0)
    if given is None or not any(name.startswith("webdataset.WebDataset") for name in given.made):
        return None
    earlier = [e for e in made if e.order < loader.order]
    own = [e for e in earlier if e.stack == loader.stack]
    return own[-1] if own else earlier[0] if len(earlier) == 1 else None


def _workers(code: ScriptFacts, loader: Event) -> int | None:
    number = loader.arg("num_workers", 5)
    if loader.opened or (number is not None and not code.decided(number)):
        return None
    found = 0 if number is None else number.single()
    return found if isinstance(found, int) else None


def _dealt(code: ScriptFacts, source: Event, processes: int) -> int | None:
    """Return how many files a data set deals out to all processes and their workers; None if that cannot be seen."""
    checks, again = source.arg("empty_check"), source.arg("resampled")
    plain = checks is None or checks.single() is True
    if source.opened or not plain or (again is not None and again.single() is not False):
        return None
    for name, usual in _SPLITTERS.items():
        given = source.arg(name)
        needed = name == "nodesplitter" and processes > 1
        if (given is None and needed) or (given is not None and given.name.rpartition(".")[2] != usual):
            return None
    urls = source.arg("urls", 0)
    named = Call(source.module, source.node, source.name).given("urls", 0)
    if urls is None or named is None or not code.decided(urls):
        return None
    written = meant(source.module, named)
    return _listed(written) or _expanded(code, urls, written)


def _listed(written: ast.expr) -> int | None:
    """Return the length of a list of files: ``[f"{i}.tar" for i in range(96)]``."""
    match written:
        case ast.ListComp(generators=[ast.comprehension(ifs=[], iter=ast.Call(func=ast.Name("range"), args=[number]))]):
            return number.value if isinstance(number, ast.Constant) and isinstance(number.value, int) else None
    return None


def _expanded(code: ScriptFacts, urls: Value, written: ast.expr) -> int | None:
    """Return how many files a text names with braces, as in ``train-{000..095}.tar``."""
    whole, maker = urls.single(), code.maker(urls)
    if isinstance(whole, str):
        text = whole
    elif maker is not None and maker.last in _JOINS and maker.args:
        parts = [each.single() for each in maker.args]
        text = "/".join(part for part in parts if isinstance(part, str))
    else:
        text = _text(written)
    left = _CHOICE.sub("", _RANGE.sub("", text))
    if ".tar" not in text or "::" in text or "*" in text or "{" in left or left == text:
        return None
    count = 1
    for first, last in _RANGE.findall(text):
        count *= abs(int(last) - int(first)) + 1
    for choice in _CHOICE.findall(text):
        count *= choice.count(",") + 1
    return count


def _text(node: ast.AST) -> str:
    """Return what is known of a text by how it is written: ``f"{root}/train-{{000..095}}.tar"``."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
