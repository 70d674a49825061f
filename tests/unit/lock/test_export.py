"""What `lock --export` writes, read by others: packaging reads pylock.toml (PEP 751), pip knows the requirements."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.pylock import Pylock, is_valid_pylock_path
from packaging.specifiers import SpecifierSet

from tests.support.documents import validated
from tests.support.in_process import call
from trainwright.catalog.catalog import load_catalog
from trainwright.plan.plan import Plan
from trainwright.plan.plan_lock import LockedPython, PlanLock, save_lock
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

pytestmark = pytest.mark.usefixtures("own_places")
LINE = ("lock", "pytorch:cpu")
WHEEL = "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"
PACKAGES = (
    LockedPython(name="torch", version="2.13.0+cpu", file=WHEEL, sha256="a" * 64, size=10, component="pytorch"),
    LockedPython(name="mpi4py", version="4.1.2", file="mpi4py-4.1.2.tar.gz", sha256="b" * 64, component="mpi4py"),
)
OWN = LockedPython(name="einops", version="0.8.1", file="einops-0.8.1-py3-none-any.whl", sha256="c" * 64, component="x")
TOOL = LockedPython(name="uv", version="0.9.0", file="uv-0.9.0-py3-none-any.whl", sha256="d" * 64, component="tools")
INDEX = "https://download.pytorch.org/whl/cpu"


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.chdir(tmp_path)
    return resolve(make_request(framework="pytorch", cuda="cpu"), load_catalog())


def locked(plan: Plan, **more: object) -> PlanLock:
    lock = PlanLock(
        plan=plan.id,
        request="--framework pytorch --cuda cpu",
        python_version="3.11",
        platform="x86_64-manylinux_2_28",
        indexes=(INDEX,),
        **{"python": PACKAGES, "user": (OWN,), "tools": (TOOL,), **more},  # type: ignore[arg-type]
    )
    save_lock(lock, Path("locks") / f"{plan.id}.lock.json")
    return lock


def test_packaging_reads_the_pylock(plan: Plan) -> None:
    locked(plan)
    document = validated(call(*LINE, "--export", "pylock.toml", "--json").stdout)
    assert (document["packages"], document["plan"]) == (3, plan.id)
    path = Path(document["path"])
    assert is_valid_pylock_path(path)
    read = Pylock.from_dict(tomllib.loads(path.read_text()))
    assert read.requires_python == SpecifierSet("==3.11.*")
    host = {"sys_platform": "linux", "platform_machine": "x86_64"}
    assert [marker.evaluate(host) for marker in read.environments or ()] == [True]
    assert not Marker(str((read.environments or [])[0])).evaluate({**host, "platform_machine": "aarch64"})
    found = {str(package.name): package for package in read.packages}
    # What builds the image is not in it.
    assert sorted(found) == ["einops", "mpi4py", "torch"]
    (wheel,) = found["torch"].wheels or ()
    assert (wheel.name, wheel.path, wheel.size, wheel.hashes) == (WHEEL, f"wheels/{WHEEL}", 10, {"sha256": "a" * 64})
    sdist = found["mpi4py"].sdist
    assert sdist is not None
    assert (str(found["mpi4py"].version), sdist.name, sdist.size) == ("4.1.2", "mpi4py-4.1.2.tar.gz", None)
    assert dict(read.tool or {}) == {"trainwright": {"plan": plan.id}}


def test_requirements_are_pinned_with_their_checksums(plan: Plan) -> None:
    locked(plan)
    assert call(*LINE, "--export", "constraints/image.txt").returncode == 0
    lines = Path("constraints/image.txt").read_text().splitlines()
    assert lines[1:] == [
        f"--extra-index-url {INDEX}",
        f"einops==0.8.1 --hash=sha256:{'c' * 64}",
        f"mpi4py==4.1.2 --hash=sha256:{'b' * 64}",
        f"torch==2.13.0+cpu --hash=sha256:{'a' * 64}",
    ]
    assert lines[0].startswith("#")


def test_a_lock_of_elsewhere(plan: Plan) -> None:
    locked(plan)
    Path("locks").rename("there")
    assert "./invoke lock" in call(*LINE, "--export", "pylock.toml").stderr
    named = call(*LINE, "--output", f"there/{plan.id}.lock.json", "--export", "pylock.toml")
    assert (named.returncode, Path("pylock.toml").is_file()) == (0, True)


@pytest.mark.parametrize("name", ["requirements.txt", "pylock.toml"])
def test_a_file_of_the_user_s_is_not_replaced(plan: Plan, name: str) -> None:
    locked(plan)
    Path(name).write_text("einops>=0.8\n")
    done = call(*LINE, "--export", name)
    assert (done.returncode, Path(name).read_text()) == (2, "einops>=0.8\n")
    Path(name).unlink()
    assert [call(*LINE, "--export", name).returncode for _ in range(2)] == [0, 0], "its own is"


@pytest.mark.parametrize("name", ["packages.lock", "pylock.a.b.toml", "pyproject.toml", ".txt"])
def test_a_name_that_says_no_format(plan: Plan, name: str) -> None:
    locked(plan)
    done = call(*LINE, "--export", name)
    assert (done.returncode, Path(name).exists()) == (2, False)
    assert "pylock.toml" in done.stderr


def test_a_lock_that_a_build_alone_has_written(plan: Plan) -> None:
    locked(plan, python=None, user=None, tools=None)
    done = call(*LINE, "--export", "pylock.toml")
    assert (done.returncode, Path("pylock.toml").exists()) == (2, False)


def test_a_lock_of_another_plan(plan: Plan) -> None:
    path = Path("locks") / f"{plan.id}.lock.json"
    locked(plan)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"plan": "0" * 64}))
    assert call(*LINE, "--export", "pylock.toml").returncode == 2
    assert call(*LINE, "--output", str(path), "--export", "pylock.toml").returncode == 2
    assert not Path("pylock.toml").exists()


@pytest.mark.parametrize("other", ["--check", "--upgrade=apt"])
def test_it_goes_with_nothing_that_asks_the_sources(plan: Plan, other: str) -> None:
    locked(plan)
    assert call(*LINE, "--export", "pylock.toml", other).returncode == 2
    assert not Path("pylock.toml").exists()
