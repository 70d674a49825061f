"""What several unit tests share: folders of their own for state and cache, and a web server on loopback."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.doubles.service_models import watch_clients
from tests.support import tries as hostile
from tests.support.catalogs import compile_once, read_once
from tests.support.loopback import Loopback, loopback
from tests.support.tries import Tried, Try

# A plugin of some test modules, that import from it first: what its assertions compare is told as in the modules.
pytest.register_assert_rewrite("tests.support.remote_builds")
read_once()
compile_once()
watch_clients()

# What `test --fast` leaves out, with all tests of hypothesis: the slowest modules, four fifths of the unit tests' time.
SLOW = (
    "build/test_context.py",
    "build/test_labels.py",
    "build/test_wheel_cache.py",
    "cli/test_hostile_*.py",
    "cli/test_pages.py",
    "cli/test_parser.py",
    "cli/test_tries.py",
    "cli/test_unforeseen.py",
    "core/test_owned.py",
    "core/test_patterns.py",
    "core/test_runner.py",
    "devtools/test_front_door*.py",
    "devtools/test_infra*.py",
    "devtools/test_scaffold.py",
    "devtools/test_site.py",
    "devtools/test_skips.py",
    "doctor/test_doctor.py",
    "fleet/test_build_images.py",
    "fleet/test_fleet.py",
    "fleet/test_view.py",
    "fresh/test_fresh.py",
    "lock/test_export.py",
    "pipeline/test_buildspec.py",
    "pipeline/test_follow.py",
    "pipeline/test_git*.py",
    "pipeline/test_gpu_smoke.py",
    "pipeline/test_images.py",
    "pipeline/test_kubernetes*.py",
    "pipeline/test_upload.py",
    "plan/test_identity.py",
    "plan/test_plan_lock.py",
    "plan/test_rendered.py",
    "plan/test_user_parts.py",
    "proofs/test_*.py",
    "prove/test_image_testing.py",
    "prove/test_in_build.py",
    "prove/test_probe_program.py",
    "prove/test_smoke.py",
    "push/test_gc.py",
    "push/test_moving.py",
    "push/test_revision.py",
    "report/test_pages.py",
    "signing/test_keys.py",
    "sources/test_debian_base.py",
    "sources/test_download.py",
    "sources/test_gather.py",
    "sources/test_locations.py",
    "sources/test_reachability.py",
    "templates/test_training_init.py",
    "verbs/test_api.py",
    "verbs/test_build_elsewhere.py",
    "verbs/test_documents.py",
    "verbs/test_prove.py",
    "verbs/test_report.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    modules = {path for pattern in SLOW for path in here.glob(pattern)}
    for item in items:
        if item.path in modules:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """State and cache of this test alone."""
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with a disk of 64 kB of its own."""
    if os.geteuid() != 0:
        pytest.skip("a small disk needs root")
    disk = tmp_path / "small"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=False).returncode:
        pytest.skip("mounts are not allowed here")
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.fixture
def server() -> Iterator[Loopback]:
    """A web server that answers as a test tells it."""
    with loopback() as running:
        yield running


@pytest.fixture
def attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[[Try], Tried]:
    """Runs a row of a table of tries; see :mod:`tests.support.tries`."""
    return lambda row: hostile.attempt(row, tmp_path, monkeypatch, capfd)
