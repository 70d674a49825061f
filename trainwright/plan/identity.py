"""The id of a plan: a digest of the instructions of its Dockerfile and of their inputs.

Descriptions of an image do not change its id: comments, names in templates, evidence, notices, expectations of the
probe. Instructions are known only after rendering, so ids are kept in the user's cache, under a digest of everything
that they could depend on; if that is unchanged, nothing is rendered and jinja2 is not imported.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import msgspec

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.platforms import AMD64
from trainwright.catalog.tools import lock_path, tools_file, tools_lock
from trainwright.core.errors import RequestError
from trainwright.core.owned import write_atomically
from trainwright.core.paths import cache_dir, templates_dir
from trainwright.core.paths import tool_files as program_files
from trainwright.plan.plan import Plan
from trainwright.user.files import NOT_IDENTITY

# The parts of a plan that templates do not see, or that contain the user's folders.
_OPTIONAL = ("allow_change", "apt", "run_sha256")  # part of an id only if they are there
_UNSEEN = ("id", "tags", "notices", "expect", "probes", "user", "budget")
_WORD = re.compile(r"[\w./-]+").fullmatch
_BEGAN = time.time_ns()  # when this process took in its code


def tool_files() -> dict[str, str]:
    """The programs for build steps in every build context (``templates/tools/``), by name."""
    return {f"tools/{path.parent.name}/{path.name}": path.read_text() for path in program_files()}


def identify(plan: Plan, catalog: Catalog) -> str:
    """The id of a plan, from the cache or by rendering its Dockerfile.

    Args:
        plan: with its labels, except that of the id.
        catalog: has the components' templates.

    Raises:
        RequestError: a template is missing or broken, or there are no tools for this Python.
    """
    if plan.base.kind == "dlc":
        # The region only decides where the same container is pulled from.
        name = str(plan.base.image).rpartition("/")[2]
        plan = plan.replace(base=plan.base.replace(image=name))
    carried = _carried(plan)
    files = render_files(plan, catalog)
    key = hashlib.sha256(msgspec.json.encode([_seen(plan), carried, files], enc_hook=os.fspath)).hexdigest()
    loaded = code_is_as_loaded()
    if loaded and (known := _cached(key)):
        return known
    from trainwright.plan.dockerfile import instructions
    from trainwright.plan.render import render

    locked = tools_lock(plan.python, plan.platform).packages
    tools = [(package.name, package.version, package.sha256) for package in locked]
    steps = instructions(render(plan, catalog))
    used = carried | {"tools": tool_files(), "components": _named(carried["components"], "\n".join(steps))}
    found = _digest([steps, used, tools])
    if loaded and _bytes_of(_sources_of_render(plan, catalog)) == files:
        with suppress(OSError, RequestError):  # a plan does not need a writable folder
            write_atomically(_place(key), found)
    return found


def code_is_as_loaded() -> bool:
    """Whether the files of this package are still those that this process runs.

    After an update under a long run, what the old code renders would be kept as what the new code renders, and every
    later run would take it for that. Times of change, as an update can set the others.
    """
    with suppress(OSError):
        files = _named_so(os.path.dirname(__file__), ".py")  # noqa: PTH120 - each plan asks
        return all(os.stat(file).st_ctime_ns < _BEGAN for file in files)  # noqa: PTH116
    return False


def render_files(plan: Plan, catalog: Catalog) -> str:
    """A digest of the files that decide how a plan is rendered: templates, the code of this package, the tools."""
    looked = _LOOKED.get()
    if looked is None:
        return _bytes_of(_sources_of_render(plan, catalog))
    key = (plan.python, plan.platform, *map(str, catalog.template_folders()))
    if key not in looked:
        looked[key] = _bytes_of(_sources_of_render(plan, catalog))
    return looked[key]


_LOOKED: ContextVar[dict[tuple[str, ...], str] | None] = ContextVar("looked", default=None)


@contextmanager
def same_templates() -> Iterator[None]:
    """For many plans at once: the files that decide how they are rendered are looked at only for the first."""
    token = _LOOKED.set({})
    try:
        yield
    finally:
        _LOOKED.reset(token)


def _carried(plan: Plan) -> dict[str, Any]:
    """What is in the build context besides the Dockerfile and the tools, and what a root file system is made of.

    Instructions contain the checksums of the archives that they download, but wheels only by component.
    """
    left_out = (*NOT_IDENTITY, *(name for name in _OPTIONAL if not getattr(plan.user, name)))
    return {
        "base": plan.base.os if plan.platform == AMD64 else f"{plan.base.os} {plan.platform}",
        "components": {c.name: [c.files, [(s.package, s.file, s.sha256) for s in c.sources]] for c in plan.components},
        "user": {key: value for key, value in plan.user.as_json().items() if key not in left_out},
    }


def _named(components: Mapping[str, Any], steps: str) -> dict[str, Any]:
    """The components with only those of their files that instructions name, themselves or with their folder."""
    words = set(re.findall(r"\bcomponents/([\w./-]+)", steps))

    def named(component: str, file: str) -> bool:
        path = f"{component}/{file}"
        # The pattern cannot tell where a name with other characters ends: any mention counts.
        return component in words or path in words or (not _WORD(path) and f"components/{path}" in steps)

    return {
        name: [{file: about for file, about in files.items() if named(name, file)}, sources]
        for name, (files, sources) in components.items()
    }


def _seen(plan: Plan) -> list[Any]:
    """The part of a plan that templates may see."""
    plan = plan.replace(components=tuple(component.replace(evidence=()) for component in plan.components))
    return [getattr(plan, name) for name in plan.__struct_fields__ if name not in _UNSEEN]


def _sources_of_render(plan: Plan, catalog: Catalog) -> Iterable[str]:
    for folder in catalog.template_folders():
        yield from sorted(_named_so(str(folder), ".j2", deeper=True))
    yield from sorted(_named_so(os.path.dirname(__file__), ".py"))  # noqa: PTH120 - each plan asks
    yield from sorted(_named_so(str(templates_dir() / "tools"), "", deeper=True))
    yield from (str(tools_file()), str(lock_path(plan.python, plan.platform)))


def _named_so(folder: str, ending: str, *, deeper: bool = False) -> Iterator[str]:
    """The files of a folder, and of the folders in it, whose names end so. Each plan asks; Path.glob takes longer."""
    with suppress(OSError):
        files, folders = _entries(folder, ending, os.stat(folder).st_mtime_ns)  # noqa: PTH116
        yield from files
        for each in folders if deeper else ():
            yield from _named_so(each, ending)


@functools.lru_cache(maxsize=512)
def _entries(folder: str, ending: str, changed: int) -> tuple[tuple[str, ...], tuple[str, ...]]:  # noqa: ARG001
    """The files of a folder whose names end so, and the folders in it; read once until something comes or goes."""
    with os.scandir(folder) as found:
        entries = [(entry.path, entry.is_dir()) for entry in found]
    files = tuple(path for path, is_folder in entries if not is_folder and path.endswith(ending))
    return files, tuple(path for path, is_folder in entries if is_folder)


def _bytes_of(files: Iterable[str]) -> str:
    return _digest_of(tuple(map(_state, files)))


def _state(file: str) -> tuple[str, int, int, int]:
    """A file's path and what changes with its content; zeros for what cannot be read as a file."""
    try:
        now = os.stat(file)  # noqa: PTH116 - a hundred times for each plan
    except OSError:
        return file, 0, 0, 0
    return (file, now.st_ino, now.st_size, now.st_mtime_ns) if stat.S_ISREG(now.st_mode) else (file, 0, 0, 0)


@functools.lru_cache(maxsize=64)
def _digest_of(files: tuple[tuple[str, int, int, int], ...]) -> str:
    """A digest of the names and contents of files, read once while they stay as they are: plans share templates."""
    digest = hashlib.sha256()
    for path, inode, *_ in files:
        file = Path(path)
        content = file.read_bytes() if inode else b""
        digest.update(f"{file.parent.name}/{file.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _digest(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _place(key: str) -> Path:
    return cache_dir() / "plan-ids" / key[:2] / key[2:]


def _cached(key: str) -> str | None:
    """An id from the cache; None if it is missing or truncated."""
    with suppress(OSError, ValueError, RequestError):
        text = _place(key).read_text()
        return text if re.fullmatch(r"[0-9a-f]{64}", text) else None
    return None
