"""What a component and a set of image lines must have before they are used.

The project promises that the probe finds in an image what its plan says. This is true of a whole catalog only if a
component that has no probe or no image test is rejected when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from trainwright.catalog.component import Component, ProbeStep, Provider
from trainwright.catalog.image_line import LINE_FILE, LOCK_FILE, ImageLine, Line
from trainwright.core.errors import RequestError

_GUIDE = 'CONTRIBUTING.md, "Add a component", has an example.'


def check_provable(component: Component, file: Path) -> None:
    """Refuse a component whose presence in an image could not be proven.

    Args:
        component: as read from its file.
        file: that file; the image tests are beside it.

    Raises:
        RequestError: a provider lacks an expectation or the probe for it, or the image test is missing.
    """
    for name, provider in component.providers.items():
        _check_provider(f"{file}: provider {name}", provider, provider.probe or component.probe)
    tests = file.parent / test_file(component.name)
    try:
        if re.search(r"^\s*def test_\w", tests.read_text(errors="replace"), re.MULTILINE):
            return
        wrong = f"{tests}: contains no test"
    except OSError:
        wrong = f"{tests}: no such file, so {component.name} has no image test"
    raise RequestError(wrong, remedy=f"Add a function test_... to {tests} that passes inside the image. {_GUIDE}")


def test_file(name: str) -> str:
    """The name of the file with a component's image tests."""
    return f"test_{name.replace('-', '_')}.py"


def _check_provider(where: str, provider: Provider, probe: tuple[ProbeStep, ...]) -> None:
    if provider.unchecked:
        if provider.expect:
            raise RequestError(f"{where}: has both expect and unchecked", remedy="Remove one of them.")
        return
    for expect in (provider.expect, *(each.expect for each in provider.ranges if each.expect)):
        if not any("{" in value for value in expect.values()):
            what = "no expectation follows from its version" if expect else "expect is missing"
            raise RequestError(
                f"{where}: {what}, so an image could not be checked against its plan",
                remedy=f'Add what the probe must find, for example expect: {{version: "{{version}}"}}. {_GUIDE}',
            )
        if lost := [fact for fact in expect if not any(_learns(step, fact) for step in probe)]:
            what = "probe is missing" if not probe else "no step of its probe reports them"
            raise RequestError(
                f"{where}: {what}, but expect names {', '.join(lost)}",
                remedy=f"Add a step under probe: that reports them, or remove them from expect. {_GUIDE}",
            )


def _learns(step: ProbeStep, fact: str) -> bool:
    """Whether a step can report a fact; a script that does contains the fact's name."""
    return fact in step.match or bool(step.python and re.search(rf"\b{re.escape(fact)}\b", step.python))


# ---- image lines -----------------------------------------------------------------------------------------------------


def check_lines(entries: Iterable[Line]) -> None:
    """Refuse equivalent lines, and folders whose name does not match the line in them.

    Raises:
        RequestError: naming the files and what to do.
    """
    seen: dict[tuple[str, ...], Path] = {}
    for entry in entries:
        line, path = entry.line, entry.path
        folder = path.parent
        if folder.parent.name != line.framework:
            raise RequestError(
                f"{path}: the framework is {line.framework} but the folder is {folder.parent.name}",
                remedy=f"Move {folder} to {folder.parents[1] / line.framework / folder.name}.",
            )
        if entry.name not in (names := line_names(line)):
            raise RequestError(
                f"{path}: the folder's name does not match the line in it, which is {names[0]}",
                remedy=f"Rename {folder} to {folder.with_name(names[0])}, or correct the line in it.",
            )
        key = (line.framework, line.version, line.cuda, line.python, line.base.kind, line.base.os, line.variant)
        if other := seen.get(key):
            raise RequestError(
                f"{path}: is equivalent to {other}: {' '.join(filter(None, key))}",
                remedy="Remove one of the two, or add variant: with what distinguishes it. A line of your own catalog "
                f"replaces a shipped one with the same path: images/{line.framework}/{other.parent.name}.",
            )
        seen[key] = path


def refuse_old_layout(images: Path) -> None:
    """Refuse lines in the old layout, where each was a file instead of a folder.

    Raises:
        RequestError: naming the first and the commands that move it.
    """
    for path in sorted(images.glob("*/*.yaml")):
        folder, lock = path.with_suffix(""), path.with_suffix(".lock.json")
        moves = [f"mkdir -p {folder}", f"mv {path} {folder / LINE_FILE}"]
        moves += [f"mv {lock} {folder / LOCK_FILE}"] if lock.is_file() else []
        raise RequestError(
            f"{path}: image lines now have a folder each: {folder / LINE_FILE}",
            remedy=f"Move it: {' && '.join(moves)}",
        )


def line_names(line: ImageLine) -> list[str]:
    """The valid names of a line's folder; the usual one comes first.

    Version, CUDA (in AWS's spelling) and variant, which may come before the CUDA version; lines that need only packages
    may omit the version. The Python version may be added if nothing else distinguishes two lines.
    """
    version, cuda = line.version.partition("+")[0], line.published_cuda or line.cuda_tag
    shapes = [(version, cuda, line.variant), (version, line.variant, cuda)]
    if line.base.kind == "debian":
        shapes.insert(0, ("", cuda, line.variant))
    plain = list(dict.fromkeys("-".join(filter(None, shape)) for shape in shapes))
    return [*plain, *(f"{name}-py{line.python.replace('.', '')}" for name in plain)]
