"""Install and start a container engine on a machine that has none (Debian and Ubuntu, as root).

Each step is said before it is done. Where this may not or cannot be done, the failure's remedy is the exact commands.
``TRAINWRIGHT_ENGINE_SETUP=never`` forbids every step.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from trainwright import runner
from trainwright.errors import EngineError, RequestError
from trainwright.paths import state_dir

Say = Callable[[str], None]

ENGINE_PACKAGES = ("docker.io", "iptables", "ca-certificates", "mmdebstrap")
# Newer releases split these from docker.io; without Recommends they have to be named. Older ones do not know them.
SPLIT_PACKAGES = ("docker-cli", "docker-buildx")
TOOL_PACKAGES = {"mmdebstrap": "mmdebstrap", "dockerd": "docker.io", "ip": "iproute2"}

START_SECONDS = 60.0
POLL_SECONDS = 0.5
APT_SECONDS = 1800.0
PID_FILE = Path("/var/run/docker.pid")  # dockerd's own
SYSTEMD = Path("/run/systemd/system")  # exists exactly where systemd runs: sd_booted(3)
SYSTEM_FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# What dockerd says when it dies → what to do.
KNOWN_DEATHS = (
    (
        "iptables",
        'install iptables, or do without: echo \'{"iptables": false, "bridge": "none"}\' > /etc/docker/daemon.json',
    ),
    ("cgroup", "mount the control groups: mount -t cgroup2 none /sys/fs/cgroup"),
    ("overlay", 'use another storage driver: echo \'{"storage-driver": "vfs"}\' > /etc/docker/daemon.json'),
    ("no space left", "make room on the disk of /var/lib/docker"),
    (
        "operation not permitted",
        "inside a container, the engine needs --privileged; or set DOCKER_HOST to the host's engine",
    ),
)


def forbidden(*, packages: bool = False) -> str:
    """Why an engine may not be set up here; empty where it may.

    Args:
        packages: whether packages have to be installed, which needs apt-get.

    Raises:
        RequestError: ``TRAINWRIGHT_ENGINE_SETUP`` is neither ``auto`` nor ``never``.
    """
    choice = os.environ.get("TRAINWRIGHT_ENGINE_SETUP") or "auto"
    if choice not in ("auto", "never"):
        raise RequestError(
            f"TRAINWRIGHT_ENGINE_SETUP={choice} is neither auto nor never", remedy="unset TRAINWRIGHT_ENGINE_SETUP"
        )
    if choice == "never":
        return "TRAINWRIGHT_ENGINE_SETUP=never"
    if os.geteuid() != 0:
        return "setting one up needs root"
    if packages and not shutil.which("apt-get", path=_search_path()):
        return "this is neither Debian nor Ubuntu: there is no apt-get"
    return ""


def commands(*packages: str) -> str:
    """The command line that installs ``packages`` by hand."""
    if not shutil.which("apt-get", path=_search_path()):
        return f"install with this system's package manager: {' '.join(packages)}"
    sudo = "" if os.geteuid() == 0 else "sudo "
    names = " ".join(packages)
    return f"{sudo}apt-get update && {sudo}apt-get install -y --no-install-recommends {names}"


def start_commands() -> str:
    """The command line that starts the engine by hand, and installs it first where it is missing."""
    sudo = "" if os.geteuid() == 0 else "sudo "
    systemd = SYSTEMD.is_dir()
    start = f"{sudo}systemctl start docker" if systemd else f"{sudo}sh -c 'dockerd >/var/log/dockerd.log 2>&1 &'"
    return start if _find("dockerd") else f"{commands('docker.io')} && {start}"


def ensure_tool(name: str, say: Say) -> str:
    """The path of a tool (``mmdebstrap`` makes bases, ``ip`` joins hosts), installed where it is missing.

    Raises:
        EngineError: it is missing and may not or cannot be installed.
    """
    if not (path := _find(name)):
        _install((TOOL_PACKAGES.get(name, name),), say, f"{name} is missing")
        path = _find(name)
    if not path:
        raise EngineError(f"{name} is still missing after its installation", remedy=commands(name))
    return path


def install_engine(say: Say) -> None:
    """Install Debian's engine and what it needs.

    Raises:
        EngineError: it may not be installed, or apt-get failed.
    """
    _install(ENGINE_PACKAGES, say, "there is no container engine", optional=SPLIT_PACKAGES)


def set_up(say: Say, *, answers: Callable[[], bool]) -> None:
    """Install the engine where it is missing, start it and wait until it answers.

    Raises:
        EngineError: it may not be set up, or does not come up; the message ends with its last lines.
    """
    if not _find("dockerd"):
        install_engine(say)
        if answers():  # Debian's package starts it where systemd runs
            return
    start(say, answers=answers)


def start(say: Say, *, answers: Callable[[], bool], options: Sequence[str] = (), wait_s: float = START_SECONDS) -> None:
    """Start the engine and wait until it answers; one that is starting already is only waited for.

    Args:
        say: is told each step before it is done.
        answers: asks the engine once.
        options: further arguments for ``dockerd``; its usual configuration file applies too.
        wait_s: seconds after which an engine that does not answer counts as failed.

    Raises:
        EngineError: it died or does not answer in time.
    """
    if reason := forbidden():
        raise EngineError(f"no container engine answers ({reason})", remedy=start_commands())
    log = state_dir() / "engine.log"
    seen = log.stat().st_size if log.exists() else 0
    pid = _starting()
    if pid:
        say(f"the container engine is starting already (process {pid}); waiting for it")
    elif SYSTEMD.is_dir():
        say("starting the container engine (systemctl start docker)")
        done = runner.run(["systemctl", "start", "docker"], timeout=wait_s)
        if not done.ok and not answers():
            journal = runner.run(["journalctl", "-u", "docker", "-n", "15", "--no-pager", "-o", "cat"]).stdout
            raise _dead(f"systemctl start docker failed: {done.tail(3)}", journal)
    else:
        dockerd = _find("dockerd")
        if not dockerd:
            raise EngineError("there is no dockerd on this machine", remedy=start_commands())
        say(f"starting the container engine ({dockerd}) in the background; its log: {log}")
        pid = runner.detach([dockerd, *options], log, env={"PATH": _search_path()})
    began = time.monotonic()
    while not answers():
        if pid and not _alive(pid):
            # Two that start at once: the one that lost ends, the winner is waited for.
            pid = _starting()
            if not pid and not answers():
                raise _dead("the container engine ended at once", _since(log, seen))
        if time.monotonic() - began > wait_s:
            raise _dead(f"the container engine does not answer after {wait_s:.0f} s", _since(log, seen))
        time.sleep(POLL_SECONDS)
    if pid := _starting() or pid:
        (state_dir() / "engine.pid").write_text(f"{pid}\n")
    say(f"the container engine answers after {time.monotonic() - began:.0f} s")


def _install(packages: Sequence[str], say: Say, why: str, *, optional: Sequence[str] = ()) -> None:
    """apt-get install, with one more try after an update (stale lists, a mirror that hiccuped)."""
    by_hand = commands(*packages)
    if reason := forbidden(packages=True):
        raise EngineError(f"{why} ({reason})", remedy=by_hand)
    updated = False
    if not any(Path("/var/lib/apt/lists").glob("*_Packages*")):
        updated = _update(say)
    known = runner.run(["apt-cache", "policy", *optional]).stdout if optional else ""
    wanted = [*packages, *(name for name in optional if _offered(name, known))]
    say(f"{why}: installing {' '.join(wanted)} (apt-get)")
    done = _apt("install", "-y", "--no-install-recommends", *wanted)
    if not done.ok:
        say(
            f"apt-get failed (exit status {done.returncode}); once more{'' if updated else ' with fresh package lists'}"
        )
        if not updated:
            _update(say)
        done = _apt("install", "-y", "--no-install-recommends", *wanted)
    if not done.ok:
        raise EngineError(f"apt-get could not install {' '.join(wanted)}:\n{done.tail(12)}", remedy=by_hand)


def _update(say: Say) -> bool:
    say("fetching the package lists (apt-get update)")
    return _apt("update").ok


def _apt(*arguments: str) -> runner.Completed:
    options = ("-q", "-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=120")
    env = {"DEBIAN_FRONTEND": "noninteractive", "PATH": _search_path()}
    return runner.run(["apt-get", *options, *arguments], env=env, timeout=APT_SECONDS)


def _offered(package: str, policy: str) -> bool:
    """Whether ``apt-cache policy`` names a version of ``package`` that can be installed."""
    _, found, entry = policy.partition(f"{package}:\n")
    candidate = entry.partition("Candidate:")[2].split("\n", 1)[0].strip()
    return bool(found) and candidate not in ("", "(none)")


def _search_path() -> str:
    """PATH and the system folders, which a root shell may lack (``su`` without ``-``)."""
    return f"{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}".strip(":")


def _find(name: str) -> str | None:
    return shutil.which(name, path=_search_path())


def _starting() -> int | None:
    """The process of a dockerd that runs, by its pid file; a file that another process's number is in is removed.

    dockerd 20.10 refuses to start while the file names any living process.
    """
    try:
        pid = int(PID_FILE.read_text())
    except (OSError, ValueError):
        return None
    if not _alive(pid):
        return None
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None
    if name.startswith("dockerd"):
        return pid
    PID_FILE.unlink(missing_ok=True)
    return None


def _alive(pid: int) -> bool:
    """Whether a process runs; a child that ended and was not waited for (state Z) does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def _since(log: Path, offset: int) -> str:
    try:
        return log.read_bytes()[offset:].decode(errors="replace")
    except OSError:
        return ""


def _dead(what: str, output: str) -> EngineError:
    """The failure with the engine's last lines; advice by its fatal line alone, as warnings name much that is fine."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = ([line for line in lines if "level=info" not in line] or lines)[-8:]
    fatal = [line for line in last if "failed to start daemon" in line or "level=fatal" in line] or last[-1:]
    advice = next((remedy for word, remedy in KNOWN_DEATHS if word in " ".join(fatal).lower()), "")
    return EngineError("\n".join([what, *last]), remedy=advice or f"start it by hand and read on: {start_commands()}")
