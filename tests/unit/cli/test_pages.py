"""The pages of help as they are printed: every flag has its text, every example can be typed."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import fields

from tests.support.command_lines import typed
from tests.support.in_process import call
from trainwright import __version__
from trainwright.catalog.catalog import load_catalog
from trainwright.cli.pages import FIRST
from trainwright.cli.values import values_of
from trainwright.verbs.find import FAMILIES, NAMES, SHELF, find

ROOT = Path(__file__).resolve().parents[3]


def flags_of(name: str) -> list[str]:
    verb = find(name)
    assert verb
    return [f"--{field.encode_name.replace('_', '-')}" for field in fields(verb.record) if not field.required]


def shown(page: str) -> dict[str, str]:
    """Each flag of a page with its text, wrapped or not."""
    found: dict[str, str] = {}
    flag = ""
    for line in page.splitlines():
        if match := re.fullmatch(r"  \[?(--[a-z-]+)\]?(?: \S+)?(?:  +(.*))?", line):
            flag = match[1]
            found[flag] = match[2] or ""
        elif line.startswith("     ") and flag:
            found[flag] += f" {line.strip()}"
        else:
            flag = ""
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_flag_of_every_verb_has_its_text_in_the_real_output(name: str) -> None:
    done = call("help", name)
    texts = shown(done.stdout)
    rest = {f"--{verb.record.rest}"} if (verb := find(name)) and verb.record.rest else set()
    assert set(texts) == {*flags_of(name)} - rest
    assert all(len(text) > 10 for text in texts.values()), texts
    assert done.returncode == 0 and not done.stderr


def test_what_stands_for_a_value_says_what_it_is() -> None:
    page = call("help", "estimator").stdout
    for shown_flag in ("--job FILE", "--env NAME=VALUE", "--hyperparameters JSON", "--instance-count N", "--spot "):
        assert f"  {shown_flag}" in page
    assert "  [--request] REQUEST " in call("help", "plan").stdout  # the flag may be left out


@pytest.mark.parametrize(
    "words", ["--help build", "build --help", "build -h", "build pytorch:cpu --help", "help build"]
)
def test_help_is_the_same_before_and_after_what_else_is_typed(words: str) -> None:
    done = call(*words.split())
    assert done.stdout == call("help", "build").stdout
    assert "Usage: ./invoke build [REQUEST] [--flags]" in done.stdout


@pytest.mark.parametrize("words", ["diagnose --help", "mirror --help", "mirror pull --help"])
def test_help_comes_before_what_is_missing(words: str) -> None:
    assert call(*words.split()).stdout.startswith(f"Usage: ./invoke {words.split(maxsplit=1)[0]}")


def test_help_of_a_build_is_in_groups_with_metavars_values_and_defaults() -> None:
    page = call("help", "build").stdout
    heads = [line for line in page.splitlines() if re.match("[A-Z]", line)]
    assert heads[2:] == [
        *("Examples", "What to build", "Your files", "How to build", "Many images", "Elsewhere", "After the build"),
        *("Where it comes from", "Output"),
    ]
    texts = shown(page)
    assert all(name in texts["--framework"] for name in load_catalog().frameworks())
    assert "3.13" in texts["--python"] and "nvidia" in texts["--base"]
    assert texts["--progress"].endswith("(default: auto)")
    assert "--with-requirements FILE" in page and "--set NAME=VERSION" in page
    assert "--smoke " in page and "--smoke SMOKE" not in page  # a switch takes nothing


@pytest.mark.parametrize("name", NAMES)
def test_every_verb_has_three_examples_that_can_be_typed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path))  # a page names the newest image of a checkout
    verb = find(name)
    assert verb
    examples = verb.record.examples
    assert len(examples) >= 3
    assert len(set(examples)) == len(examples)
    for line in examples:
        assert line.split()[0] == name
        typed(shlex.split(line))
        page = call("help", name).stdout
        assert f"\n  ./invoke {line}\n" in page.replace(" \\\n     ", "")
        assert all(len(each) <= 80 or ".amazonaws.com" in each for each in page.splitlines())


def test_the_front_page_says_what_this_is_and_what_to_type_first() -> None:
    page = call().stdout
    purpose = "Trainwright builds, proves, rehearses and ships custom Amazon SageMaker training containers."
    assert " ".join(page.split()).startswith(purpose)
    for line, _ in FIRST:
        assert f"  ./invoke {line}" in page
        typed(shlex.split(line))
    first, *others = FAMILIES
    places = [page.index(f"\n  {name} ") for name in first.names]
    assert places == sorted(places)
    assert all(f"\n  {family.heading} " in page for family in others)
    assert max(map(len, page.splitlines())) <= 80
    assert page == call("--help").stdout == call("help").stdout
    assert all(f"  {name} " in call("help", "all").stdout for name in NAMES)


def test_a_verb_takes_one_line_of_the_list() -> None:
    for name in NAMES:
        verb = find(name)
        assert verb and verb.__doc__
        assert re.fullmatch(r"[A-Z].{10,66}\.", verb.__doc__.partition("\n")[0]), name


@pytest.mark.parametrize("word", ["version", "--version", "-V"])
def test_the_version_is_our_own(word: str) -> None:
    assert call(word).stdout == f"Trainwright {__version__}\n"


def test_help_of_an_unknown_verb_names_the_nearest() -> None:
    done = call("help", "biuld")
    assert done.returncode == 2
    assert "no verb 'biuld'. Did you mean build?" in done.stderr


def test_the_checkout_shows_what_maintainers_run_apart() -> None:
    done = subprocess.run([sys.executable, "tasks.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "  Maintainers " in done.stdout
    assert "generate" not in call().stdout
    helped = subprocess.run(
        [sys.executable, "tasks.py", "lock-lines", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "only lines of this framework" in helped.stdout
    assert helped.stdout.startswith("Usage: ./invoke lock-lines ")


def test_an_installed_program_says_its_own_name() -> None:
    code = "from trainwright.__main__ import main; main()"

    def installed(*words: str) -> str:
        argv = [sys.executable, "-c", code, *words]
        path = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(argv, env=path, capture_output=True, text=True, cwd="/", check=False)
        return done.stdout + done.stderr

    for words in [(), ("help", "plan"), ("plan",), ("plan", "pytorch:cu999"), ("bild",), ("plan", "--nonsense")]:
        said = installed(*words)
        assert "./invoke" not in said, said
        assert "trainwright " in said
    assert "./invoke" not in installed("plan", "pytorch:cu999", "--json")


@pytest.mark.parametrize("verb", ["plan", "explain", "lock", "render"])
def test_offers_are_for_the_verb_in_hand(verb: str) -> None:
    done = call(verb, "--framework", "pytorch", "--cuda", "cu119")
    assert done.returncode == 3
    assert f"  ./invoke {verb} --framework pytorch --cuda" in done.stderr
    assert "./invoke build" not in done.stderr
    assert f"./invoke {verb} --framework" in call(verb).stderr


def test_values_are_those_of_the_catalog() -> None:
    catalog = load_catalog()
    lines = [entry.line for entry in catalog.lines]
    assert values_of("frameworks") == catalog.frameworks()
    assert set(values_of("cudas")) >= {line.cuda_tag for line in lines}
    assert all(any(line.goes_by_cuda(tag) for line in lines) for tag in values_of("cudas"))
    assert set(values_of("pythons")) == {line.python for line in lines}
    assert set(values_of("components")) == set(catalog.components)
    for name, _, tag in (request.partition(":") for request in values_of("requests")):
        assert any(line.framework == name and line.goes_by_cuda(tag) for line in lines)
    assert values_of(("a", "b")) == ["a", "b"]


def test_pages_are_plain_unless_a_terminal_wants_colour() -> None:
    def on_a_terminal(**environment: str) -> str:
        ours, theirs = pty.openpty()
        plain_env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM")}
        argv = [sys.executable, "tasks.py", "help", "doctor"]
        subprocess.run(argv, cwd=ROOT, env={**plain_env, **environment}, stdout=theirs, check=True)
        os.close(theirs)
        read = io.BytesIO()
        with contextlib.suppress(OSError):  # the other end is closed
            while chunk := os.read(ours, 65536):
                read.write(chunk)
        os.close(ours)
        return read.getvalue().decode()

    assert "\x1b[1mExamples\x1b[0m" in on_a_terminal(TERM="xterm")
    assert "\x1b" not in on_a_terminal(TERM="xterm", NO_COLOR="1")
    assert "\x1b" not in on_a_terminal(TERM="dumb")
    assert "\x1b" not in call("help", "doctor").stdout


def test_no_page_loads_invoke_or_anything_heavy() -> None:
    heavy = {"invoke", "docker", "boto3", "jinja2", "rich", "yaml"}
    code = (
        "import sys; from trainwright.__main__ import run; run(sys.argv[1:]);"
        f"print(*sorted({heavy!r} & set(sys.modules)), file=sys.stderr)"
    )
    for words in [(), ("help", "all"), ("plan", "--help"), ("version",)]:
        done = subprocess.run(
            [sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert done.stderr.split() == [], words


def test_a_version_of_a_framework_loads_no_page() -> None:
    code = (
        "import sys; from trainwright.__main__ import run; run(sys.argv[1:]);"
        "print('trainwright.cli.pages' in sys.modules, file=sys.stderr)"
    )
    argv = [sys.executable, "-c", code, "plan", "--framework", "pytorch", "--version", "2.6.0", "--cuda", "cu124"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr == "False\n"


def test_shelf_knows_every_verb() -> None:
    assert SHELF.names == list(NAMES)
    assert len(set(NAMES)) == len(NAMES)
