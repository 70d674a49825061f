"""The front door, ``./invoke``: what it sets up, and when it does so anew. No network."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.front_door import AUTO, Checkout, wait_for


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_set_up_runs_once_and_then_says_nothing(checkout: Checkout) -> None:
    first = checkout.run("build", "--cuda", "cu 113")
    assert first.returncode == 0, first.stderr
    assert checkout.calls == ["venv", "pip"]
    assert "requirements.txt" in first.stderr
    assert first.stdout.splitlines()[1:] == [str(checkout.root / "tasks.py"), "build", "--cuda", "cu 113"]
    second = checkout.run("plan")
    assert (second.returncode, second.stderr) == (0, "")
    assert checkout.calls == ["venv", "pip"]


def test_pip_is_told_to_check_hashes(checkout: Checkout) -> None:
    checkout.run()
    assert "--require-hashes" in (checkout.folder / "calls").read_text()


def test_tasks_see_the_callers_folder(checkout: Checkout, tmp_path: Path) -> None:
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    assert checkout.run("x", cwd=elsewhere).stdout.splitlines()[0] == str(elsewhere)
    assert not list(elsewhere.iterdir())


def test_a_link_to_the_front_door_finds_its_checkout(checkout: Checkout, tmp_path: Path) -> None:
    checkout.run()
    link = tmp_path / "tw"
    link.symlink_to(checkout.root / "invoke")
    done = subprocess.run([link, "x"], env=checkout.environment, capture_output=True, text=True, check=True)
    assert str(checkout.root / "tasks.py") in done.stdout.splitlines()


def test_changed_pins_make_it_anew(checkout: Checkout) -> None:
    checkout.run()
    leftover = checkout.root / ".venv" / "lib" / "leftover"
    leftover.touch()
    checkout.pins("invoke==3.0.4 --hash=sha256:1\n")
    assert checkout.run().returncode == 0
    assert checkout.calls == ["venv", "pip"] * 2
    assert not leftover.exists()
    assert checkout.run().stderr == ""


def test_a_touched_file_with_the_same_pins_changes_nothing(checkout: Checkout) -> None:
    checkout.run()
    (checkout.root / "requirements.txt").touch()
    checkout.run()
    assert checkout.calls == ["venv", "pip"]


def test_a_moved_checkout_is_set_up_anew(checkout: Checkout) -> None:
    checkout.run()
    checkout.root = checkout.root.rename(checkout.folder / "moved")
    assert checkout.run().returncode == 0
    assert checkout.calls == ["venv", "pip"] * 2
    (link,) = checkout.root.glob(".venv/lib/python3*/site-packages/trainwright.pth")
    assert link.read_text() == f"{checkout.root}\n"


def test_a_python_that_went_away_is_replaced(checkout: Checkout) -> None:
    checkout.run()
    (checkout.root / ".venv/bin/python").unlink()
    assert checkout.run().returncode == 0
    assert checkout.calls == ["venv", "pip"] * 2


def test_a_failed_pip_shows_its_words_and_the_next_call_goes_on(checkout: Checkout) -> None:
    checkout.switch("pip-fails")
    failed = checkout.run()
    assert failed.returncode == 8
    assert "DO NOT MATCH" in failed.stderr
    assert "PIP_INDEX_URL" in failed.stderr
    assert str(checkout.root / ".venv" / "setup.log") in failed.stderr
    assert failed.stdout == ""
    checkout.switch("pip-fails", on=False)
    assert checkout.run().returncode == 0
    assert checkout.calls == ["venv", "pip"] * 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_set_up_that_was_cut_short_is_redone(checkout: Checkout, number: signal.Signals) -> None:
    checkout.switch("pip-hangs")
    process = checkout.begin()
    wait_for(checkout.folder / "pip-began")
    os.killpg(process.pid, number)
    process.communicate(timeout=20)
    assert process.returncode != 0
    assert (checkout.root / ".venv" / ".set-up").exists() == (number == signal.SIGKILL)
    checkout.switch("pip-hangs", on=False)
    again = checkout.run()
    assert again.returncode == 0, again.stderr
    assert checkout.calls == ["venv", "pip"] * 2
    assert not (checkout.root / ".venv" / ".set-up").exists()


def test_two_at_once_set_up_once(checkout: Checkout) -> None:
    checkout.switch("pip-slow")
    both = [checkout.begin("a"), checkout.begin("b")]
    said = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert checkout.calls == ["venv", "pip"]
    assert any("waiting" in err for _, err in said)


def test_many_take_over_the_lock_of_a_dead_one_once(checkout: Checkout) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    lock = checkout.root / ".venv" / ".set-up"
    lock.mkdir(parents=True)
    (lock / "pid").write_text(f"{dead.pid}\n")
    many = [checkout.begin() for _ in range(5)]
    assert [process.wait(60) for process in many] == [0] * 5
    assert checkout.calls == ["venv", "pip"]
    for process in many:
        process.communicate()


def test_a_lock_that_nobody_signed_is_taken_over(checkout: Checkout) -> None:
    (checkout.root / ".venv" / ".set-up").mkdir(parents=True)
    assert checkout.run().returncode == 0
    assert checkout.calls == ["venv", "pip"]


def test_a_file_that_uv_left_in_the_environment_is_no_lock(checkout: Checkout) -> None:
    (checkout.root / ".venv").mkdir()
    (checkout.root / ".venv" / ".lock").touch()
    assert checkout.run().returncode == 0
    assert checkout.calls == ["venv", "pip"]


def test_an_environment_of_someone_elses_is_left_alone(checkout: Checkout) -> None:
    (checkout.root / ".venv").mkdir()
    foreign = checkout.root / ".venv" / "pyvenv.cfg"
    foreign.touch()
    refused = checkout.run()
    assert refused.returncode == 2
    assert "move it away" in refused.stderr
    assert foreign.exists()
    assert checkout.calls == []


def test_an_old_python_is_refused_with_a_remedy(checkout: Checkout) -> None:
    checkout.switch("old")
    refused = checkout.run()
    assert refused.returncode == 2
    assert "3.11" in refused.stderr
    assert "TRAINWRIGHT_PYTHON" in refused.stderr
    assert checkout.calls == []


@pytest.mark.parametrize("first", ["exit 3", "echo /opt/bin/python3; exit 1", "echo pyenv: not found >&2; exit 127"])
def test_pythons_are_tried_until_one_is_whole(checkout: Checkout, first: str) -> None:
    """An older one, one without venv and a shim without a Python behind it are passed over."""
    shutil.copy2(checkout.python, checkout.python.with_name("python3.12"))
    checkout.program("python3", first)
    checkout.program("python3.13", first)
    done = checkout.run(env={"TRAINWRIGHT_PYTHON": ""})
    assert done.returncode == 0, done.stderr
    assert checkout.calls == ["venv", "pip"]


def test_root_on_debian_gets_the_missing_module(checkout: Checkout) -> None:
    checkout.switch("no-venv")
    checkout.program("id", "echo 0")
    checkout.program("apt-get", f'echo "apt-get $*" >>{checkout.folder}/apt\nrm -f {checkout.folder}/no-venv')
    done = checkout.run(env=AUTO)
    assert done.returncode == 0, done.stderr
    asked = (checkout.folder / "apt").read_text().split()
    assert asked[-1] == "python3.11-venv"
    assert "--no-remove" in asked
    assert "installing python3.11-venv" in done.stderr
    assert "apt-get remove python3.11-venv" in done.stderr


def test_others_on_debian_get_the_command(checkout: Checkout) -> None:
    checkout.switch("no-venv")
    checkout.program("id", "echo 1000")
    checkout.program("apt-get", f"touch {checkout.folder}/apt")
    refused = checkout.run()
    assert refused.returncode == 4
    assert "sudo apt-get install -y --no-remove python3.11-venv" in refused.stderr
    assert not (checkout.folder / "apt").exists()


def test_a_failed_apt_shows_its_words(checkout: Checkout) -> None:
    checkout.switch("no-venv")
    checkout.program("id", "echo 0")
    checkout.program("apt-get", "echo 'E: no such mirror' >&2; exit 100")
    refused = checkout.run(env=AUTO)
    assert refused.returncode == 4
    assert "E: no such mirror" in refused.stderr
    assert not (checkout.root / ".venv" / ".set-up").exists()


def test_the_real_thing_without_a_network(checkout: Checkout, copying_python: Path, tmp_path: Path) -> None:
    """A real Python, venv and pip, and a wheel that stands in for invoke."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel = wheels / "invoke-3.0.3-py3-none-any.whl"
    info = "invoke-3.0.3.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            "invoke_stub.py",
            "import os, sys\nimport trainwright\n"
            "def main(): print(os.getcwd(), trainwright.__file__, sys.argv[1:], sys.prefix, sep='\\n')\n",
        )
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: invoke\nVersion: 3.0.3\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/entry_points.txt", "[console_scripts]\ninvoke = invoke_stub:main\n")
        archive.writestr(f"{info}/RECORD", "")
    (checkout.root / "trainwright").mkdir()
    (checkout.root / "trainwright" / "__init__.py").touch()
    (checkout.root / "tasks.py").write_text("import invoke_stub\ninvoke_stub.main()\n")
    settings = {
        "TRAINWRIGHT_PYTHON": sys.executable,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_CONFIG_FILE": os.devnull,
    }
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "venv.py").write_text("raise SystemExit('the caller has a module of this name')\n")

    checkout.pins(f"invoke==3.0.3 --hash=sha256:{'0' * 64}\n")
    copied = {"TRAINWRIGHT_PYTHON": str(copying_python)}
    assert checkout.run(env=settings | copied, cwd=elsewhere).returncode == 8
    checkout.pins(f"invoke==3.0.3 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    done = checkout.run("--list", env=settings, cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        str(elsewhere),
        str(checkout.root / "trainwright" / "__init__.py"),
        str(["--list"]),
        str(checkout.root / ".venv"),
    ]
    assert checkout.run(env=settings).stderr == ""
