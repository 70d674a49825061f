"""Parts of the shipped catalog, for tests of what holds whatever lines there are."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jinja2
import yaml

from trainwright.catalog import catalog as reading
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.catalog.checks import line_names
from trainwright.catalog.image_line import ImageLine
from trainwright.core.data_files import parse_yaml, read_text
from trainwright.core.errors import RequestError
from trainwright.core.paths import images_dir, templates_dir

T = TypeVar("T")

HELLO = """\
name: hello
summary: says hello
order: 70
providers:
  debian:
    about: hello
    versions: {'2.10': {}}
    apt: {run: [hello]}
    environment: {HELLO: 'yes'}
    expect: {version: '{version}'}
probe:
  - run: hello --version
    match: {version: ' ([0-9.]+)$'}
"""


def read_once() -> None:
    """From here on this process reads no line and no component twice, as hundreds of tests load the catalog.

    What is shipped does not change, and its records are frozen: they are kept by their path. What a test has copied or
    written is looked at each time, and parsed where its text is new. The readers themselves are their ``__wrapped__``.
    """
    roots = (images_dir(), templates_dir())
    parsed = functools.cache(lambda text: parse_yaml(text, "kept"))

    def once(read: Callable[[Path], T]) -> Callable[[Path], T]:
        kept = functools.cache(read)
        return functools.wraps(read)(lambda file: (kept if any(r in file.parents for r in roots) else read)(file))

    def read_yaml(file: Path) -> Any:
        try:
            return parsed(read_text(file))
        except RequestError:
            return parse_yaml(read_text(file), str(file))

    for name in ("_read_line", "_read_component"):
        setattr(reading, name, once(getattr(reading, name)))
    reading.read_yaml = functools.wraps(reading.read_yaml)(read_yaml)


def compile_once() -> None:
    """Make this process compile each template only once, although most tests have a cache of their own.

    The compiled code depends on the text, the names and the settings of the environment.
    """
    compile_, compiled = jinja2.Environment.compile, {}

    @functools.wraps(compile_)
    def once(environment: Any, source: Any, name: Any = None, filename: Any = None, *more: Any, **named: Any) -> Any:
        if more or named or not isinstance(source, str):
            return compile_(environment, source, name, filename, *more, **named)
        settings = (environment.trim_blocks, environment.lstrip_blocks, environment.autoescape)
        key = (source, name, filename, *settings, *sorted(environment.filters), *sorted(environment.tests))
        if key not in compiled:
            compiled[key] = compile_(environment, source, name, filename)
        return compiled[key]

    jinja2.Environment.compile = once


def debian_lines() -> Catalog:
    """PyTorch's lines on a Debian base; few, and each with a CUDA of its own."""
    whole = load_catalog()
    lines = [e for e in whole.lines if e.line.framework == "pytorch" and e.line.base.kind == "debian"]
    return Catalog(lines, whole.components, whole.rules)


def write_hello(templates: Path) -> Path:
    """The folder of a component of a user's own, whole and small, among the components of ``templates``."""
    folder = templates / "components" / "hello"
    folder.mkdir(parents=True)
    (folder / "component.yaml").write_text(HELLO)
    (folder / "Dockerfile.j2").write_text("{% macro residue(c) %}\nRUN hello\n{% endmacro %}\n")
    (folder / "test_hello.py").write_text("def test_hello(host):\n    assert host.run('hello').rc == 0\n")
    return folder


def write_own(folder: Path) -> Path:
    """A catalog of a user's own in ``folder``: one component, and one line that has it."""
    write_hello(folder / "templates")
    line = folder / "images" / "pytorch" / "cpu-py312"
    line.mkdir(parents=True)
    shipped = images_dir() / "pytorch" / "cpu"
    text = (shipped / "line.yaml").read_text()
    text = text.replace("components:\n", "components:\n  hello: {provider: debian, version: '2.10'}\n")
    (line / "line.yaml").write_text(text.replace('python: "3.11"', 'python: "3.12"', 1))
    shutil.copy(shipped / "lock.json", line)
    return folder


def write_line(images: Path, fields: Mapping[str, Any], lock: str) -> Path:
    """A file of an image line, named as such files are, and its lock."""
    line = ImageLine.read(dict(fields), "the test's line")
    path = images / line.framework / line_names(line)[0] / "line.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(dict(fields)))
    path.with_name("lock.json").write_text(lock)
    return path
