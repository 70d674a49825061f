"""The training scripts that paths name: scripts, notebooks and shell scripts themselves, and those in a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainwright.core.data_files import read_text
from trainwright.core.errors import RequestError, nearest
from trainwright.preflight.notebooks import DRIVES, CellCode, scripts_of
from trainwright.script.reader import RELATIVE_IMPORT, UNREAD, Module, Reader, Script
from trainwright.script.shell import Started, started_by

KINDS = (".py", ".ipynb", ".sh")
MOST_SCRIPTS = 2000
# Folders of other people's code, or of no code.
_SKIPPED = {"__pycache__", "node_modules", "site-packages", "build", "dist"}
_NO_SCRIPT = re.compile(r"(__init__|setup|conftest|test_[^/]*|[^/]*_test)\.py")
# Words of what trains, or runs in a job of SageMaker. They only choose the scripts of a folder.
_TRAINS = re.compile(
    r"\.backward\(|\.fit\(|\.train\(|GradientTape|optimizer\.step|\bSM_(MODEL|CHANNEL|HOSTS|NUM|OUTPUT)|/opt/ml/(input|model|output|checkpoints)\b"
    r"|init_process_group|smdistributed|horovod|def _mp_fn"
)
_IN_JOB = re.compile(r"\bSM_(MODEL|CHANNEL|HOSTS|NUM|OUTPUT)|\.backward\(")


@dataclass(frozen=True)
class NamedScript:
    """A script to check.

    Attributes:
        shown: the script, as findings name it.
        script: the script and what it imports.
        names: the path that findings show for each file of the script.
        cells: the code of a notebook, by the name of its script in :attr:`names`.
        notebook: the notebook of these scripts.
        started: how a shell script starts it.
    """

    shown: str
    script: Script
    names: Mapping[str, str]
    cells: Mapping[str, CellCode] = field(default_factory=dict)
    notebook: str = ""
    started: Started | None = None


@dataclass
class NamedScripts:
    """All that paths name: the scripts, and why others could not be read."""

    found: list[NamedScript] = field(default_factory=list)
    unread: dict[str, RequestError] = field(default_factory=dict)

    @contextmanager
    def reading(self, shown: str) -> Iterator[None]:
        """Keep the reason if a file cannot be read, and go on with the others."""
        try:
            yield
        except RequestError as wrong:
            self.unread[shown] = wrong


def subjects(paths: Sequence[str], source_dir: str | None = None, *, only_training: bool = False) -> NamedScripts:
    """Return the scripts that paths name. Of a folder and of a notebook, those that train and that no other imports.

    Args:
        paths: scripts, notebooks, shell scripts and folders.
        source_dir: the folder that is uploaded with the job; by default the folder that is named, or the script's own.
        only_training: of scripts that are named, leave out those that would be left out of a folder.

    Raises:
        RequestError: a path does not exist or names something else, or there is no training script at all.
    """
    if source_dir is not None and not Path(source_dir).is_dir():
        raise RequestError(f"--source-dir {source_dir}: no such folder", remedy="Name the folder of the script.")
    given = list(dict.fromkeys(_placed(Path(path), source_dir) for path in paths))
    for path in given:
        _check(path)
    made, reader = NamedScripts(), Reader()
    named = {path.resolve(): path.parent for path in given if path.suffix == ".py" and path.is_file()}
    _scripts(reader, named, source_dir, made, all_of_them=not only_training)
    for path in given:
        if path.is_dir():
            files = list(_walk(path))
            scripts = {file.resolve(): path for file in files if file.suffix == ".py"}
            _scripts(reader, scripts, source_dir, made, all_of_them=False, known=named)
            notebooks = [file for file in files if file.suffix == ".ipynb"]
        else:
            notebooks = [path] if path.suffix == ".ipynb" else []
        for notebook in notebooks:
            with made.reading(str(notebook)):
                _notebook(notebook, made)
        if path.suffix == ".sh":
            with made.reading(str(path)):
                _shell(path, reader, source_dir, made)
    started = {_file(each) for each in made.found if each.started is not None}
    made.found = [each for each in made.found if each.started is not None or _file(each) not in started]
    if not made.found and made.unread:
        raise next(iter(made.unread.values()))
    if not made.found and not only_training and any(path.is_dir() for path in given):
        folder = next(path for path in given if path.is_dir())
        raise RequestError(f"{folder}: no training script found in this folder", remedy="Name the script itself.")
    return made


def _file(named: NamedScript) -> Path | None:
    entry = named.script.entry
    return entry.path if entry is not None else None


def _placed(path: Path, source_dir: str | None) -> Path:
    """A path below the source folder if it is there, as an estimator's entry point is; else as it is."""
    inside = Path(source_dir or "") / path
    return inside if not path.is_absolute() and inside.is_file() else path


def _check(path: Path) -> None:
    """Refuse a path that names nothing to read."""
    if path.is_dir() or (path.is_file() and path.suffix in KINDS):
        return
    if path.is_file():
        raise RequestError(
            f"{path}: not a Python file, a notebook or a shell script",
            remedy="Name a .py, .ipynb or .sh file, or a folder.",
        )
    if path.exists():
        raise RequestError(f"{path}: not a regular file", remedy="Name a .py, .ipynb or .sh file, or a folder.")
    if path.is_symlink():
        raise RequestError(f"{path}: a symbolic link that leads to no file", remedy=f"ls -l {path}")
    beside = sorted(each.name for each in path.parent.iterdir()) if path.parent.is_dir() else []
    near = nearest(path.name, beside) or [name for name in beside if name.endswith(KINDS)][:8]
    remedy = f"Did you mean {' or '.join(str(path.parent / name) for name in near)}?" if near else "Check the path."
    raise RequestError(f"{path}: no such file or folder", remedy=remedy)


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the scripts and notebooks of a folder, without hidden folders, environments and links.

    Raises:
        RequestError: there are too many.
    """
    count = 0
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name not in _SKIPPED and not Path(where, name, "pyvenv.cfg").exists()
        )
        for name in sorted(files):
            path = Path(where, name)
            if path.suffix in (".py", ".ipynb") and not name.startswith(".") and path.is_file():
                count += 1
                if count > MOST_SCRIPTS:
                    raise RequestError(
                        f"{folder}: more than {MOST_SCRIPTS} scripts and notebooks",
                        remedy="Name the folder of the training code.",
                    )
                yield path


def _scripts(
    reader: Reader,
    candidates: Mapping[Path, Path],
    source_dir: str | None,
    made: NamedScripts,
    *,
    all_of_them: bool,
    known: Collection[Path] = (),
) -> None:
    """Add the scripts among some files, each with the folder in which it was found, without those that are known."""
    modules: dict[Path, Module] = {}
    broken: list[Path] = []
    for path in candidates:
        with made.reading(str(path)):
            module = reader.module(path, path.name)
            if isinstance(module, Module):
                modules[path] = module
            else:
                broken.append(path)
    roots = {path: Path(source_dir or folder).resolve() for path, folder in candidates.items()}
    entries = _entries(reader, modules, roots, all_of_them=all_of_them)
    for path in sorted({*entries, *broken}.difference(known), key=list(candidates).index):
        bases = [candidates[path], *([Path(source_dir)] if source_dir else [])]
        with made.reading(str(path)):
            made.found.append(_subject(reader, path, roots[path], bases))


def _entries(
    reader: Reader, modules: Mapping[Path, Module], roots: Mapping[Path, Path], *, all_of_them: bool
) -> list[Path]:
    """Return the files that start a training: no other of them imports them, and they are written as a script."""
    uses = {
        path: {found for _, found in reader.imported(module, [path.parent, roots[path]])} - {path}
        for path, module in modules.items()
    }
    used = {found for each in uses.values() for found in each}
    first = [path for path in modules if path not in used]
    covered = _reached(first, uses)
    # Files that import each other in a circle: the one that is written as a program.
    for path in sorted(modules, key=lambda p: "__main__" not in modules[p].text):
        if path not in covered:
            first.append(path)
            covered |= _reached([path], uses)
    if all_of_them:
        return first
    return [path for path in first if _trains(path, modules, _reached([path], uses))]


def _reached(start: Iterable[Path], uses: Mapping[Path, set[Path]]) -> set[Path]:
    waiting, seen = list(start), set(start)
    while waiting:
        new = uses.get(waiting.pop(), set()) - seen
        seen |= new
        waiting += new
    return seen


def _trains(path: Path, modules: Mapping[Path, Module], reached: set[Path]) -> bool:
    """Whether a file of a folder is a training script: not a part of a package, a test, or what starts jobs."""
    if _NO_SCRIPT.fullmatch(path.name):
        return False
    text = modules[path].text
    if DRIVES.search(text) and not _IN_JOB.search(text):
        return False
    if any(getattr(node, "level", 0) for node in modules[path].tree.body):
        return False
    return any(_TRAINS.search(modules[each].text) for each in reached if each in modules)


def _subject(
    reader: Reader, entry: Path, root: Path, bases: Sequence[Path], started: Started | None = None
) -> NamedScript:
    """Read a script; findings show its files below the folders that the user named."""
    if started is not None and started.module:  # whose package is below the folder that it is started in
        root = entry.parents[started.script.count(".") + (entry.name == "__main__.py")]
    script = reader.script(entry, root)
    if started is not None and started.module:
        script = replace(script, findings=tuple(f for f in script.findings if f.code != RELATIVE_IMPORT.code))
    paths = {module.name: module.path for module in script.modules}
    names = {}
    for name in script.files:
        path = paths.get(name) or (entry if name == script.files[0] else root / name)
        base = next((each for each in bases if path.is_relative_to(each.resolve())), None)
        names[name] = (base / path.relative_to(base.resolve())).as_posix() if base is not None else str(path)
    return NamedScript(names[script.files[0]], script, names, started=started)


def _notebook(path: Path, made: NamedScripts) -> None:
    """Add the training scripts of a notebook."""
    folder = path.parent.resolve()
    codes = {}
    for code in scripts_of(read_text(path, remedy=UNREAD), str(path)):
        # What `%%writefile ../x.py` or `%%writefile /x.py` writes is a script beside the notebook as well.
        name = re.sub(r"^(\.*/)+", "", os.path.normpath(code.name)) if code.name else path.name
        codes[folder / name] = code
    reader = Reader({place: code.text for place, code in codes.items()})
    modules = {}
    for place, code in codes.items():
        module = reader.module(place, code.name or path.name)
        if isinstance(module, Module):
            modules[place] = module
    entries = _entries(reader, modules, dict.fromkeys(modules, folder), all_of_them=False)
    for place in [p for p in codes if p in entries or p not in modules]:
        script = reader.script(place, folder)
        named = {name: folder / name for name in script.files}
        cells = {f"{path}#{name}": codes[file] for name, file in named.items() if file in codes}
        names = {name: f"{path}#{name}" if file in codes else str(path.parent / name) for name, file in named.items()}
        shown = f"{path}#{codes[place].name}" if codes[place].name else str(path)
        made.found.append(NamedScript(shown, script, names, cells, str(path)))


def _shell(path: Path, reader: Reader, source_dir: str | None, made: NamedScripts) -> None:
    """Add the Python scripts that a shell script starts.

    Raises:
        RequestError: it starts none that can be found.
    """
    folder = Path(source_dir) if source_dir else path.parent
    read = False
    for command in started_by(read_text(path, remedy=UNREAD)):
        last = command
        while (found := _entry(last, (folder, path.parent))) is None and last.otherwise is not None:
            last = last.otherwise
        if found is not None:
            base, entry = found
            made.found.append(_subject(reader, entry.resolve(), folder.resolve(), [base, folder], last))
            read = True
        elif not last.module:  # a module may be one of a package that is installed
            raise RequestError(f"{path}:{last.line}: {last.script} not found", remedy="Give --source-dir.")
    if not read:
        raise RequestError(f"{path}: starts no Python script that can be seen", remedy="Name the Python script.")


def _entry(command: Started, bases: Sequence[Path]) -> tuple[Path, Path] | None:
    """Return the file that a command starts, after the folder that it is in."""
    places = ((base, base / place) for place in command.places for base in bases)
    return next(((base, entry) for base, entry in places if entry.is_file()), None)
