"""Nothing that a user owns is changed or removed, whatever a command is told to fill and however it ends."""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import some
from tests.support.tries import contents
from trainwright.core import owned
from trainwright.core.errors import BuildFailed, RequestError
from trainwright.core.owned import MANIFEST, check_replaceable, claim, clear, fill, write_atomically

ROOT = Path(__file__).parents[3]
FILES: dict[str, str | Path] = {"Dockerfile": "FROM a\n", "tools/fetch": "#!/bin/sh\n", "requirements/x.txt": "x==1\n"}


def put(folder, files=FILES, **more):
    fill(folder, files, **{"kind": "context", "named": f"--output {folder}", "last": "Dockerfile", **more})


@pytest.fixture
def project(tmp_path):
    """A user's project: a git repository with a Dockerfile of its own, which is what users of such a tool have."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / ".ssh").mkdir()
    (folder / "Dockerfile").write_text("FROM mine\n")
    (folder / "src/train.py").write_text("print(1)\n")
    (folder / "data/results.csv").write_text("1,2\n")
    (folder / ".ssh/id").write_text("key\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "mine"]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    return folder


def test_a_repository_is_refused_and_stays_as_it_is(project):
    before = contents(project)
    with pytest.raises(RequestError, match="not empty"):
        put(project)
    assert contents(project) == before
    assert subprocess.run(["git", "status", "--porcelain"], cwd=project, check=True, capture_output=True).stdout == b""


@pytest.mark.parametrize("files", [{"../x": []}, {".git/HEAD": []}, {"/etc/x": []}, {"a": "b"}, [], None])
@pytest.mark.parametrize("kind", ["context", "mirror"])
def test_a_manifest_gives_leave_only_for_what_is_below_it(project, files, kind):
    manifest = {"kind": kind, "files": files, "whole": False, "complete": True, "pid": 1}
    (project / MANIFEST).write_text(json.dumps(manifest))
    before = contents(project)
    with pytest.raises(RequestError):
        put(project)
    assert contents(project) == before


def test_a_manifest_that_is_a_link_is_none(project, tmp_path):
    put(tmp_path / "ours")
    (project / MANIFEST).symlink_to(tmp_path / "ours" / MANIFEST)
    before = contents(project)
    with pytest.raises(RequestError):
        put(project)
    assert contents(project) == before


def test_files_that_a_user_added_outlive_every_refill(tmp_path):
    folder = tmp_path / "context"
    put(folder)
    own = {"notes.txt": "mine", "tools/mine": "mine", ".git/HEAD": "ref", "wheels/mine.whl": "mine"}
    for name, text in own.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    put(folder, {"Dockerfile": "FROM b\n", "apt/pins": ""})
    assert {name: (folder / name).read_text() for name in own} == own
    assert (folder / "Dockerfile").read_text() == "FROM b\n"
    assert not (folder / "requirements").exists()
    clear(folder)
    assert sorted(contents(folder)) == sorted({*own, ".git", "tools", "wheels"})


@pytest.mark.parametrize("mine", ["apt", "apt/pins"])
def test_a_users_file_in_the_way_is_not_replaced(tmp_path, mine):
    folder = tmp_path / "context"
    put(folder)
    (folder / mine).parent.mkdir(exist_ok=True)
    (folder / mine).write_text("mine")
    before = contents(folder)
    with pytest.raises(RequestError, match="in the way"):
        put(folder, {**FILES, "apt/pins": "ours"})
    assert contents(folder) == before


def test_a_link_in_the_folder_is_not_followed(tmp_path):
    folder, outside = tmp_path / "context", tmp_path / "outside"
    put(folder)
    (folder / "tools/fetch").unlink()
    (folder / "tools").rmdir()
    outside.mkdir()
    (folder / "tools").symlink_to(outside)
    with pytest.raises(RequestError, match="in the way"):
        put(folder, {**FILES, "tools/fetch": "#!/bin/sh\nnew\n"})
    assert contents(outside) == {}


def test_a_file_is_not_a_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RequestError, match="not a directory"):
        put(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_nothing_is_written_where_nothing_changed(tmp_path):
    folder = tmp_path / "context"
    put(folder, directories=["apt"])
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    put(folder, directories=["apt"])
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert (folder / "apt").is_dir()


def test_a_directory_that_stays_is_kept_when_its_last_file_goes(tmp_path):
    folder = tmp_path / "context"
    put(folder, {**FILES, "wheels/a.whl": "a"}, directories=["wheels"])
    put(folder, FILES, directories=["wheels"])
    assert (folder / "wheels").is_dir()
    assert not (folder / "wheels/a.whl").exists()


def test_a_changed_original_is_seen_although_its_times_say_otherwise(tmp_path):
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"a" * 10)
    large.write_bytes(b"a" * 2_000_000)
    folder = tmp_path / "context"
    put(folder, {**FILES, "small": small, "large": large})
    for path in (small, large):
        stat = path.stat()
        content = b"b" * stat.st_size
        path.unlink()  # a link shares what is written in place
        path.write_bytes(content)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    put(folder, {**FILES, "small": small, "large": large})
    assert set((folder / "small").read_bytes()) == set((folder / "large").read_bytes()) == {ord("b")}


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_new_folder_that_was_not_finished_is_gone(tmp_path, monkeypatch, fault, after):
    real, done = owned._put, []

    def breaks(*words):
        if len(done) == after:
            raise fault
        done.append(real(*words))

    if after < 3:
        monkeypatch.setattr(owned, "_put", breaks)
        with pytest.raises((BuildFailed, KeyboardInterrupt)):
            put(tmp_path / "context")
        assert contents(tmp_path) == {}
    monkeypatch.setattr(owned, "_put", real)
    put(tmp_path / "context")
    assert set(FILES) <= set(contents(tmp_path / "context"))


def test_a_folder_of_an_earlier_run_is_of_no_use_until_it_is_whole(tmp_path, monkeypatch):
    folder = tmp_path / "context"
    put(folder)
    (folder / "mine").write_text("mine")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(owned, "_put", full)
        with pytest.raises(BuildFailed, match="incomplete"):
            put(folder, {**FILES, "tools/fetch": "#!/bin/sh\nnew\n"})
    assert not (folder / "Dockerfile").exists()
    put(folder, {**FILES, "tools/fetch": "#!/bin/sh\nnew\n"})
    assert (folder / "Dockerfile").read_text() == FILES["Dockerfile"]
    assert (folder / "mine").read_text() == "mine"


def test_a_killed_run_is_completed_by_the_next(tmp_path):
    folder = tmp_path / "context"
    code = (
        "import os, signal\nfrom pathlib import Path\nfrom trainwright.core import owned\n"
        "real = Path.replace\n"
        "def dies(self, target):\n"
        "    if Path(target).name == 'fetch': os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(self, target)\n"
        "Path.replace = dies\n"
        f"owned.fill(Path({str(folder)!r}), {FILES!r}, kind='context', named='x', last='Dockerfile')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (folder / "Dockerfile").exists()
    assert [name for name in contents(folder) if name.endswith(".part")]
    put(folder)
    assert sorted(name for name in contents(folder) if not (folder / name).is_dir()) == sorted({*FILES, MANIFEST})


def test_a_full_disk_leaves_nothing_and_says_so(small_disk):
    with pytest.raises(BuildFailed, match="nothing of it was kept"):
        put(small_disk / "context", {**FILES, **{f"files/{number}": "x" * 9000 for number in range(20)}})
    assert contents(small_disk) == {}


NAMES = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)


@settings(max_examples=some(120), deadline=None)
@given(
    runs=st.lists(st.dictionaries(NAMES, st.text("xy", max_size=2), max_size=4), min_size=1, max_size=4),
    own=st.dictionaries(NAMES.map(lambda name: f"{name}.mine"), st.text("uv", max_size=2), max_size=3),
)
def test_whatever_is_filled_after_whatever_a_users_files_stay(tmp_path_factory, runs, own):
    folder = tmp_path_factory.mktemp("any") / "context"
    kept: dict[str, str] = {}
    for number, files in enumerate(runs):
        # Refused where a name is a file in one run and a folder in another.
        with contextlib.suppress(RequestError, OSError):
            put(folder, {**files, "Dockerfile": "FROM a\n"})
        if number == 0 and folder.is_dir():
            for name, text in own.items():
                if (folder / name).parent.is_dir():
                    (folder / name).write_text(text)
                    kept[name] = text
    assert {name: (folder / name).read_text() for name in kept} == kept


def test_a_whole_folder_is_marked_when_it_is_new_or_empty(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        assert claim(tmp_path / name, "mirror", f"--to {name}", whole=True) is None
        (tmp_path / name / "more").write_text("x")
        again = claim(tmp_path / name, "mirror", f"--to {name}", whole=True)
        assert again is not None
        assert again.whole


@pytest.mark.parametrize("variable", ["TRAINWRIGHT_STATE", "TRAINWRIGHT_CACHE"])
def test_state_and_cache_take_no_folder_of_a_users(project, monkeypatch, variable):
    from trainwright.core.paths import cache_dir, state_dir

    monkeypatch.setenv(variable, str(project))
    before = contents(project)
    with pytest.raises(RequestError, match=variable):
        (state_dir if variable == "TRAINWRIGHT_STATE" else cache_dir)()
    assert contents(project) == before


def test_an_empty_variable_is_an_unset_one(project, monkeypatch):
    from trainwright.core.paths import state_dir

    monkeypatch.chdir(project)
    monkeypatch.setenv("TRAINWRIGHT_STATE", "")
    assert state_dir() == project / ".trainwright"
    assert not (project / ".gitignore").exists()
    assert (project / ".trainwright/.gitignore").read_text() == "*\n"


def test_a_folder_that_was_there_gets_no_gitignore(tmp_path, monkeypatch):
    from trainwright.core.paths import state_dir

    (tmp_path / "there").mkdir()
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "there"))
    state_dir()
    assert not (tmp_path / "there/.gitignore").exists()


def test_a_file_that_another_program_wrote_is_not_replaced(tmp_path):
    file = tmp_path / "start.py"
    file.write_text("mine\n")
    for words in ({"mark": "# Made by"}, {"text": "other\n"}):
        with pytest.raises(RequestError, match="exists"):
            check_replaceable(file, "--output start.py", **words)
    check_replaceable(file, "--output start.py", text="mine\n")
    write_atomically(file, "# Made by a test\n")
    check_replaceable(file, "--output start.py", mark="# Made by")
    with pytest.raises(RequestError):
        check_replaceable(tmp_path, "--output .", mark="# Made by")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(RequestError):
        check_replaceable(tmp_path / "link", "--output link", mark="# Made by")


def test_commands_that_begin_at_once_claim_one_folder(tmp_path: Path) -> None:
    """Jobs of a new machine begin side by side, and share the folder that TRAINWRIGHT_STATE or _CACHE names."""
    for round_ in range(20):
        folder, together = tmp_path / f"{round_}", Barrier(6)

        def begin(folder: Path = folder, together: Barrier = together) -> None:
            together.wait()
            claim(folder, "state", "TRAINWRIGHT_STATE=state", whole=True)

        with ThreadPoolExecutor(6) as pool:
            for begun in [pool.submit(begin) for _ in range(6)]:
                begun.result()
        assert [each.name for each in folder.iterdir()] == [MANIFEST]
