"""What the tests with a real engine share: the program, a catalog small enough to build often, a second engine."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import docker as docker_sdk
import pytest

from devtools.checks import keep_room
from tests.doubles.aws import EmulatedAws, emulated_aws, why_not
from tests.doubles.bridge import bridge
from tests.doubles.tokens import HALF_A_DAY
from tests.support import shared_image
from tests.support.finished import Finished
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.core.errors import EngineError
from trainwright.core.paths import cache_dir, images_dir, locked, state_dir, templates_dir
from trainwright.engine.engine import Engine, connect, find_client

# A plugin of some test modules, that import from it first: what its assertions compare is told as in the modules.
pytest.register_assert_rewrite("tests.support.push_fixtures")

ROOT = Path(__file__).resolve().parents[2]
CPU_LINE = ("--framework", "pytorch", "--cuda", "cpu")
SMALL_LINE = """\
framework: pytorch
version: 2.13.0
cuda: cpu
python: "3.11"
base: debian-12
status: supported
components:
  python: {provider: debian, version: "3.11"}
  ssh: {provider: debian, version: "9.2"}
evidence: [{source: this test, date: "2026-11-21", says: small}]
"""
# Modules that take minutes, in the order in which they are begun; all others come after them. The CUDA image is built
# while the disk is empty. What computes stands beside what sleeps. Modules with a second engine, of which a machine
# has one at a time, are apart: estimator_proof and base_images, same_layers, faults, mirror.
LONGEST = (
    "test_build_cuda",
    "test_pipeline",
    "test_estimator_proof",
    "test_builders",
    "test_two_builders",
    "test_rehearse_failures",
    "test_example",
    "test_build_cpu",
    "test_rehearse",
    "test_rehearse_stopped",
    "test_twin",
    "test_rehearse_tensorflow",
    "test_same_layers",
    "test_build_images",
    "test_faults",
    "test_base_filesystem",
    "test_rehearse_examples",
    "test_estimator_sdk",
    "test_mirror",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.path).is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.engine)
    # Stable, so that the tests of a module stay in their order.
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


@pytest.fixture(scope="session", autouse=True)
def engine_is_there() -> Engine:
    try:
        return connect(setup=False)
    except EngineError as lacking:
        if os.environ.get("CI") or os.environ.get("TRAINWRIGHT_REQUIRE_ENGINE"):
            raise
        pytest.skip(f"no engine: {lacking.message}")


@pytest.fixture(autouse=True)
def room(engine_is_there: Engine) -> None:
    """Free disk space before each test, on a machine that was made for this run; some tests write 10 GB."""
    keep_room(engine_is_there)


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state folder of this test run: records of images that a developer built stay untouched."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="session")
def environment(state: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "TRAINWRIGHT_STATE": str(state)}


@pytest.fixture(scope="session")
def program(environment: dict[str, str]) -> Callable[..., Finished]:
    """Run a verb as a user does; standard output and standard error apart."""

    def run(*words: str, **more: str) -> Finished:
        done = subprocess.run(
            [sys.executable, str(ROOT / "tasks.py"), *words],  # as ./invoke does, once it has its environment
            cwd=ROOT,
            env={**environment, **more},
            capture_output=True,
            text=True,
            check=False,
            timeout=1800,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="module")
def engine() -> Iterator[docker_sdk.DockerClient]:
    """The engine, through its SDK."""
    client = docker_sdk.from_env(timeout=300)
    yield client
    client.close()


@pytest.fixture(scope="session")
def docker() -> Callable[..., str]:
    """The engine's client, for looking at what was built."""
    client = find_client().path

    def run(*words: str, check: bool = True) -> str:
        done = subprocess.run([client, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture(scope="session")
def proven(
    program: Callable[..., Finished], docker: Callable[..., str], state: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The CPU line: the documents of its build (``build``) and smoke run (``smoke``), the name that it keeps until the
    last test (``kept``), and the plans that its tags led to (``tagged``).

    The first worker that asks makes it for all of a test run; its record is in the state folder of each.
    """
    mine = tmp_path_factory.getbasetemp()
    shared = (mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine) / "proven"
    told = shared / "documents.json"
    with locked(shared):
        if not told.is_file():
            # tests/conftest.py removes it.
            kept, own = shared_image.name(_run()), {"TRAINWRIGHT_STATE": str(shared)}
            built = program("build", *CPU_LINE, "--tag", kept, "--json", "--progress", "plain", **own)
            assert built.code == 0, built.err[-4000:]
            # At once, as tests that come after this build the same line, which moves the tags of its plan.
            label = '{{index .Config.Labels "io.trainwright.plan"}}'
            tagged = {tag: docker("image", "inspect", "--format", label, tag) for tag in built.json["tags"]}
            smoked = program("smoke", "--image", kept, "--json", **own)
            assert smoked.code == 0, smoked.err[-4000:]
            documents = {"build": built.json, "smoke": smoked.json, "kept": kept, "tagged": tagged}
            told.write_text(json.dumps(documents))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWRIGHT_STATE", str(state))
        shutil.copytree(shared / "images", state_dir() / "images", dirs_exist_ok=True)
    return dict(json.loads(told.read_text()))


def _run() -> int:
    """The process id of the test run that this worker, if it is one, belongs to."""
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


@pytest.fixture(scope="session")
def cpu_image(proven: dict[str, Any]) -> str:
    """The CPU image, to run jobs in."""
    return str(proven["kept"])


@pytest.fixture(scope="session")
def rehearse(
    program: Callable[..., Finished], cpu_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Finished]:
    """Rehearse a script (its text) in the CPU image: ``rehearse(text, "--hosts", "2", ..., VARIABLE="value")``."""

    def run(script: str, *words: str, image: str = cpu_image, **more: str) -> Finished:
        path = tmp_path_factory.mktemp("job") / "train.py"
        path.write_text(script)
        return program("rehearse", "--image", image, "--entry-point", str(path), "--json", *words, **more)

    return run


@pytest.fixture
def small_catalog(tmp_path: Path) -> Catalog:
    """One line with an interpreter and sshd alone: every stage of the skeleton, little to build."""
    images = tmp_path / "catalog" / "images"
    line = images / "pytorch" / "cpu"
    line.mkdir(parents=True)
    (line / "line.yaml").write_text(SMALL_LINE)
    shutil.copy(images_dir() / "pytorch" / "cpu" / "lock.json", line)
    shutil.copytree(templates_dir(), tmp_path / "catalog" / "templates")
    return load_catalog(images, tmp_path / "catalog" / "templates")


@pytest.fixture(scope="session")
def cloud() -> Iterator[EmulatedAws]:
    """An emulated AWS in two regions, for all tests of a worker: what one module has pushed, another mounts.

    Its account is the worker's own: those side by side do not wait for one another.
    """
    if reason := why_not():
        pytest.skip(reason)
    account = f"{int(sha256(str(os.getpid()).encode()).hexdigest(), 16) % 10**12:012}"
    with emulated_aws(account, ("us-west-2", "eu-central-1")) as aws:
        yield aws


@pytest.fixture
def aws(cloud: EmulatedAws) -> Iterator[EmulatedAws]:
    """The emulated AWS without what an earlier test armed and asked; repositories stay."""
    cloud.requests.clear()
    cloud.calls.clear()
    cloud.token_seconds = HALF_A_DAY
    yield cloud
    cloud.release()


@pytest.fixture
def repository(aws: EmulatedAws) -> str:
    """The name of a new repository of the first region, with mutable tags."""
    name = f"team/{uuid.uuid4().hex[:8]}"
    aws.client("ecr").create_repository(repositoryName=name)
    return name


BRIDGE = "twtest0"
ADDRESSES = "10.213.0.0/20"  # of networks in the second engine


@dataclass
class SpareEngine:
    """A second engine of the test's own, that may be killed and started again."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None
    networks: bool = False

    @property
    def endpoint(self) -> str:
        return f"unix://{self.folder}/docker.sock"

    def start(self) -> None:
        # A bridge of its own: with --bridge=none a second engine would take the first one's docker0 away.
        argv = ["dockerd", "-H", self.endpoint, "--data-root", f"{self.folder}/data", "--exec-root"]
        argv += [f"{self.folder}/exec", "-p", f"{self.folder}/pid", f"--bridge={BRIDGE}", "--iptables=false"]
        if self.networks:
            # Started a second time with a pool, 20.10 removes the first engine's docker0: not for engines to kill.
            argv += ["--default-address-pool", f"base={ADDRESSES},size=24"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
        for _ in range(200):
            if self.answers():
                return
            assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.1)
        raise AssertionError("the second engine does not answer")

    def answers(self) -> bool:
        done = subprocess.run(
            [find_client().path, "-H", self.endpoint, "version"], capture_output=True, check=False, timeout=10
        )
        return done.returncode == 0

    def kill(self) -> None:
        """End it at once, with containerd and the build steps that it runs, as when a machine loses its power."""
        if self.process is None or self.process.poll() is not None:
            return
        for pid in (*_descendants(self.process.pid), self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        (self.folder / "pid").unlink(missing_ok=True)
        (self.folder / "exec/containerd/containerd.pid").unlink(missing_ok=True)

    def remove(self) -> None:
        """Kill it and give back its mounts and files."""
        self.kill()
        time.sleep(0.2)
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((m for m in mounts if m.startswith(str(self.folder))), reverse=True):
            subprocess.run(["umount", "-l", mount], check=False)
        if self.networks:
            _remove_bridges()
        shutil.rmtree(self.folder, ignore_errors=True)


def _remove_bridges() -> None:
    """The bridges of networks in the second engine, which outlive it: 16 would use up its addresses."""
    shown = subprocess.run(["ip", "-json", "-4", "address"], capture_output=True, text=True, check=True)
    for link in json.loads(shown.stdout):
        held = (ip_address(row["local"]) in ip_network(ADDRESSES) for row in link["addr_info"])
        if link["ifname"].startswith("br-") and any(held):
            subprocess.run(["ip", "link", "delete", link["ifname"]], check=False)


def _descendants(pid: int) -> list[int]:
    """The process ids of all that a process started, the youngest first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    queue = [pid]
    while queue:
        own = children.get(queue.pop(), [])
        found += own
        queue += own
    return found[::-1]


@contextmanager
def _reaching_one_another() -> Iterator[None]:
    """Let containers of one network of the second engine reach one another.

    An engine that sets up iptables, as this machine's own may, makes the kernel drop what no rule accepts, also between
    ports of a bridge. The second engine must not set up iptables: it would do so in the first one's chains.
    """
    rule = ["FORWARD", "-s", ADDRESSES, "-d", ADDRESSES, "-j", "ACCEPT"]
    made = shutil.which("iptables") and subprocess.run(["iptables", "-I", *rule], check=False).returncode == 0
    try:
        yield
    finally:
        if made:
            subprocess.run(["iptables", "-D", *rule], check=False)


@contextmanager
def _spare_engine(folder: Path, tmpfs: str | None, networks: bool, turn: Path) -> Iterator[SpareEngine]:
    engine = SpareEngine(folder, networks=networks)
    (folder / "data").mkdir(parents=True)
    # One at a time on a machine, whoever runs the tests: the bridge and the addresses are the same for all.
    with turn.open("a") as file, contextlib.ExitStack() as held:
        fcntl.flock(file, fcntl.LOCK_EX)
        held.enter_context(bridge(BRIDGE))
        try:
            if tmpfs is not None:
                subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={tmpfs}", "tmpfs", folder / "data"], check=True)
            engine.start()
            with _reaching_one_another() if networks else contextlib.nullcontext():
                yield engine
        finally:
            engine.remove()


@pytest.fixture(scope="session")
def spare_engine() -> Callable[..., Any]:
    """A context manager that starts a second engine.

    ``tmpfs`` limits its disk, as ``300m``; with ``networks`` containers of a network of it reach one another.
    """
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("a second engine needs root and dockerd")
    # Named before any test gives the program another cache folder, or each test would wait for its own turn alone.
    turn = cache_dir() / "guards" / "second-engine"
    turn.parent.mkdir(exist_ok=True)

    def make(tmpfs: str | None = None, *, networks: bool = False) -> Any:
        # A socket's path may have 107 characters at most, and pytest's folders are deep.
        return _spare_engine(Path(tempfile.mkdtemp(prefix="tw-")), tmpfs, networks, turn)

    return make
