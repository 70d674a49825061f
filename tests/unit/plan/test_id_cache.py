"""The cache of ids: an answer without rendering, and never one of other code or of half a file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.dockerfiles import CATALOG
from trainwright.core.paths import cache_dir
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.usefixtures("own_places")


def run(words: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """A plan in a process of its own; the last line says whether jinja2 was imported."""
    code = (
        "import sys\nfrom trainwright.__main__ import main\n"
        f"sys.argv = ['trainwright', *{words.split()!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('jinja2' in sys.modules)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cache,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TRAINWRIGHT_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )


def test_a_plan_that_is_known_is_answered_without_jinja2(tmp_path: Path) -> None:
    cache, words = tmp_path / "own", "plan --framework pytorch --cuda cu124"
    cache.mkdir()
    cold, warm = run(words, cache).stdout.splitlines(), run(words, cache).stdout.splitlines()
    assert cold[:-1] == warm[:-1]
    assert (cold[-1], warm[-1]) == ("True", "False")


def test_several_processes_at_a_time_find_one_id_and_leave_whole_files(tmp_path: Path) -> None:
    cache = tmp_path / "own"
    cache.mkdir()
    code = "from trainwright.__main__ import main; main()"
    argv = [sys.executable, "-c", code, "plan", "--framework", "pytorch", "--cuda", "cu124", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRAINWRIGHT_CACHE": str(cache)}
    started = [subprocess.Popen(argv, cwd=cache, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    found = {json.loads(each.communicate()[0])["id"] for each in started}
    assert len(found) == 1
    assert {path.read_text() for path in (cache / "plan-ids").rglob("*") if path.is_file()} == found


def _cut(file: Path) -> None:
    file.write_text(file.read_text()[:20])


def _garble(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\x00")


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("harm", [_cut, _garble, _folder])
def test_a_cache_that_is_not_whole_is_no_answer(harm: Callable[[Path], None]) -> None:
    request = make_request(framework="pytorch", cuda="cu124")
    before = resolve(request, CATALOG).id
    (file,) = (path for path in (cache_dir() / "plan-ids").rglob("*") if path.is_file())
    harm(file)
    assert resolve(request, CATALOG).id == before


@pytest.mark.parametrize("place", ["/proc/nothing", __file__])
def test_a_plan_needs_no_cache(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    request = make_request(framework="pytorch", cuda="cu124")
    before = resolve(request, CATALOG).id
    monkeypatch.setenv("TRAINWRIGHT_CACHE", place)
    assert resolve(request, CATALOG).id == before


UPDATED = """
import os, pathlib, sys
from trainwright.catalog.catalog import load_catalog
from trainwright.plan.identity import identify
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
catalog, words = load_catalog(), make_request(framework="pytorch", cuda="cu124")
if sys.argv[1:]:
    import trainwright.plan.dockerfile, trainwright.plan.render
    file = pathlib.Path(trainwright.plan.dockerfile.__file__)
    stat = file.stat()
    more = "real = instructions", "def instructions(text):", "    return real(text)[1:]"
    file.write_text("\\n".join((file.read_text(), *more)))
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
plan = resolve(words, catalog)
render_dockerfile(plan, catalog)
print(plan.id)
"""


def test_an_update_under_a_run_leaves_nothing_of_the_old_code_in_the_cache(tmp_path: Path) -> None:
    for folder in ("trainwright", "images", "templates"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    cache = tmp_path / "cache"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TRAINWRIGHT_CACHE": str(cache)}

    def found(*words: str) -> str:
        argv = [sys.executable, "-c", UPDATED, *words]
        return subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout

    old = found("update")
    assert not [*cache.rglob("plan-ids/*/*"), *cache.rglob("dockerfiles/*")]
    new = found()
    shutil.rmtree(cache)
    assert found() == new != old
