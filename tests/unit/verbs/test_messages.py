"""A command line in a message can be typed: its verb exists, and has every flag that stands in it."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.in_process import call
from trainwright.catalog.catalog import load_catalog
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site
from trainwright.sources import debian_base, fetch
from trainwright.sources.gather import gather

ROOT = Path(__file__).resolve().parents[3]
# In a process of its own: tasks.py adds the developers' verbs to the collection that everybody shares.
NAMES = "import json, tasks; print(json.dumps({c.name: [*c.flags] for c in tasks.namespace.to_contexts()}))"
# Up to what may end a command in a sentence: a quote, a parenthesis, a comment, the next command, the end of the line.
COMMAND = re.compile(r"\./invoke ([a-z][a-z-]*)((?:(?! (?:\||&&|#) |\./invoke|, )[^`;\n()])*)")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def text(node: ast.AST) -> str:
    """A literal, with nothing in the place of what it quotes."""
    if isinstance(node, ast.JoinedStr):
        return "".join(text(part) for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """What a file may show to a user, docstrings included, with its lines."""
    if path.suffix != ".py":
        lines = path.read_text().splitlines()
        # On a page only what is set as code is a command line.
        code = r"(?:^ {4,}|`)(\./invoke[^`]*)" if path.suffix == ".md" else r"(.*)"
        yield from ((number, found) for number, line in enumerate(lines, 1) for found in re.findall(code, line))
        return
    nodes = list(ast.walk(ast.parse(path.read_text())))
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    yield from ((node.lineno, text(node)) for node in nodes if isinstance(node, ast.expr) and id(node) not in parts)


@cache
def verbs() -> dict[str, list[str]]:
    """The flags of every verb."""
    done = subprocess.run([sys.executable, "-c", NAMES], cwd=ROOT, capture_output=True, text=True, check=True)
    known: dict[str, list[str]] = json.loads(done.stdout) | {"help": []}
    return known


def wrong(said: str) -> Iterator[str]:
    """The verbs and flags of the command lines in a text that do not exist."""
    for verb, words in COMMAND.findall(said):
        if verb not in verbs():
            yield f"no verb {verb}"
            continue
        yield from (f"{verb} has no flag {flag}" for flag in FLAG.findall(words) if flag not in verbs()[verb])


def test_what_is_wrong_with_a_command_line():
    said = "or ./invoke render --output DIR --fresh-base, ./invoke rendre; ./invoke build --fresh-base (--nonsense)"
    assert list(wrong(said)) == ["render has no flag --fresh-base", "no verb rendre"]
    assert list(wrong("./invoke lock --upgrade NAME && docker build --pull .")) == []


@pytest.mark.parametrize("folder", ["trainwright", "templates", "devtools", "docs"])
def test_every_command_line_that_is_named_can_be_typed(folder):
    files = [path for end in ("py", "yaml", "md", "j2", "sh") for path in (ROOT / folder).rglob(f"*.{end}")]
    found = [
        f"{path.relative_to(ROOT)}:{line}: {fault}" for path in files for line, t in texts(path) for fault in wrong(t)
    ]
    assert files and not found, "\n".join(found)


def test_an_old_base_is_told_with_the_command_of_the_verb_that_makes_another(monkeypatch, tmp_path):
    """``render`` makes a base as well, and has no flag for a new one."""
    old = debian_base.RootFileSystem(
        tmp_path / "b.tar", "0" * 64, 100, "2026-01-02T03:04:05Z", cached=True, stale=True, size=1
    )
    monkeypatch.setattr(fetch, "make_base", lambda *_, **__: old)
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), load_catalog())
    said: list[str] = []
    fetch.fetch_base(gather(plan, load_catalog(), Site(), flags="--framework pytorch --cuda cpu"), say=said.append)
    assert said == [
        "the base file system is from 2026-01-02; for a new one: "
        "./invoke build --framework pytorch --cuda cpu --fresh-base"
    ]
    assert list(wrong(said[0])) == []


def test_a_component_is_explained_of_the_project_s_image(tmp_path: Path) -> None:
    lost = call("explain", "nccl", cwd=tmp_path)
    assert lost.returncode == 2
    assert "./invoke explain pytorch:cu124 --component nccl" in lost.stderr
    (tmp_path / "trainwright.toml").write_text('[image]\nframework = "pytorch"\ncuda = "cu124"\n')
    told = call("explain", "nccl", cwd=tmp_path)
    assert told.stdout == call("explain", "pytorch:cu124", "--component", "nccl", cwd=tmp_path).stdout
    assert "nccl 2.21.5 from wheel" in told.stdout
    assert "metis" in call("explain", "pytorch", cwd=tmp_path).stdout  # a request, not the component pytorch


def test_two_words_of_a_request_are_one() -> None:
    assert "In one word: pytorch:cu124" in call("plan", "pytorch", "cu124").stderr
    assert "In one word" not in call("plan", "pytorch:cu124", "plan").stderr
    assert "./invoke report --lines" in call("report", "--catalog").stderr


def test_what_is_missing_is_shown_in_its_place() -> None:
    assert "./invoke diagnose LOG " in call("diagnose").stderr
