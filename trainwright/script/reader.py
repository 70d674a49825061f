"""A training script and the files in its folder that it imports, as syntax trees. Nothing is run or imported."""

from __future__ import annotations

import ast
import io
import os
import sys
import tokenize
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path

from trainwright.core.data_files import read_bytes
from trainwright.core.findings import Finding, Rule
from trainwright.sagemaker.toolkit import TOOLKIT

UNREADABLE = Rule(
    code="TW100",
    severity="error",
    title="the file is not valid Python for this interpreter",
    source="the parser of the Python that runs trainwright",
    remedy="Fix the line; python -m py_compile FILE shows the same message.",
)
RELATIVE_IMPORT = Rule(
    code="TW101",
    severity="error",
    title="the entry point uses a relative import, but is started as a plain script",
    source=f"{TOOLKIT} starts `python -- train.py`: a script has no parent package",
    remedy="Write `from utils import …`: the script's folder is on the path.",
)
RULES = (UNREADABLE, RELATIVE_IMPORT)
MOST_FILES = 200
MOST_FOLDERS = 20
UNREAD = "A script is a regular file of at most 20 MB that you may read: ls -ld shows its permissions."
DEEPEST = 400
# Names of a script's main function.
MAIN = ("main", "train", "fit", "run", "_mp_fn")
# Syntax newer than this interpreter is rejected as well, so the finding names the version.
_VERSION = ".".join(map(str, sys.version_info[:2]))
_WITHOUT_NODES = frozenset({"ctx", "op", "ops", "id", "attr", "arg", "module", "level", "kind", "type_comment"})


@dataclass(frozen=True, eq=False)
class Module:
    """A file as a syntax tree.

    Attributes:
        path: the file.
        name: its path below the source folder, as findings name it.
        text: its content.
        tree: its syntax tree.
        certain: the entry point always imports it, not only in a function or under a condition.
    """

    path: Path
    name: str
    text: str
    tree: ast.Module
    certain: bool = True

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The parent of each node."""
        found: dict[ast.AST, ast.AST] = {}
        waiting: list[ast.AST] = [self.tree]
        while waiting:
            node = waiting.pop()
            children = _children(node)
            found.update(dict.fromkeys(children, node))
            waiting += children
        return found

    @cached_property
    def functions(self) -> dict[ast.AST, ast.FunctionDef | ast.AsyncFunctionDef]:
        """The innermost function around each node that is in one."""
        found: dict[ast.AST, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        for child, parent in self.parents.items():  # parents come before their children
            inner = parent if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)) else found.get(parent)
            if inner is not None:
                found[child] = inner
        return found

    @cached_property
    def assigned(self) -> dict[str, list[ast.expr]]:
        """What each name gets, wherever it is assigned alone."""
        found: dict[str, list[ast.expr]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found.setdefault(node.targets[0].id, []).append(node.value)
        return found

    @cached_property
    def counted(self) -> frozenset[str]:
        """The attributes whose first value decides nothing: counters, and `self.best is None or loss < self.best`."""
        added = (node.target for node in self.nodes if isinstance(node, ast.AugAssign))
        counters = {target.attr for target in added if isinstance(target, ast.Attribute)}
        return frozenset(counters).union(*map(_best, self.nodes))

    @cached_property
    def imports(self) -> tuple[ast.Import | ast.ImportFrom, ...]:
        """Every import, in source order."""
        return tuple(node for node in self.nodes if isinstance(node, ast.Import | ast.ImportFrom))

    @cached_property
    def aliases(self) -> dict[str, str]:
        """What imported names stand for: ``xm`` for ``torch_xla.core.xla_model``. All imports, wherever they are."""
        known: dict[str, str] = {}
        for node in self.imports:
            if isinstance(node, ast.Import):
                for name in node.names:
                    known[name.asname or name.name.split(".")[0]] = (
                        name.name if name.asname else name.name.split(".")[0]
                    )
            else:
                origin = "." * node.level + (node.module or "")
                for name in node.names:
                    known[name.asname or name.name] = f"{origin}.{name.name}" if origin.strip(".") else name.name
        return known

    @cached_property
    def comments(self) -> dict[int, str]:
        """The comment of each line, if any."""
        found: dict[int, str] = {}
        try:
            for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
                if token.type == tokenize.COMMENT:
                    found[token.start[0]] = token.string
        except (tokenize.TokenError, SyntaxError):
            # In rare cases the parser accepts more than the tokenizer; keep what was read so far.
            pass
        return found

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node that has a position, in source order."""
        placed = [node for node in self.parents if hasattr(node, "lineno")]
        return tuple(sorted(placed, key=attrgetter("lineno", "col_offset")))


def _best(node: ast.AST) -> set[str]:
    """Return the attribute that a condition compares, unless it is None still: the best value so far."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        first, *others = node.values
    elif isinstance(node, ast.If):
        first, others = node.test, [each.test for each in node.orelse[:1] if isinstance(each, ast.If)]
    else:
        return set()
    if not (
        isinstance(first, ast.Compare) and isinstance(first.ops[0], ast.Is) and isinstance(first.left, ast.Attribute)
    ):
        return set()
    compared = {ast.unparse(part) for each in others if isinstance(each, ast.Compare) for part in ast.walk(each)}
    return {first.left.attr} if ast.unparse(first.left) in compared else set()


@dataclass(frozen=True, eq=False)
class Script:
    """An entry point and what it imports from its own folder; ``findings`` are about files that cannot be read.

    ``folders``: those that the script itself puts on ``sys.path``, as beginnings of the names of its files.
    """

    modules: tuple[Module, ...]
    findings: tuple[Finding, ...] = ()
    files: tuple[str, ...] = ()
    cut: bool = field(default=False)
    folders: tuple[str, ...] = ()

    @property
    def entry(self) -> Module | None:
        """The entry point; None if it cannot be read."""
        return self.modules[0] if self.modules and self.files and self.modules[0].name == self.files[0] else None

    @cached_property
    def first_imports(self) -> dict[tuple[str, bool], tuple[int, ast.AST]]:
        """The first import of each package or module, with its position: by (name, whether it is unconditional)."""
        found: dict[tuple[str, bool], tuple[int, ast.AST]] = {}
        every = [(index, module, node) for index, module in enumerate(self.modules) for node in module.imports]
        for place, (index, module, node) in enumerate(every):
            if isinstance(node, ast.ImportFrom) and node.level:
                continue
            function = module.functions.get(node)
            certain = module.certain and (function is None or (index == 0 and function.name in MAIN))
            outer = module.parents.get(node)
            while certain and outer is not None:
                certain, outer = not isinstance(outer, ast.If | ast.Try), module.parents.get(outer)
            package = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for parts in ((package + name.name).split(".") for name in node.names):
                for prefix in (".".join(parts[:length]) for length in range(1, len(parts) + 1)):
                    found.setdefault((prefix, False), (place, node))
                    if certain:
                        found.setdefault((prefix, True), (place, node))
        return found


def parse_module(path: Path, name: str, text: str | bytes, *, certain: bool = True) -> Module | Finding:
    """Return a file as a syntax tree, or the finding that it cannot be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape sequence in the script is not checked
            if isinstance(text, bytes):
                encoding, _ = tokenize.detect_encoding(io.BytesIO(text).readline)
                text = text.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
            tree = ast.parse(text, filename=name)
            _check_depth(tree)
    except SyntaxError as wrong:
        line = wrong.lineno if wrong.lineno and wrong.lineno > 0 else None
        return UNREADABLE.finding(f"not valid Python {_VERSION}: {wrong.msg}", path=name, line=line)
    except (ValueError, LookupError) as wrong:
        return UNREADABLE.finding(f"not valid Python {_VERSION}: {wrong}", path=name)
    except (RecursionError, MemoryError):
        return UNREADABLE.finding("nested too deeply", path=name)
    return Module(path, name, text, tree, certain)


def _check_depth(tree: ast.Module, most: int = DEEPEST) -> None:
    """Reject a tree that is too deep to walk safely.

    Raises:
        RecursionError: the tree is too deep.
    """
    level: list[ast.AST] = [tree]
    for _ in range(most):
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    raise RecursionError


class _Fields(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of a kind of node that can hold nodes of their own: an operator is one object in the whole tree."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        fields = () if kind is ast.Constant else tuple(name for name in kind._fields if name not in _WITHOUT_NODES)
        return self.setdefault(kind, fields)


_FIELDS = _Fields()


def _children(node: ast.AST) -> list[ast.AST]:
    """``ast.iter_child_nodes`` without operators and contexts, nor what it costs to be general."""
    found: list[ast.AST] = []
    for name in _FIELDS[type(node)]:
        value = getattr(node, name, None)
        if isinstance(value, list):
            found += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


class Reader:
    """Reads scripts and what they import, each file once.

    Args:
        written: code that is not on the disk (a notebook's), by the path that it would have.
    """

    def __init__(self, written: Mapping[Path, str] | None = None) -> None:
        self.written = dict(written or {})
        self._parsed: dict[tuple[Path, str], Module | Finding] = {}

    def module(self, path: Path, name: str, *, certain: bool = True) -> Module | Finding:
        """Return a file as a syntax tree, or the finding that it cannot be parsed.

        Raises:
            RequestError: it cannot be read.
        """
        key = path, name
        if key not in self._parsed:
            text = self.written[path] if path in self.written else read_bytes(path, remedy=UNREAD)
            self._parsed[key] = parse_module(path, name, text)
        found = self._parsed[key]
        return replace(found, certain=certain) if isinstance(found, Module) and not certain else found

    def imported(self, module: Module, roots: list[Path]) -> Iterator[tuple[ast.AST, Path]]:
        """Yield the files below ``roots`` that a module imports, with the import node, in source order."""
        for node in module.imports:
            if isinstance(node, ast.Import):
                for name in node.names:
                    yield from ((node, path) for path in self._find(name.name, roots))
                continue
            bases = roots
            if node.level:
                folder = module.path.parent
                for _ in range(node.level - 1):
                    folder = folder.parent
                bases = [folder] if any(folder.is_relative_to(root) for root in roots) else []
            if node.module:
                yield from ((node, path) for path in self._find(node.module, bases))
            for name in node.names:
                dotted = f"{node.module}.{name.name}" if node.module else name.name
                yield from ((node, path) for path in self._find(dotted, bases))

    def script(self, entry: Path, root: Path, folders: tuple[Path, ...] = ()) -> Script:
        """Read a script and, transitively, what it imports from its folder and from ``root``.

        Args:
            entry: the script.
            root: the folder that goes into the job.
            folders: further ones that the script puts on ``sys.path``.

        Raises:
            RequestError: a file cannot be read.
        """
        modules: list[Module] = []
        findings: list[Finding] = []
        files: list[str] = []
        waiting, seen = {entry: True}, {entry}
        # The script's own folder is on the path first, then the folder of the job (PYTHONPATH).
        roots = list(dict.fromkeys((entry.parent, root, *folders)))
        while waiting and len(files) < MOST_FILES:
            # Unconditional imports come first, so that a file imported both ways counts as certain.
            path = next((p for p, certain in waiting.items() if certain), next(iter(waiting)))
            certain = waiting.pop(path)
            name = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
            files.append(name)
            parsed = self.module(path, name, certain=certain)
            if isinstance(parsed, Finding):
                findings.append(parsed)
                continue
            modules.append(parsed)
            if path == entry:
                findings += _relative_imports(parsed)
            added = [each for each in _put_on_path(parsed, root) if each not in roots]
            if added and len(folders) < MOST_FOLDERS:
                return self.script(entry, root, (*folders, *added))  # what was read before may import from there
            for node, found in self.imported(parsed, roots):
                always = certain and isinstance(parsed.parents.get(node), ast.Module)
                if found not in seen or (always and found in waiting):
                    seen.add(found)
                    waiting[found] = always
        starts = tuple(f"{each.relative_to(root).as_posix()}/" for each in folders)
        return Script(tuple(modules), tuple(findings), tuple(files), bool(waiting), starts)

    def _is_file(self, path: Path) -> bool:
        """Return whether a path is a file; a name too long for the file system is not."""
        try:
            return path in self.written or path.is_file()
        except OSError:
            return False

    def _find(self, dotted: str, roots: list[Path]) -> Iterator[Path]:
        """Yield the file of a module and the ``__init__`` files of its packages, if they are below a root."""
        parts = dotted.split(".")
        for root in roots:
            whole = root.joinpath(*parts)
            found = [p for p in (whole.with_name(whole.name + ".py"), whole / "__init__.py") if self._is_file(p)]
            if not found:
                continue
            for depth in range(1, len(parts)):
                package = root.joinpath(*parts[:depth]) / "__init__.py"
                if self._is_file(package):
                    yield package.resolve()
            yield found[0].resolve()
            return


def _put_on_path(module: Module, root: Path) -> list[Path]:
    """Return folders below the job's that a file may put on ``sys.path``: ``join(this_folder, "..", "lib")``."""
    if "sys.path" not in module.text:
        return []
    found = []
    for node in module.nodes:
        parts: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("join", "joinpath", "append", "insert"):
                parts = node.args
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            parts = [node.right]
        names = [each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        folder = Path(os.path.normpath(module.path.parent.joinpath(*names)))
        if names and folder != root and folder.is_relative_to(root) and folder.is_dir():
            found.append(folder)
    return list(dict.fromkeys(found))


def _relative_imports(entry: Module) -> Iterator[Finding]:
    for node in ast.walk(entry.tree):
        if isinstance(node, ast.ImportFrom) and node.level and isinstance(entry.parents.get(node), ast.Module):
            what = "." * node.level + (node.module or "")
            yield RELATIVE_IMPORT.finding(
                f"`from {what} import …` fails in a script: it has no parent package", path=entry.name, line=node.lineno
            )
