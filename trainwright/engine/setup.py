"""Starts a container engine if none answers, and installs it first if it is missing.

For Debian and Ubuntu, as root, after :mod:`trainwright.engine.consent` has announced the change. If that is not allowed
or not possible, the failure's remedy has the exact commands.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from trainwright.core import runner
from trainwright.core.errors import EngineError
from trainwright.core.paths import state_dir
from trainwright.core.say import Say
from trainwright.engine import consent, engine_packages
from trainwright.engine.consent import MachineChange, agree, find, search_path, sudo
from trainwright.engine.engine_packages import TOOL_PACKAGES, Missing, Simulated

START_SECONDS = 60.0
POLL_SECONDS = 0.5
PID_FILE = Path("/var/run/docker.pid")  # dockerd's own
SOCKET = Path("/var/run/docker.sock")
DATA_ROOT = Path("/var/lib/docker")
IP_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
BY_HAND_LOG = "/var/log/dockerd.log"
SYSTEMD = Path("/run/systemd/system")  # exists exactly where systemd runs: sd_booted(3)

# Words of dockerd's fatal error, and the remedy.
KNOWN_DEATHS = (
    (
        "iptables",
        'install iptables, or do without: echo \'{"iptables": false, "bridge": "none"}\' > /etc/docker/daemon.json',
    ),
    ("cgroup", "mount the control groups: mount -t cgroup2 none /sys/fs/cgroup"),
    ("overlay", 'use another storage driver: echo \'{"storage-driver": "vfs"}\' > /etc/docker/daemon.json'),
    ("no space left", "free space on the disk of /var/lib/docker"),
    (
        "operation not permitted",
        "inside a container, the engine needs --privileged; or set DOCKER_HOST to the host's engine",
    ),
)


def missing(*, client: bool) -> Missing:
    """What must be installed to build here; ``client``: whether there is a ``docker`` that can build."""
    engine = find("dockerd") or (f"process {pid}" if (pid := _starting()) else "")
    return engine_packages.missing(client=client, engine=engine, listens=_listens())


def start_commands() -> str:
    """The command line that starts the engine by hand, and installs it first if it is missing."""
    lacking = missing(client=True)
    start = f"{sudo()}systemctl start docker" if SYSTEMD.is_dir() else f"{sudo()}sh -c 'dockerd >{BY_HAND_LOG} 2>&1 &'"
    return f"{lacking.by_hand} && {start}" if lacking.packages else lacking.by_hand or start


def ensure_tool(name: str, say: Say) -> str:
    """The path of a tool (``mmdebstrap`` for bases, ``ip`` for rehearsals), installed if it is missing.

    Raises:
        EngineError: it is missing and may not or cannot be installed.
    """
    if path := find(name):
        return path
    package = TOOL_PACKAGES.get(name, name)
    by_hand = engine_packages.commands(package)
    _install((package,), f"{name} is missing", by_hand, say)
    if path := find(name):
        return path
    raise EngineError(f"{name} is still missing after its installation", remedy=by_hand)


def set_up(failure: EngineError, say: Say, *, client: bool, answers: Callable[[], bool]) -> None:
    """Install what is missing, start the engine and wait until it answers. Each step is announced first.

    Args:
        failure: what is wrong, and the command lines to fix it by hand.
        say: progress callback.
        client: whether a ``docker`` that can build is here, and its engine does not answer.
        answers: asks the engine once.

    Raises:
        EngineError: it may not be set up, or does not start; the message ends with its last lines.
    """
    lacking = missing(client=client)
    if lacking.why_not:
        raise failure
    _install(lacking.packages, failure.message, failure.remedy, say, starts=client or not _listens())
    if not answers():  # a package starts it where systemd runs
        start(say, answers=answers)


def _install(packages: Sequence[str], why: str, by_hand: str, say: Say, *, starts: bool = False) -> None:
    """Install packages, after announcing it; ``starts`` announces the start of an engine as well.

    Raises:
        EngineError: it is not allowed, or apt-get failed.
    """
    if reason := consent.forbidden(packages=bool(packages)):
        raise EngineError(f"{why} ({reason})", remedy=by_hand, state="refused")
    if packages and consent.permission()[0] == "auto":
        engine_packages.fetch_lists(say)  # apt cannot simulate without them
    foreseen = engine_packages.simulate(packages) if packages else Simulated((), ())
    does, undo = _starting_changes() if starts else ((), ())
    agree(MachineChange(why, (*foreseen.does, *does), (*undo, *foreseen.undo), by_hand), say)
    if packages:
        engine_packages.install(packages, say)


def _starting_changes() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a started engine changes on this machine, and the command lines that undo it.

    dockerd sets the policy of FORWARD to DROP only if it turns on ip_forward itself
    (setupIPForwarding in libnetwork/drivers/bridge/setup_ip_forwarding.go of moby/moby).
    """
    systemd = SYSTEMD.is_dir()
    log = "journalctl -u docker" if systemd else str(state_dir() / "engine.log")
    does = [f"started: dockerd, as root; it keeps running after this command (its log: {log})"]
    stop = "systemctl disable --now docker.service docker.socket" if systemd else f'kill "$(cat {PID_FILE})"'
    undo = [f"{stop} && ip link delete docker0"]
    if not _forwards():
        does.append("set by dockerd: net.ipv4.ip_forward on, and the policy of iptables' FORWARD chain to DROP")
        undo.append("iptables -P FORWARD ACCEPT; sysctl -w net.ipv4.ip_forward=0")
    does.append("added by dockerd: its chains of iptables and the bridge docker0, until the next boot")
    does.append(f"opened: {SOCKET}; whoever can write to it (the group docker) has the rights of root on this machine")
    if not DATA_ROOT.exists():
        undo.append(f"rm -rf {DATA_ROOT}   # every image and container of this engine")
    return tuple(does), tuple(undo)


def _forwards() -> bool:
    try:
        return IP_FORWARD.read_text().strip() == "1"
    except OSError:
        return False


def _listens() -> bool:
    """Whether something answers at the usual socket, such as the engine of a container's host."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(SOCKET)) == 0


def start(say: Say, *, answers: Callable[[], bool], options: Sequence[str] = (), wait_s: float = START_SECONDS) -> None:
    """Start the engine, unless one is starting already, and wait until it answers. Does not ask.

    Args:
        say: progress callback.
        answers: asks the engine once.
        options: further arguments for ``dockerd``; its configuration file applies as well.
        wait_s: seconds after which an engine that does not answer counts as failed.

    Raises:
        EngineError: it exited or does not answer in time.
    """
    log = state_dir() / "engine.log"
    seen = log.stat().st_size if log.exists() else 0
    pid = _starting()
    if pid:
        say(f"the container engine is already starting (process {pid}); waiting for it")
    elif SYSTEMD.is_dir():
        say("starting the container engine (systemctl start docker)")
        done = runner.run(["systemctl", "start", "docker"], timeout=wait_s)
        if not done.ok and not answers():
            journal = runner.run(["journalctl", "-u", "docker", "-n", "15", "--no-pager", "-o", "cat"]).stdout
            raise _dead(f"systemctl start docker failed: {done.tail(3)}", journal)
    else:
        dockerd = find("dockerd")
        if not dockerd:
            raise EngineError("dockerd not found on this machine", remedy=start_commands())
        PID_FILE.unlink(missing_ok=True)  # dockerd 20.10 refuses to start while it names any living process
        say(f"starting the container engine ({dockerd}) in the background; its log: {log}")
        pid = runner.detach([dockerd, *options], log, env={"PATH": search_path()})
    began = time.monotonic()
    while not answers():
        if pid and not alive(pid):
            # If two start at once, the loser exits; wait for the winner.
            pid = _starting()
            if not pid and not answers():
                raise _dead("the container engine exited at once", _since(log, seen))
        if time.monotonic() - began > wait_s:
            raise _dead(f"the container engine does not answer after {wait_s:.0f} s", _since(log, seen))
        time.sleep(POLL_SECONDS)
    if pid := _starting() or pid:
        (state_dir() / "engine.pid").write_text(f"{pid}\n")
    say(f"the container engine answers after {time.monotonic() - began:.0f} s")


def _starting() -> int | None:
    """The pid of a running dockerd, from its pid file."""
    try:
        pid = int(PID_FILE.read_text())
        name = Path(f"/proc/{pid}/comm").read_text()
    except (OSError, ValueError):
        return None
    return pid if alive(pid) and name.startswith("dockerd") else None


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie (state Z) does not."""
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
    """The failure with the engine's last lines; advice only by its fatal line, as warnings name much that is fine."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = ([line for line in lines if "level=info" not in line] or lines)[-8:]
    fatal = [line for line in last if "failed to start daemon" in line or "level=fatal" in line] or last[-1:]
    advice = next((remedy for word, remedy in KNOWN_DEATHS if word in " ".join(fatal).lower()), "")
    return EngineError(
        "\n".join([what, *last]), remedy=advice or f"start it by hand and read its output: {start_commands()}"
    )
