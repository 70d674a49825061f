"""What the front door, ``./invoke``, may change on a machine, and a ``.venv`` that it cannot write."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.consent_table import CONSENT
from tests.support.front_door import Checkout, Strange, wait_for


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.mark.parametrize(
    ("env", "goes_ahead"),
    [
        ({}, False),
        ({"TRAINWRIGHT_ENGINE_SETUP": "never", "CI": "true"}, False),
        ({"TRAINWRIGHT_ENGINE_SETUP": "ask", "CI": "true"}, False),
        ({"CI": "false"}, False),
        ({"CI": "0"}, False),
        ({"CI": "", "container": "", "CODEBUILD_BUILD_ID": ""}, False),
        ({"TRAINWRIGHT_ENGINE_SETUP": "auto"}, True),
        ({"CI": "true", "TRAINWRIGHT_ENGINE_SETUP": ""}, True),
        ({"CI": "1"}, True),
        ({"CODEBUILD_BUILD_ID": "p:1"}, True),
        ({"container": "podman"}, True),
    ],
)
def test_without_a_terminal_packages_need_leave(checkout: Checkout, env: dict[str, str], goes_ahead: bool) -> None:
    checkout.a_bare_machine()
    done = checkout.run(env=env)
    assert checkout.installed == goes_ahead
    assert done.returncode == (0 if goes_ahead else 4), done.stderr
    if not goes_ahead:
        assert "apt-get install -y --no-remove python3.11-venv" in done.stderr
        assert not (checkout.root / ".venv" / ".set-up").exists()


@pytest.mark.parametrize("mark", ["/.dockerenv", "/run/.containerenv"])
def test_in_a_container_packages_are_installed(checkout: Checkout, mark: str) -> None:
    checkout.a_bare_machine()
    path = Path(f"{checkout.folder}{mark}")
    path.parent.mkdir(exist_ok=True)
    path.touch()
    assert checkout.run().returncode == 0
    assert checkout.installed


@pytest.mark.parametrize(
    ("answer", "env", "goes_ahead"),
    [
        ("y", {}, True),
        ("yes", {"TRAINWRIGHT_ENGINE_SETUP": "ask", "CI": "true"}, True),
        ("n", {}, False),
        ("", {}, False),
        ("yolo", {}, False),
        ("y", {"TRAINWRIGHT_ENGINE_SETUP": "never"}, False),
    ],
)
def test_on_a_terminal_it_asks(checkout: Checkout, answer: str, env: dict[str, str], goes_ahead: bool) -> None:
    checkout.a_bare_machine()
    status, shown = checkout.on_a_terminal(answer, **env)
    assert ("[y/N]" in shown) == (env.get("TRAINWRIGHT_ENGINE_SETUP") != "never")
    assert checkout.installed == goes_ahead, shown
    assert status == (0 if goes_ahead else 4)


@CONSENT
def test_consent_follows_the_table(checkout: Checkout, environ: dict[str, str], terminal: bool, mode: str) -> None:
    checkout.a_bare_machine()
    if terminal:
        status, shown = checkout.on_a_terminal("n", **environ)
    else:
        done = checkout.run(env=environ)
        status, shown = done.returncode, done.stderr
    assert ("[y/N]" in shown) == (mode == "ask")
    assert checkout.installed == (mode == "auto"), shown
    assert status == {"auto": 0, "ask": 4, "never": 4, "invalid": 2}[mode], shown


def test_an_unknown_setting_is_refused(checkout: Checkout) -> None:
    checkout.a_bare_machine()
    refused = checkout.run(env={"TRAINWRIGHT_ENGINE_SETUP": "atuo"})
    assert refused.returncode == 2
    assert "atuo" in refused.stderr
    assert not checkout.installed


# What GNU mkdir 9.1 says of a foreign, a read-only and a full folder (`LC_ALL=C mkdir`), and what has to be answered.
REFUSALS = {
    "Permission denied": "owner",
    "Read-only file system": "owner",
    "No space left on device": "disk is full",
    "Disk quota exceeded": "disk is full",
}


@pytest.mark.parametrize("lock", [False, True], ids=["the folder", "the lock"])
@pytest.mark.parametrize("reason", REFUSALS)
def test_a_folder_that_cannot_be_written_is_said_at_once(checkout: Checkout, reason: str, lock: bool) -> None:
    others = 'case $* in *.set-up) ;; *) exec /bin/mkdir "$@" ;; esac\n' if lock else ""
    checkout.program("mkdir", f"{others}echo \"mkdir: cannot create directory '$1': {reason}\" >&2; exit 1")
    refused = checkout.run()
    assert refused.returncode == 2
    assert "waiting" not in refused.stderr
    assert REFUSALS[reason] in refused.stderr
    assert checkout.calls == []


def test_a_disk_that_runs_full_is_not_taken_for_a_broken_index(checkout: Checkout) -> None:
    (checkout.folder / "pip-full").write_text(
        "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
    )
    refused = checkout.run()
    assert refused.returncode == 2
    assert "disk is full" in refused.stderr
    assert "PIP_INDEX_URL" not in refused.stderr
    assert not (checkout.root / ".venv" / ".set-up").exists()


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_lock_that_is_no_folder_is_not_waited_for(checkout: Checkout, kind: str) -> None:
    lock = checkout.root / ".venv" / ".set-up"
    lock.parent.mkdir()
    if kind == "file":
        lock.touch()
    else:
        lock.symlink_to("nowhere")
    refused = checkout.run()
    assert refused.returncode == 2
    assert "not a directory" in refused.stderr


@pytest.fixture
def strange() -> Iterator[Strange]:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to other users
        Path(folder).chmod(0o755)
        yield Strange(Checkout(Path(folder)))


@pytest.mark.parametrize("state", ["no .venv", "an empty one", "other pins", "a Python that cannot be run"])
def test_another_users_checkout_is_refused_at_once(strange: Strange, state: str) -> None:
    checkout = strange.checkout
    if state == "an empty one":
        (checkout.root / ".venv").mkdir()
    elif state != "no .venv":
        assert checkout.run().returncode == 0
        if state == "other pins":
            checkout.pins("invoke==3.0.4 --hash=sha256:1\n")
        else:
            (checkout.root / ".venv/bin/python").chmod(0o600)
    before = checkout.calls
    refused = strange.run()
    assert refused.returncode == 2, refused.stderr
    assert "Permission denied" in refused.stderr
    assert "owner" in refused.stderr
    assert "waiting" not in refused.stderr
    assert checkout.calls == before


def test_another_users_environment_that_is_ready_is_used(strange: Strange) -> None:
    assert strange.checkout.run().returncode == 0
    done = strange.run()
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_another_users_set_up_is_waited_for_and_then_used(strange: Strange) -> None:
    checkout = strange.checkout
    checkout.switch("pip-waits")
    first = checkout.begin()
    wait_for(checkout.root / ".venv" / ".set-up" / "pid")
    second = strange.begin()
    assert second.stderr is not None
    assert "waiting" in second.stderr.readline()
    checkout.switch("go")
    _, err = second.communicate(timeout=60)
    assert (second.returncode, err) == (0, "")
    assert first.wait(60) == 0
    first.communicate()


@pytest.mark.parametrize("signed", [True, False])
def test_another_users_dead_lock_is_named(strange: Strange, signed: bool) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    lock = strange.checkout.root / ".venv" / ".set-up"
    lock.mkdir(parents=True)
    if signed:
        (lock / "pid").write_text(f"{dead.pid}\n")
    refused = strange.run()
    assert refused.returncode == 2
    assert f"sudo rm -rf '{lock}'" in refused.stderr
