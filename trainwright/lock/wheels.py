"""Makes the lock of an image line: uv's resolver, run once over all components together.

It uses the package indexes of this machine's pip configuration; none of their URLs end up in the lock.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from trainwright.catalog.platforms import AMD64
from trainwright.catalog.wheel_lock import PLATFORM, Lock, LockedPackage, normalise, platform_of
from trainwright.core import runner
from trainwright.core.errors import Conflict, Failure, RequestError, SourceError
from trainwright.core.masking import mask
from trainwright.site.uv_settings import index_settings, insecure_hosts

if TYPE_CHECKING:
    from packaging.tags import Tag

    from trainwright.site.site import Site

_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}  # PEP 600
_PIN = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]*)(?:\[[^\]]*\])?==(?P<version>[^\s;]+)[^#]*(?:#\s*via (?P<via>.*))?"
)


def lock_line(line: Mapping[str, Any], image_platform: str = AMD64) -> Lock:
    """The lock of an image line: all its components and options, resolved together.

    Args:
        line: the content of an image line's file (``images/<framework>/<line>/line.yaml``). An ``index`` of a component
            is asked only if this machine's own indexes have no answer, so a site without it can still lock.
        image_platform: of its images.

    Raises:
        SourceError: an index cannot be reached.
        Conflict: the line's packages conflict.
    """
    chosen = {**line.get("components", {}), **line.get("options", {})}
    roots = {name: tuple(entry["packages"]) for name, entry in chosen.items() if entry.get("packages")}
    indexes = tuple(dict.fromkeys(entry["index"] for entry in chosen.values() if entry.get("index")))
    constraints, python = tuple(line.get("constraints", ())), str(line.get("python", "3.11"))
    base = line.get("base", "")
    platform = platform_of(base if isinstance(base, str) else base["os"], image_platform)
    excluded = tuple(line.get("excluded", ()))
    if not roots:  # a line that takes everything from its base image
        return Lock(python=python, platform=platform, packages=())
    stated = {name: needs for entry in chosen.values() for name, needs in (entry.get("needs") or {}).items()}
    resolve = partial(
        resolve_lock,
        roots,
        constraints,
        python,
        platform,
        excluded=excluded,
        as_of=line.get("as_of"),
        stated=stated,
    )
    try:
        return resolve()
    except Conflict:
        if not indexes:
            raise
    return resolve(indexes=indexes)


def resolve_lock(
    roots: Mapping[str, Sequence[str]],
    constraints: Sequence[str] = (),
    python: str = "3.11",
    platform: str = PLATFORM,
    *,
    excluded: Sequence[str] = (),
    as_of: str | None = None,
    stated: Mapping[str, Sequence[str]] | None = None,
    indexes: Sequence[str] = (),
    site: Site | None = None,
) -> Lock:
    """Resolve all roots together and pin one file per package.

    Args:
        roots: component name to requirements (``torch==2.6.0``).
        constraints: bounds for packages that may or may not be needed (``nvidia-nvjitlink-cu12==12.1.105``).
        python: CPython version of the image, major and minor.
        platform: as uv names it: machine, then manylinux with the glibc version.
        excluded: packages that the image gets elsewhere; neither they nor what only they need is locked.
        as_of: a date (``2022-10-05``); later files are ignored. The index must state the times of its files.
        stated: what packages depend on, by name, instead of what uv would have to build them to find out.
        indexes: package indexes in addition to those of pip's configuration.
        site: its indexes and folders are used instead of those of pip's configuration.

    Raises:
        SourceError: uv is missing, an index cannot be reached, or a package has no file for the platform.
        Conflict: no set of versions satisfies everything.
        RequestError: a requirement cannot be read.
    """
    from trainwright.site.site import load_site

    with tempfile.TemporaryDirectory(prefix="trainwright-lock-") as name:
        folder = Path(name)
        inputs = {_root_file(component): component for component in roots}
        for file, component in inputs.items():
            (folder / file).write_text("\n".join(roots[component]) + "\n")
        bounds = _bounds(constraints, excluded, as_of, folder)
        if stated:
            _state(stated, folder)
        environment, flags = index_settings(indexes, site)
        shared = [*bounds, "--python-version", python, "--python-platform", platform, *flags]
        graph = _uv(["--annotation-style=line", *inputs, *shared], folder, environment)
        pins, needed_by = _read_graph(graph)
        files = compile_pins(pins, python, platform, indexes=indexes, site=site, bounds=bounds, folder=folder)
        found = _read_files(files, _tag_ranks(python, platform), folder)
        _check_same(pins, found)
        # Without a site: this machine's settings (there is no site file in that folder).
        _ask_sizes(found, site or load_site(cwd=folder))
    closures = _closures(needed_by, inputs)
    packages = (
        {"name": name, "version": pins[name], "components": closures.get(name, ())}
        | {key: facts[key] for key in ("file", "sha256", "size")}
        for name, facts in found.items()
    )
    return Lock(
        python=python,
        platform=platform,
        insecure_hosts=insecure_hosts(environment),
        packages=tuple(LockedPackage(**each) for each in packages),
    )


def compile_pins(
    pins: Mapping[str, str],
    python: str,
    platform: str,
    *,
    indexes: Sequence[str] = (),
    site: Site | None = None,
    bounds: Sequence[str] = (),
    folder: Path,
) -> str:
    """Every file of these packages, as a ``pylock.toml``; paths in it are relative to ``folder``.

    Args:
        pins: version by name.
        python, platform, indexes, site: as for :func:`resolve_lock`.
        bounds: further arguments for uv.
        folder: where uv runs.

    Raises:
        SourceError, Conflict: as :func:`resolve_lock`.
    """
    environment, flags = index_settings(indexes, site)
    (folder / "pins.txt").write_text("".join(f"{name}==={version}\n" for name, version in pins.items()))
    shared = [*bounds, "--python-version", python, "--python-platform", platform, *flags]
    return _uv(["--no-deps", "--format=pylock.toml", "pins.txt", *shared], folder, environment)


def _bounds(constraints: Sequence[str], excluded: Sequence[str], as_of: str | None, folder: Path) -> list[str]:
    """uv's arguments that bound a resolution; writes the files that they name."""
    (folder / "constraints.txt").write_text("\n".join(constraints) + "\n")
    bounds = ["--constraints", "constraints.txt"]
    if excluded:
        # How to omit a dependency in uv: an override whose marker is never true.
        (folder / "overrides.txt").write_text("".join(f"{each} ; sys_platform == 'never'\n" for each in excluded))
        bounds += ["--overrides", "overrides.txt"]
    if as_of:
        bounds += ["--exclude-newer", f"{as_of}T00:00:00Z"]
    return bounds


def _state(stated: Mapping[str, Sequence[str]], folder: Path) -> None:
    """What uv is to believe about the dependencies of packages: a setting, so it goes into a file where uv runs."""
    tables = (
        f"[[dependency-metadata]]\nname = {json.dumps(n)}\nrequires-dist = {json.dumps([*stated[n]])}\n" for n in stated
    )
    (folder / "uv.toml").write_text("\n".join(tables))


def _root_file(component: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", component):
        raise RequestError(f"{component!r} is not a valid component name", remedy="Use letters, digits and - only.")
    return f"{component}.in"


# ---- uv ----------------------------------------------------------------------------------------------------------


def _uv(arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    argv = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--color=never", *arguments]
    done = runner.run(argv, cwd=folder, env=environment, timeout=900)
    if done.ok:
        return done.stdout
    raise _failure(done.stderr or done.stdout)


def _failure(words: str) -> Failure:
    """The resolver's message as a failure; shortened, and without the secrets of an index."""
    said = mask(" ".join(words.split()))
    short = said if len(said) <= 900 else f"{said[:600]} ... {said[-280:]}"
    if "no solution found" in said.lower():
        return Conflict(
            "the Python packages conflict",
            remedy="Change the versions or constraints of the image line accordingly, then lock again.",
            rows=[{"constraint": "Python packages of the line", "evidence": re.sub(r"^.*? cause: ", "", short)}],
            offers=[],
        )
    if "couldn't parse requirement" in said.lower():
        return RequestError(f"a requirement cannot be read: {short}", remedy="Correct it in the image line.")
    missing = "no module named uv" in said.lower()
    remedy = "Install uv (requirements.txt names it)." if missing else "Check the index settings: pip config list."
    return SourceError(f"the package index gave no answer: {short}", remedy=remedy)


def _read_graph(text: str) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Pins, and per package what requires it: package names, or ``-r <component>.in`` for a root."""
    pins: dict[str, str] = {}
    needed_by: dict[str, list[str]] = {}
    for line in text.splitlines():
        match = _PIN.fullmatch(line.strip())
        if match is None:
            continue
        name = normalise(match["name"])
        pins[name] = match["version"]
        needed_by[name] = [part.strip() for part in (match["via"] or "").split(",") if part.strip()]
    return pins, needed_by


def _closures(needed_by: Mapping[str, Sequence[str]], inputs: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Per package the components that depend on it, sorted."""
    reached: dict[str, set[str]] = defaultdict(set)
    dependencies: dict[str, set[str]] = defaultdict(set)
    pending: list[tuple[str, str]] = []
    for name, askers in needed_by.items():
        for asker in askers:
            if asker.startswith("-r "):
                pending.append((name, inputs[Path(asker[3:]).name]))
            elif not asker.startswith("-c "):
                dependencies[normalise(asker.partition("[")[0])].add(name)
    while pending:
        name, component = pending.pop()
        if component not in reached[name]:
            reached[name].add(component)
            pending.extend((child, component) for child in dependencies[name])
    return {name: tuple(sorted(found)) for name, found in reached.items()}


def _read_files(text: str, ranks: Mapping[Tag, int], folder: Path) -> dict[str, dict[str, Any]]:
    """Per package its version and best file: name, sha256, size and URL (``folder``: what paths are relative to).

    Raises:
        SourceError: a package has no file for the platform, or no sha256.
    """
    found = {}
    for package in tomllib.loads(text).get("packages", ()):
        best = _best_file(package, ranks)
        address = best.get("url") or str(folder / best["path"])
        facts = {"version": package["version"], "file": file_name(best), "address": address}
        facts |= {"sha256": best.get("hashes", {}).get("sha256"), "size": best.get("size")}
        parts = urlsplit(address)
        local = Path(unquote(parts.path)) if parts.scheme in {"", "file"} else None
        if local is not None and local.is_file():
            facts["size"] = local.stat().st_size
            with local.open("rb") as file:
                facts["sha256"] = facts["sha256"] or hashlib.file_digest(file, "sha256").hexdigest()
        if facts["sha256"] is None:
            raise SourceError(f"{facts['file']}: the index states no sha256", remedy="Use an index that does.")
        found[normalise(package["name"])] = facts
    return found


def _best_file(package: Mapping[str, Any], ranks: Mapping[Tag, int]) -> Mapping[str, Any]:
    """The best compatible wheel (a later build first), or the sdist if no wheel is compatible."""
    from packaging.utils import parse_wheel_filename

    offered = []
    for wheel in package.get("wheels", ()):
        *_, build, tags = parse_wheel_filename(file_name(wheel))
        fitting = [ranks[tag] for tag in tags if tag in ranks]
        if fitting:
            offered.append((-min(fitting), build, file_name(wheel), wheel))
    best = max(offered, key=lambda each: each[:3])[3] if offered else package.get("sdist")
    if best is None:
        raise SourceError(
            f"{package['name']} {package['version']}: no wheel fits the platform and there is no sdist",
            remedy="Choose another version, or constrain it in the image line.",
        )
    return best  # type: ignore[no-any-return]


def file_name(entry: Mapping[str, Any]) -> str:
    """The name of a file in a ``pylock.toml``, which has its URL or path."""
    return str(entry.get("name") or unquote(urlsplit(entry.get("url") or entry["path"]).path.rpartition("/")[2]))


def _tag_ranks(python: str, platform: str) -> dict[Tag, int]:
    """The wheel tags that the image supports, best (0) first.

    Raises:
        RequestError: the platform is not of the form ``<machine>-manylinux_2_<n>``.
    """
    from packaging.tags import compatible_tags, cpython_tags

    match = re.fullmatch(r"(?P<machine>[a-z0-9_]+?)-manylinux_2_(?P<minor>[0-9]{1,3})", platform)
    if match is None:
        raise RequestError(f"{platform}: not a platform", remedy=f"For example {PLATFORM}.")
    platforms = []
    for minor in range(int(match["minor"]), min(_LEGACY) - 1, -1):
        platforms.append(f"manylinux_2_{minor}_{match['machine']}")
        if minor in _LEGACY:
            platforms.append(f"{_LEGACY[minor]}_{match['machine']}")
    platforms.append(f"linux_{match['machine']}")
    version = tuple(int(part) for part in python.split(".")[:2])
    interpreter = "cp" + "".join(str(part) for part in version)
    # Up to 3.7 the ABI of wheels is named after the allocator as well: cp37-cp37m.
    abi = f"{interpreter}m" if version < (3, 8) else interpreter
    ordered = [
        *cpython_tags(version, [abi], platforms),
        *compatible_tags(version, interpreter, platforms),
    ]
    return {tag: rank for rank, tag in reversed(list(enumerate(ordered)))}


def _check_same(pins: Mapping[str, str], found: Mapping[str, Mapping[str, Any]]) -> None:
    """Check that both runs of the resolver agree (the index may change in between)."""
    from packaging.version import Version

    second = {name: facts["version"] for name, facts in found.items()}
    differ = sorted(
        name
        for name in pins.keys() | second.keys()
        if name not in pins or name not in second or Version(pins[name]) != Version(second[name])
    )
    if differ:
        raise SourceError(f"the package index changed while it was read: {', '.join(differ)}", remedy="Lock again.")


def _ask_sizes(found: Mapping[str, dict[str, Any]], site: Site) -> None:
    """Fill in sizes that the index omitted, if the server states them; a lock is complete without them."""
    from concurrent.futures import ThreadPoolExecutor

    from trainwright.site.web import ask_size

    def ask(facts: dict[str, Any]) -> None:
        size = ask_size(facts["address"], site, seconds=30)
        facts["size"] = size if isinstance(size, int) else None

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, [facts for facts in found.values() if facts["size"] is None]))
