"""The whole test run, quick checks first: lint, types, generated files, unit tests, then the real builds."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainwright.cli.output import say
from trainwright.core.errors import EngineError, Failure
from trainwright.core.paths import locked
from trainwright.engine.engine import Engine, connect

ROOT = Path(__file__).resolve().parent.parent
ENGINE_JOBS = 3  # modules of engine tests at a time: they wait for sleeping jobs more than they compute
ROOM = 52_000_000_000  # bytes; more than the fullest disk of a whole run, less the disk before it
ROOM_IF_PRUNED = 40_000_000_000  # the same if keep_room deletes old build cache during the run
NEARLY_FULL = 24_000_000_000  # bytes; from here on old build cache goes
FULL = 16_000_000_000  # bytes, more than concurrent tests write before the next one starts: recent cache goes, too
KEPT_CACHE = "8GB"  # the most recent part of the build cache, which running tests use
ENDS_WITHIN = 60  # seconds that an engine without containers may take
RECENT = "until=20m"  # tests that build twice find what they built: their modules take less
# Where the tests with these marks are: collecting all others takes each process of pytest half a minute of a core.
MARKED = {"browser": ("tests/browser",), "engine": ("tests/e2e", "tests/image")}
TEMPLATES = tuple(f"infra/{name}.yaml" for name in ("trainwright", "adhoc", "replica", "registry", "upload", "gpu"))
CODE = ["trainwright", "devtools", "tests", "templates", "bench", "tasks.py"]


class ChecksFailed(Failure):
    """A check or a test failed."""

    kind = "tests"


def run_tests(*, fast: bool, select: str | None) -> None:
    """Run every check, and stop at the first kind that fails.

    Args:
        fast: leave out what needs a container engine, the linter of Dockerfiles, and unit tests that take long.
        select: a pytest ``-k`` expression; lint and types are then left out.

    Raises:
        ChecksFailed: something failed.
        EngineError: ``CI`` or ``TRAINWRIGHT_REQUIRE_ENGINE`` is set, and no engine or browser can be set up.
    """
    add_packages()
    from trainwright.engine.setup import ensure_tool

    python = [sys.executable, "-m"]
    pytest = [*python, "pytest", *(["-k", select] if select else [])]
    if not select:
        _step("lint", [*python, "ruff", "check", *CODE])
        _step("format", [*python, "ruff", "format", "--check", *CODE])
        with _beside("types", [*python, "mypy"]):
            _generated_files_are_fresh()
            if not fast:
                _lint_dockerfiles()
            _step("infrastructure", [str(Path(sys.executable).with_name("cfn-lint")), *TEMPLATES])
    # pytest exits with 5 where -k chose nothing of one half.
    empty = (5,) if select else ()
    # A module's fixtures are shared by its tests, so engine tests of a module stay together (see tests/conftest.py).
    side_by_side = [] if select else ["-n", "auto", "--dist", "worksteal"]
    marks = "not engine and not browser" + (" and not slow and not hypothesis" if fast else "")
    _step("unit tests", [*pytest, *side_by_side, "-m", marks], empty)
    if not fast and not select:
        _planted_faults()
    if fast:
        say(
            "left out (--fast): hadolint, planted faults, slow and generated tests, pages in a browser, "
            "tests that build and run images"
        )
        return
    if _has("the report pages in a browser", lambda: ensure_tool("chromium", say)):
        _step("pages in a browser", [*pytest, "-m", "browser", *MARKED["browser"]], empty)
    if not _has("the tests that build and run images", lambda: make_room(connect(say=say))):
        return
    side_by_side = [] if select else ["-n", str(ENGINE_JOBS), "--dist", "loadfile", "--no-loadscope-reorder"]
    _step("real builds", [*pytest, *side_by_side, "-m", "engine", "--durations=25", *MARKED["engine"]], empty)


def _has(tests: str, needed: Callable[[], object]) -> bool:
    """Whether this machine has what some tests need, or takes it; where every test is required, it must."""
    try:
        needed()
    except EngineError as lacking:
        if os.environ.get("CI") or os.environ.get("TRAINWRIGHT_REQUIRE_ENGINE"):
            raise
        say(f"NOT RUN: {tests}: {lacking.message}")
        return False
    return True


def make_room(engine: Engine) -> None:
    """See that the engine's disk has room for the images of the tests.

    A machine that is made for a run (``TRAINWRIGHT_TEST_PRUNE``, set by ``.ci/run``) may still have what an earlier run
    left in its engine; that is deleted there, and nowhere else. The engine is then started again: one that has deleted
    cache from before its start no longer builds on layers that are made again (``_LOST_LAYER`` in
    :mod:`trainwright.build.build`). For that reason, it is all deleted here if :func:`keep_room` might have to later.

    Args:
        engine: the engine that builds the images.

    Raises:
        EngineError: the disk has too little room, or the engine does not start again.
    """
    made_for_the_run = bool(os.environ.get("TRAINWRIGHT_TEST_PRUNE"))
    free = _free(engine)
    if made_for_the_run and free < ROOM + NEARLY_FULL and _holds_something(engine):
        say(f"{free / 1e9:.0f} GB are free: deleting the images and the cache that no container of this engine uses")
        _client(engine, "system", "prune", "--all", "--force", "--volumes")
        _restart(engine)
        free = _free(engine)
    needed = ROOM_IF_PRUNED if made_for_the_run else ROOM
    if free < needed:
        has = f"{engine.data_root} has {free / 1e9:.0f} GB"
        raise EngineError(
            f"the tests that build and run images need {needed / 1e9:.0f} GB; {has}",
            remedy=f"Free the disk, for example: {engine.client.path} system prune --all",
        )


def keep_room(engine: Engine) -> None:
    """Delete the oldest build cache if the engine's disk is nearly full and the machine was made for this run.

    On a full disk, correct builds fail. The cache of one CUDA image is some 20 GB that no later test needs. What was
    used a short time ago stays until the disk is really full, as some tests hold a second build to do nothing.

    Args:
        engine: the engine that builds the images.
    """
    for needed, filters in ((NEARLY_FULL, ("--filter", RECENT)), (FULL, ())):
        if _free(engine) < needed and os.environ.get("TRAINWRIGHT_TEST_PRUNE"):
            _client(engine, "builder", "prune", "--all", "--force", "--keep-storage", KEPT_CACHE, *filters)


def _holds_something(engine: Engine) -> bool:
    """Whether the engine has images or build cache."""
    sizes = _client(engine, "system", "df", "--format", "{{.Size}}").split()
    return any(size != "0B" for size in sizes)


def _client(engine: Engine, *words: str) -> str:
    """What the engine's client prints."""
    return subprocess.run(  # noqa: S603 - argv is ours
        [engine.client.path, *words],
        env={**os.environ, **engine.cli_env},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


def _restart(engine: Engine) -> None:
    """End this machine's engine by its pid, and start it as ``doctor --fix`` does."""
    from trainwright.engine.setup import PID_FILE, alive, start

    if not engine.local or not PID_FILE.is_file():
        return
    pid = int(PID_FILE.read_text())
    os.kill(pid, signal.SIGTERM)
    ends = time.monotonic() + ENDS_WITHIN
    while alive(pid) and time.monotonic() < ends:
        time.sleep(0.1)
    start(say, answers=lambda: bool(_client(engine, "version", "--format", "{{.Server.Version}}").strip()))


def _free(engine: Engine) -> int:
    """Bytes that the engine's disk has free; no limit where it is on another machine."""
    return shutil.disk_usage(engine.data_root).free if engine.local else sys.maxsize


def _planted_faults() -> None:
    """A few faults that are the same in every run: whether the unit tests see them."""
    from devtools.mutants import FLOOR, SAMPLE, SAMPLED, SEED, run_mutants

    started = time.monotonic()
    say("planted faults")
    run_mutants(",".join(SAMPLED), seed=SEED, sample=SAMPLE, floor=FLOOR, say=say)
    say(f"planted faults: ok, {time.monotonic() - started:.0f} s")


def add_packages() -> None:
    """Install what only tests need (``requirements-dev.txt``) into the environment that runs this, once.

    uv does it in a third of pip's time, most of it for bytecode that a run of the tests never reads; where pip is
    configured in a way that uv cannot be told, pip does.

    Raises:
        ChecksFailed: it could not be installed.
    """
    wanted, done = ROOT / "requirements-dev.txt", Path(sys.prefix, "requirements-dev.txt")
    if done.is_file() and done.read_bytes() == wanted.read_bytes():
        return
    with locked(done):
        uv = str(Path(sys.executable).with_name("uv"))
        install = "import sys; from trainwright.site.uv_install import main; main(*sys.argv[1:])"
        with_uv = subprocess.run([sys.executable, "-c", install, uv, str(wanted), "--quiet"], cwd=ROOT, check=False)  # noqa: S603
        if with_uv.returncode:
            pip = [sys.executable, "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--quiet"]
            _step("packages that only tests need", [*pip, "--require-hashes", "-r", str(wanted)])
        shutil.copy(wanted, done)


def _lint_dockerfiles() -> None:
    """Lint Dockerfiles of image lines, options added and not, that have every shape of instruction among them."""
    from devtools.variants import sample, shipped_dockerfiles

    with tempfile.TemporaryDirectory(prefix="trainwright-") as scratch:
        made = shipped_dockerfiles()[1]
        chosen = sample(text for _, plain, variants in made for text in (plain, *(each.text for each in variants)))
        files = [Path(scratch, f"{number}.Dockerfile") for number in range(len(chosen))]
        for file, text in zip(files, chosen, strict=True):
            file.write_text(text)
        hadolint = str(Path(sys.executable).with_name("hadolint"))
        _step("dockerfiles", [hadolint, "--config", str(ROOT / ".hadolint.yaml"), *map(str, files)])


def _generated_files_are_fresh() -> None:
    from devtools.generated import generate
    from trainwright.lock.refresh import refresh_locks

    generate(check=True)
    refresh_locks(None, None, check=True, say=lambda _: None)
    say("generated files: fresh")


@contextmanager
def _beside(name: str, argv: list[str]) -> Iterator[None]:
    """A check that uses one core, beside what the body does; told when both have ended."""
    started = time.monotonic()
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:  # noqa: S603
        try:
            yield
            out, _ = running.communicate()
        except BaseException:
            running.kill()
            raise
    sys.stdout.buffer.write(out)
    sys.stdout.flush()
    if running.returncode:
        raise ChecksFailed(f"{name} failed (exit code {running.returncode})", remedy=f"Again alone: {' '.join(argv)}")
    say(f"{name}: ok, {time.monotonic() - started:.0f} s")


def _step(name: str, argv: list[str], accepted: tuple[int, ...] = ()) -> None:
    started = time.monotonic()
    say(name)
    done = subprocess.run(argv, cwd=ROOT, check=False)  # noqa: S603 - argv is ours
    if done.returncode not in (0, *accepted):
        raise ChecksFailed(f"{name} failed (exit code {done.returncode})", remedy=f"Again alone: {' '.join(argv)}")
    say(f"{name}: ok, {time.monotonic() - started:.0f} s")
