"""New components and image lines to fill in: everything that can be said is there, what nobody but the author knows is
empty, and the loader refuses the file until it is filled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from trainwright.catalog.checks import line_names, test_file
from trainwright.catalog.component import Component
from trainwright.catalog.image_line import LINE_FILE, ImageLine
from trainwright.core.data_files import read_yaml
from trainwright.core.errors import RequestError
from trainwright.core.fields import VERSION
from trainwright.core.owned import check_replaceable, write_atomically
from trainwright.core.paths import data_root, images_dir, templates_dir
from trainwright.core.records import parse_record
from trainwright.core.text import fits

NAME = r"[a-z0-9][a-z0-9_-]{0,63}"

COMPONENT = """\
name: {quoted}
summary: # what it is, in a line
order: # a number: what changes least has the lowest, and its layers come first (python 10, cuda 20, pytorch 30)
requires: [python]
providers:
  wheel: # or source, debian, ...: who it comes from
    about: # what a user should know of this provider, in a line
    # What comes as an archive or from the distribution has versions, archive, apt; CONTRIBUTING.md says more.
    expect: # by fact, what the probe must find, for example {{version: "{{version}}"}}
probe: # how facts are learnt in the image: a list of python: scripts that print JSON, or of run: with match:
"""
TEMPLATE = """\
{{% import "macros.j2" as docker with context %}}
{{% macro layer(c) %}}
{{{{ docker.install(c) }}}}
{{{{ docker.install_built(c) }}}}
{{% endmacro %}}
"""
TESTS = '''\
"""{name}, in the image."""

# Functions test_...(host, plan, probe, python) that hold in every image with {name}; the loader wants one at least.
'''
HEAD = "# {framework} {version}, begun from {like}: fill what is null. No comment and no evidence was copied.\n"
EVIDENCE = """\
# budget: 5.0 GB # once it is built, what ./invoke build says: an image that is more than 3 % larger gets no tag
evidence: # how you know: a list of {source: "...", date: "2026-11-21", says: "..."}
"""


def new_component(name: str, catalog: str | None, *, say: Callable[[str], None]) -> list[Path]:
    """Begin a component: its data, its template and its image tests.

    Args:
        name: of the component and its folder.
        catalog: the user's own folder of lines and components; by default what is shipped.
        say: told what to do next.

    Returns:
        The new files.

    Raises:
        RequestError: the name is invalid or taken, or a file is there.
    """
    if not fits(NAME, name):
        raise RequestError(
            f"{name}: invalid name of a component", remedy="Use lower-case letters, digits, - and _: tiny-attn"
        )
    root = _root(catalog)
    for taken in (root / "templates" / "components" / name, templates_dir() / "components" / name):
        if taken.exists():
            raise RequestError(
                f"{taken}: exists; nothing was changed",
                remedy="Take another name. To change a shipped component in your own catalog, copy its folder.",
            )
    folder = root / "templates" / "components" / name
    quoted = yaml.safe_dump(name).splitlines()[0]  # 123 and on are names, too
    texts = {"component.yaml": COMPONENT, "Dockerfile.j2": TEMPLATE, test_file(name): TESTS}
    files = {folder / file: text.format(name=name, quoted=quoted) for file, text in texts.items()}
    _write(files)
    flag = f" --catalog {catalog}" if catalog else ""
    say(f"made {folder}: {', '.join(texts)}")
    _fill("empty", f"plan pytorch:cpu --with {name}{flag}", say)
    say("then list it in an image line: the same command names the file and the entry")
    _then("FRAMEWORK", "VERSION", flag, say)
    return list(files)


def new_line(like: str | None, version: str | None, catalog: str | None, *, say: Callable[[str], None]) -> Path:
    """Begin an image line from another one. What follows from the framework's version is left empty, evidence too.

    Args:
        like: the folder of the line to begin from.
        version: of the framework in the new line.
        catalog: the user's own folder of lines and components; by default what is shipped.
        say: told what to do next.

    Returns:
        The new file.

    Raises:
        RequestError: a flag is missing, ``like`` is missing or malformed, the version is its own, or the new file is
            there.
    """
    if not like or not version:
        raise RequestError(
            f"{'--version' if like else '--like'} is missing",
            remedy="For example: ./invoke new-line --like images/pytorch/cu126 --version 2.7.0",
        )
    if not fits(VERSION, version):
        raise RequestError(f"--version {version}: invalid version", remedy="Write it in full: --version 2.7.0")
    places = (place / end for place in (Path(like), data_root() / like) for end in ("", LINE_FILE))
    source = next((path for path in places if path.is_file()), None)
    if source is None:
        raise RequestError(f"--like {like}: no such image line", remedy=f"Name a folder of {images_dir()}/*.")
    data = read_yaml(source)
    line = ImageLine.read(data, str(source))
    if version == line.version:
        raise RequestError(f"--version {version}: {like} has that version", remedy="Name the new line's version.")
    # The version stands in the new file's name, as only one line of a CUDA version can do without.
    new = line.replace(version=version)
    name = next(name for name in line_names(new) if name.startswith(version.partition("+")[0]))
    root = _root(catalog)
    path = root / "images" / line.framework / name / LINE_FILE
    text = HEAD.format(framework=line.framework, version=version, like=source.parent.name)
    text += yaml.safe_dump(_emptied(data, line, version, root), sort_keys=False, default_flow_style=None, width=110)
    _write({path: text + EVIDENCE})
    flag = f" --catalog {catalog}" if catalog else ""
    say(f"made {path}")
    _fill("null, and the evidence", f"list{flag}", say)
    _then(line.framework, version, flag, say)
    return path


def _root(catalog: str | None) -> Path:
    return Path(catalog).absolute() if catalog else data_root()


def _write(files: Mapping[Path, str]) -> None:
    """Write new files, all or none."""
    for path in files:
        check_replaceable(path, str(path))
    for path, text in files.items():
        write_atomically(path, text)


def _fill(what: str, tells: str, say: Callable[[str], None]) -> None:
    say(f"fill what is {what}: ./invoke {tells} says what is still missing")


def _then(framework: str, version: str, flag: str, say: Callable[[str], None]) -> None:
    words = f"--framework {framework} --version {version}{flag}"
    say(f"then ./invoke lock-lines {words}")
    if not flag:
        say("then ./invoke generate")
    say(f"then ./invoke build {words} --smoke")


def _emptied(data: Mapping[str, Any], line: ImageLine, version: str, root: Path) -> dict[str, Any]:
    """A line's data for another version of the framework, with ``None`` for what only its author can know."""
    left_out = {"evidence", "preferred", "notices", "as_of", "budget"}
    new = {key: value for key, value in data.items() if key not in left_out}
    new |= {"version": version, "status": None}
    if line.base.kind == "dlc":
        new["base"] = {**data["base"], "image": None}
    for part in ("components", "options"):
        chosen = data.get(part) or {}
        new[part] = {name: _follow(name, each, line, version, root) for name, each in chosen.items()}
    return new


def _follow(name: str, chosen: Mapping[str, Any], line: ImageLine, version: str, root: Path) -> dict[str, Any]:
    """A component of the new line: the framework itself in the new version; what its version decides is emptied."""
    if "version" not in chosen:  # of the base image: its build looks
        return dict(chosen)
    old, pins = str(chosen["version"]), [pin.split("==") for pin in chosen.get("packages", ())]
    if name == line.main:
        return _pinned(chosen, version, [f"{package}=={version if has == old else has}" for package, has in pins])
    if _tied_to(name, str(chosen["provider"]), root) == line.main:
        # CUDA's version is that of the line; which packages bring it is the framework's to say.
        return _pinned(chosen, old if old == line.cuda else None, [f"{package}==" for package, _ in pins])
    return dict(chosen)


def _pinned(chosen: Mapping[str, Any], version: str | None, pins: list[str]) -> dict[str, Any]:
    return {**chosen, "version": version} | ({"packages": pins} if pins else {})


def _tied_to(name: str, provider: str, root: Path) -> str | None:
    """The component that decides the version of another, by its file in ``root`` or among the shipped ones."""
    files = (folder / "components" / name / "component.yaml" for folder in (root / "templates", templates_dir()))
    file = next((file for file in files if file.is_file()), None)
    found = file and parse_record(Component, read_yaml(file), str(file)).providers.get(provider)
    return found.tied.to if found and found.tied else None
