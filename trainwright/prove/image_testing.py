"""The pytest plugin that image tests run under: ``-p trainwright.prove.image_testing``.

Image tests are plain pytest files; they import nothing of Trainwright and take these fixtures:

``host``          a testinfra host, the container (``host.run``, ``host.file``, ``host.package``, ...)
``plan``          the plan's JSON
``probe``         what the probe found in the image
``framework``     the plan's component that is the framework (``name``, ``version``), whatever the image line's name
``gpus``          whether the container has GPUs; ``requires_gpu`` skips a test if it has none
``torchrun``      the launcher's name; skips a test if the framework lacks it
``within``        ``within(seconds, command, *args)``: run a command with a time limit
``python``        ``python(script, seconds=120)``: output of a script under the image's ``python3``
``training_job``  a fresh ``/opt/ml`` as SageMaker would make it; the old one is restored after the test

The data come from the JSON file in ``TRAINWRIGHT_IMAGE_TEST``; :mod:`trainwright.prove.smoke` writes it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict, cast

import pytest
import testinfra.host
from testinfra.backend.docker import DockerBackend

from trainwright.prove.job_files import FOLDERS, job_files
from trainwright.prove.shells import COMMAND_SECONDS, ContainerShell, Shell, StepShell

DATA_VARIABLE = "TRAINWRIGHT_IMAGE_TEST"
SAGEMAKER = "sagemaker"  # as in trainwright.plan.destination, which is not there in a build step
NO_GPU = "not run: no GPU"
FRAMEWORKS = ("pytorch", "tensorflow")
FIRST_TORCHRUN = (1, 10)
IN_BUILD, REST = "build", "rest"  # of ImageTestData.place
OUTSIDE = "outside"  # the mark of tests that cannot run in a build step

Within = Callable[..., Any]


class _Needed(TypedDict):
    docker: str
    container: str
    image: str
    gpus: bool
    select: str
    only: list[str]
    plan: dict[str, Any]
    probe: dict[str, Any]


class ImageTestData(_Needed, total=False):
    """What the tests of one image need to know.

    ``docker`` is the command line client, ``container`` the id of a running container of the image, ``select`` a part
    of the names of the tests to run (empty: all), ``only`` the tests of a second run (``component::test``; empty: all).

    ``place`` is ``build`` where the tests run in a build step of the image itself, with ``environment`` for their
    commands; ``left`` is then the file that gets those that cannot. It is ``rest`` where those alone are to run.
    """

    place: str
    environment: dict[str, str]
    left: str


class ShellBackend(DockerBackend):  # type: ignore[misc] # testinfra ships no types
    """testinfra's docker backend over a shell."""

    def __init__(self, shell: Shell, container: str) -> None:
        super().__init__(container)
        self._shell = shell

    def get_encoding(self) -> str:
        """All our images use UTF-8 (``LANG=C.UTF-8``)."""
        return "utf-8"

    def run(self, command: str, *args: str, **kwargs: Any) -> Any:
        """Run a command; ``timeout`` (seconds) may be given, :data:`COMMAND_SECONDS` is the default."""
        text = self.get_command(command, *args)
        status, out, err = self._shell.run(text, kwargs.get("timeout", COMMAND_SECONDS))
        return self.result(status, self.encode(text), out, err)


class ContainerHost(testinfra.host.Host):  # type: ignore[misc] # testinfra ships no types
    """testinfra's host; a failed command is reported readably."""

    def check_output(self, command: str, *args: str, **kwargs: Any) -> str:
        """What a command prints, without the final newline; the test fails if the command does."""
        return cast(str, _do(self, command, *args, **kwargs).stdout.rstrip("\r\n"))


class TrainingJob:
    """A job's ``/opt/ml`` in the container: the three files of the platform, code, and what ``train`` writes.

    The files are those of SageMaker (one host, one channel); ``hyperparameters`` adds to them. The variable
    ``SAGEMAKER_PROGRAM`` of an image with baked code is unset, so that the job's own script runs.
    """

    def __init__(self, host: Any) -> None:
        self._host = host

    def write(self, path: str, text: str) -> None:
        """Write a file below ``/opt/ml``."""
        where = f"/opt/ml/{path}"
        _do(self._host, "mkdir -p %s && printf %%s %s > %s", where.rpartition("/")[0], text, where)

    def prepare(self, code: Mapping[str, str], hyperparameters: Mapping[str, Any] | None = None) -> None:
        """Empty ``/opt/ml`` and fill it for a job whose entry point is ``train.py``.

        Args:
            code: file name to text, for ``/opt/ml/code``.
            hyperparameters: name to value; the values are JSON-encoded strings in the file, as the SDK writes them.
        """
        _do(self._host, "rm -rf /opt/ml && mkdir -p " + " ".join(f"/opt/ml/{folder}" for folder in FOLDERS))
        for path, text in job_files(code, hyperparameters).items():
            self.write(path, text)

    def train(self, seconds: float = 180) -> Any:
        """Run ``train`` as the platform does; returns testinfra's result."""
        command = "cd / && env -u SAGEMAKER_PROGRAM TRAINING_JOB_NAME=smoke AWS_REGION=us-west-2 train"
        return self._host.run(command, timeout=seconds)

    def read(self, path: str) -> str:
        """A file below ``/opt/ml``; fails if it is missing."""
        return cast(str, self._host.check_output("cat %s", f"/opt/ml/{path}"))

    def has(self, path: str) -> bool:
        """Whether the file exists below ``/opt/ml``."""
        return bool(self._host.run("test -e %s", f"/opt/ml/{path}").rc == 0)


def _do(host: Any, command: str, *args: str, **kwargs: Any) -> Any:
    """Run a command that must succeed."""
    done = host.run(command, *args, **kwargs)
    if done.rc != 0:
        words = command % args if args else command
        pytest.fail(f"exit status {done.rc} of {words[:200]}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done


def load_data(environment: Mapping[str, str] = os.environ) -> ImageTestData:
    """The data file in ``TRAINWRIGHT_IMAGE_TEST``.

    Raises:
        pytest.UsageError: the variable or the file is missing, or the file lacks a field.
    """
    path = environment.get(DATA_VARIABLE, "")
    if not path:
        raise pytest.UsageError(f"{DATA_VARIABLE} is not set; run image tests with ./invoke smoke")
    try:
        data = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"{DATA_VARIABLE}={path}: {error}") from None
    missing = sorted(ImageTestData.__required_keys__ - set(data if isinstance(data, dict) else ()))
    if missing:
        raise pytest.UsageError(f"{DATA_VARIABLE}={path}: no {', '.join(missing)}")
    return cast(ImageTestData, data)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep only the tests whose name contains the selected word, or those of a second run in the base image.

    A test marked ``ours`` is of what Trainwright's own steps do: whether the base image passes it means nothing. One
    marked ``sagemaker`` is of SageMaker's contract, to which an image for another place is not held. One marked
    ``outside`` needs what a build step does not have; its reason says what.
    """
    data = load_data()
    word, only = data["select"], set(data["only"])
    elsewhere = data["plan"].get("destination", SAGEMAKER) != SAGEMAKER
    chosen = [
        item
        for item in items
        if word in _name(item)
        and (not elsewhere or not item.get_closest_marker("sagemaker"))
        and (not only or (_row(item) in only and not item.get_closest_marker("ours")))
    ]
    if (place := data.get("place", "")) == IN_BUILD:
        left = {_row(item): str(mark.args[0]) for item in chosen if (mark := item.get_closest_marker(OUTSIDE))}
        Path(data["left"]).write_text(json.dumps(left))
        chosen = [item for item in chosen if _row(item) not in left]
    elif place == REST:
        chosen = [item for item in chosen if item.get_closest_marker(OUTSIDE) or (data["gpus"] and _on_gpus(item))]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def _row(item: pytest.Item) -> str:
    """``component::test``."""
    return f"{item.path.parent.name}::{item.name}"


def _on_gpus(item: pytest.Item) -> bool:
    """Whether a test asks for GPUs, or whether there are any: it says another thing where there are."""
    return not {"requires_gpu", "gpus"}.isdisjoint(getattr(item, "fixturenames", ()))


def pytest_configure(config: pytest.Config) -> None:
    """Announce the markers."""
    config.addinivalue_line("markers", f"{OUTSIDE}(reason): cannot run in a build step of the image, for that reason")
    config.addinivalue_line("markers", "sagemaker: of SageMaker's contract alone")
    config.addinivalue_line("markers", "ours: of what Trainwright's own steps do, also in a base image of another's")


def _name(item: pytest.Item) -> str:
    """``components/metis/test_metis.py::test_...``; the id of a test outside of pytest's root contains no path."""
    return f"{'/'.join(item.path.parts[-3:])}::{item.nodeid.partition('::')[2]}"


@pytest.fixture(scope="session")
def image_test() -> ImageTestData:
    """The data of this run."""
    return load_data()


@pytest.fixture(scope="session")
def plan(image_test: ImageTestData) -> dict[str, Any]:
    """The plan's JSON."""
    return image_test["plan"]


@pytest.fixture(scope="session")
def probe(image_test: ImageTestData) -> dict[str, Any]:
    """What the probe found in the image."""
    return image_test["probe"]


@pytest.fixture(scope="session")
def framework(plan: dict[str, Any]) -> dict[str, Any]:
    """The component that is the framework; an image line may have another name, such as ``huggingface-pytorch``."""
    named = {component["name"]: component for component in plan["components"]}
    return next(cast(dict[str, Any], named[name]) for name in (plan["framework"], *FRAMEWORKS) if name in named)


@pytest.fixture
def torchrun(framework: dict[str, Any]) -> str:
    """The name of PyTorch's launcher; skips the test if the framework has no such program."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", framework["version"])[:2])
    if framework["name"] != "pytorch" or numbers < FIRST_TORCHRUN:
        pytest.skip("torchrun came with PyTorch 1.10")
    return "torchrun"


@pytest.fixture(scope="session")
def gpus(image_test: ImageTestData) -> bool:
    """Whether the container has GPUs."""
    return image_test["gpus"]


@pytest.fixture
def requires_gpu(gpus: bool) -> None:
    """Skip the test if there is no GPU."""
    if not gpus:
        pytest.skip(NO_GPU)


@pytest.fixture(scope="session")
def host(image_test: ImageTestData) -> Iterator[Any]:
    """The image, as testinfra sees it: in a container, or in the build step that this runs in."""
    with _shell(image_test) as shell:
        backend = ShellBackend(shell, image_test["container"])
        opened = ContainerHost(backend)
        backend.set_host(opened)
        yield opened


@contextmanager
def _shell(data: ImageTestData) -> Iterator[Shell]:
    if data.get("place") == IN_BUILD:
        yield StepShell(data["environment"])
        return
    with ContainerShell(data["docker"], data["container"]) as shell:
        yield shell


# What the image holds has the time of its source, as all of a layer has; what earlier tests imported was written later.
UNCOMPILED = """
import importlib.util, json, os, sys
def compiled(source):
    kept = importlib.util.cache_from_source(source)
    return os.path.exists(kept) and os.stat(kept).st_mtime == os.stat(source).st_mtime
files = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
lacking = [n for n, f in files.items() if f.endswith(".py") and "site-packages" in f and not compiled(f)]
print(json.dumps(sorted(lacking)))
"""


@pytest.fixture(scope="session")
def within(host: Any) -> Within:
    """``within(seconds, command, *args)``: run a command; fails if it does not finish in time."""

    def run(seconds: float, command: str, *args: str) -> Any:
        done = host.run(command, *args, timeout=seconds)
        if done.rc in (124, 137):
            pytest.fail(f"not finished after {seconds:g} s: {command}\n{done.stdout[-1000:]}\n{done.stderr[-1000:]}")
        return done

    return run


@pytest.fixture(scope="session")
def python(within: Within) -> Callable[..., str]:
    """``python(script, seconds=120)``: a script's output under the image's ``python3``; fails if the script does."""

    def run(script: str, seconds: float = COMMAND_SECONDS) -> str:
        done = within(seconds, "cd /tmp && python3 -c %s", script)
        if done.rc != 0:
            said = (done.stderr or done.stdout).strip()
            # The last line of a traceback is the most useful, so it comes first.
            pytest.fail(f"{said.splitlines()[-1] if said else 'no output'}\nexit status {done.rc}:\n{said[-2000:]}")
        return cast(str, done.stdout.strip())

    return run


@pytest.fixture
def uncompiled(python: Callable[..., str], plan: dict[str, Any]) -> Callable[[str], list[str]]:
    """``uncompiled(script)``: the packages' modules that a script imports and whose bytecode is not in the image."""
    if plan["base"]["kind"] == "dlc":
        pytest.skip("the image's bytecode is not Trainwright's")

    def run(script: str) -> list[str]:
        return cast(list[str], json.loads(python(script + UNCOMPILED).splitlines()[-1]))

    return run


@pytest.fixture
def training_job(host: Any) -> Iterator[TrainingJob]:
    """A job in the container; the old ``/opt/ml`` is restored after the test."""
    keep = "rm -rf /opt/ml.kept && if test -e /opt/ml; then cp -a /opt/ml /opt/ml.kept; fi"
    back = "rm -rf /opt/ml && if test -e /opt/ml.kept; then mv /opt/ml.kept /opt/ml; fi"
    _do(host, keep)
    try:
        yield TrainingJob(host)
    finally:
        _do(host, back)
