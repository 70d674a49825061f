"""The packages of an engine: which are installed, which are missing, and apt-get without removals.

Nothing here ever removes a package: a machine may run containers in an engine of another origin, which apt would
remove to install Debian's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwright.core import runner
from trainwright.core.errors import EngineError
from trainwright.core.say import Say
from trainwright.engine import consent
from trainwright.engine.consent import find, sudo

ENGINE_PACKAGES = ("docker.io", "iptables", "ca-certificates", "mmdebstrap")
# Newer releases split these from docker.io; without Recommends they must be named. Older ones do not have them.
SPLIT_PACKAGES = ("docker-cli", "docker-buildx")
TOOL_PACKAGES = {"mmdebstrap": "mmdebstrap", "dockerd": "docker.io", "ip": "iproute2"}

APT_SECONDS = 1800.0
APT_LISTS = Path("/var/lib/apt/lists")
SNAP = Path("/snap/bin/docker")


@dataclass(frozen=True)
class PackageOrigin:
    """One source of engine packages; those of two sources conflict.

    Attributes:
        name: for messages.
        marks: if one of these is installed, this machine's engine is of this origin.
        clients: the packages that contain ``docker``.
        plugin: the package that contains ``docker buildx``.
        engine: the package that contains ``dockerd``.
    """

    name: str
    marks: tuple[str, ...]
    clients: tuple[str, ...]
    plugin: str
    engine: str


# Docker's: docker-ce and docker-ce-cli have "Conflicts: docker.io" (docker/docker-ce-packaging, deb/common/control),
# containerd.io has "Conflicts: containerd, runc" (docker/containerd-packaging, debian/control), which docker.io
# depends on; docker.io in turn has "Conflicts: docker-ce, docker-ce-cli" (apt-cache show docker.io, Debian 12).
# Ubuntu's docker-buildx depends on docker.io, so each origin has its own plugin. Microsoft's moby-buildx conflicts
# with docker-ce and docker-buildx-plugin (the index of its repository for Debian 12).
DOCKER = PackageOrigin(
    "Docker's own packages",
    ("docker-ce", "docker-ce-cli", "docker-ce-rootless-extras", "containerd.io"),
    ("docker-ce-cli",),
    "docker-buildx-plugin",
    "docker-ce",
)
MICROSOFT = PackageOrigin(
    "Microsoft's packages", ("moby-engine", "moby-cli", "moby-containerd"), ("moby-cli",), "moby-buildx", "moby-engine"
)
DEBIAN = PackageOrigin(
    "Debian's packages", ("docker.io", "docker-cli"), ("docker.io", "docker-cli"), "docker-buildx", "docker.io"
)
PODMAN = "podman-docker"  # "Conflicts: docker.io" (apt-cache show podman-docker, Debian 12)


@dataclass(frozen=True)
class Missing:
    """What a machine lacks for building.

    Attributes:
        packages: the packages to install; none if nothing is missing, or nothing may be installed.
        why_not: why nothing may be installed beside the existing engine.
        by_hand: the command line for a person in either case.
    """

    packages: tuple[str, ...] = ()
    why_not: str = ""
    by_hand: str = ""


def missing(*, client: bool, engine: str, listens: bool) -> Missing:
    """What must be installed so that this machine can build.

    Args:
        client: whether a ``docker`` that can build is here.
        engine: the installed ``dockerd``, if any.
        listens: whether an engine listens at the default socket; in a container it may be the host's.
    """
    if client and engine:
        return Missing()
    here = installed(*DOCKER.marks, *MICROSOFT.marks, *DEBIAN.marks, PODMAN)
    origin = next((one for one in (DOCKER, MICROSOFT, DEBIAN) if here & set(one.marks)), None)
    if origin is not None and not client and here & set(origin.clients) and (engine or listens):
        return Missing((origin.plugin,), by_hand=commands(origin.plugin))
    if origin in (DOCKER, MICROSOFT):
        names = ([] if engine else [origin.engine]) + ([] if client else [*origin.clients, origin.plugin])
        marks = ", ".join(sorted(here & set(origin.marks)))
        refused = f"{origin.name} are installed ({marks}), and docker.io would remove them", commands(*names)
    elif PODMAN in here:
        remedy = f"{sudo()}apt-get remove {PODMAN}   # or name another engine: DOCKER_HOST=URL"
        refused = f"{PODMAN} is installed, and docker.io would remove it", remedy
    elif SNAP.exists():
        remedy = f"{sudo()}snap {'start' if client else 'refresh'} docker"
        refused = f"docker is installed as a snap ({SNAP}), and docker.io would use the same socket", remedy
    elif engine and origin is None:
        remedy = (
            "install buildx as ~/.docker/cli-plugins/docker-buildx: https://github.com/docker/buildx#manual-download"
        )
        refused = (
            f"an engine that belongs to no package was found ({engine}), and docker.io would use the same socket",
            remedy,
        )
    else:
        return Missing(ENGINE_PACKAGES, by_hand=commands(*_completed(ENGINE_PACKAGES)))
    return Missing(why_not=f"{refused[0]}: nothing is installed", by_hand=refused[1])


def installed(*packages: str) -> set[str]:
    """The ``packages`` whose files are on this machine, including those that are only partly installed."""
    said = runner.run(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\\n", *packages], env=_environment())
    rows = (line.split() for line in said.stdout.splitlines())
    return {row[0] for row in rows if len(row) == 2 and row[1] not in ("not-installed", "config-files")}


def commands(*packages: str) -> str:
    """The command line that installs ``packages`` by hand."""
    names = " ".join(packages)
    if find("apt-get") is None:
        return f"install with this system's package manager: {names}"
    return f"{sudo()}apt-get update && {sudo()}apt-get install -y --no-remove --no-install-recommends {names}"


@dataclass(frozen=True)
class Simulated:
    """What apt-get would do: new packages, and packages that get another version."""

    new: tuple[str, ...]
    upgraded: tuple[str, ...]

    @property
    def does(self) -> tuple[str, ...]:
        """Lines for a person."""
        rows = (("installed", self.new), ("upgraded", self.upgraded))
        return tuple(f"{what} by apt-get: {' '.join(names)}" for what, names in rows if names)

    @property
    def undo(self) -> tuple[str, ...]:
        """Command lines for a person. Not purge: that of docker.io deletes /var/lib/docker (its postrm)."""
        return (f"{sudo()}apt-get remove {' '.join(self.new)}",) if self.new else ()


def simulate(packages: Sequence[str]) -> Simulated:
    """What installing ``packages`` would do. Without package lists, only the packages themselves are listed.

    Raises:
        EngineError: it would remove a package.
    """
    packages = _completed(packages)
    done = _install_command("-s", *packages)
    _check_removals(done, packages)
    if not done.ok:
        here = installed(*packages)
        return Simulated(tuple(name for name in packages if name not in here), ())
    rows = re.findall(r"^Inst (\S+) (\[)?", done.stdout, re.MULTILINE)
    new, upgraded = ([name for name, old in rows if bool(old) == again] for again in (False, True))
    return Simulated(tuple(new), tuple(upgraded))


def install(packages: Sequence[str], say: Say) -> None:
    """apt-get install, with a retry after an update (stale lists, a mirror that failed briefly). Does not ask.

    Raises:
        EngineError: apt-get failed, or would have removed a package.
    """
    updated = fetch_lists(say)
    packages = _completed(packages)
    say(f"installing {' '.join(packages)} (apt-get)")
    done = _install_command(*packages)
    if not done.ok:
        _check_removals(done, packages)
        again = "" if updated else " with fresh package lists"
        say(f"apt-get failed (exit status {done.returncode}); trying again{again}")
        if not updated:
            _update(say)
        done = _install_command(*packages)
    if not done.ok:
        _check_removals(done, packages)
        raise EngineError(
            f"apt-get could not install {' '.join(packages)}:\n{done.tail(12)}", remedy=commands(*packages)
        )


def _check_removals(done: runner.Completed, packages: Sequence[str]) -> None:
    """Fail if apt-get refused to remove packages (its own text: "remove is disabled")."""
    if done.ok or "remove is disabled" not in done.stderr:
        return
    named = re.search(r"will be REMOVED:\n((?: .*\n)+)", done.stdout)
    removed = " ".join(named.group(1).split()) if named else "other packages"
    names = " ".join(packages)
    raise EngineError(
        f"installing {names} would remove {removed}: nothing was installed",
        remedy=f"{sudo()}apt-get install {names}   # removes {removed}",
        state="refused",
    )


def fetch_lists(say: Say) -> bool:
    """Fetch the package lists if they are missing, as in a fresh container; returns whether it did."""
    return not any(APT_LISTS.glob("*_Packages*")) and _update(say)


def _update(say: Say) -> bool:
    say("fetching the package lists (apt-get update)")
    return _apt("update").ok


def _install_command(*arguments: str) -> runner.Completed:
    return _apt("install", "-y", "--no-remove", "--no-install-recommends", *arguments)


def _apt(*arguments: str) -> runner.Completed:
    options = ("-q", "-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=120")
    return runner.run(["apt-get", *options, *arguments], env=_environment(), timeout=APT_SECONDS)


def _environment() -> dict[str, str]:
    return {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C", "PATH": consent.search_path()}


def _completed(packages: Sequence[str]) -> tuple[str, ...]:
    """``packages``, with what this release split from docker.io, according to ``apt-cache policy``."""
    if DEBIAN.engine not in packages:
        return tuple(packages)
    policy = runner.run(["apt-cache", "policy", *SPLIT_PACKAGES], env=_environment()).stdout
    versions = dict(re.findall(r"^(\S+):\n +Installed: .*\n +Candidate: (.*)", policy, re.MULTILINE))
    return (*packages, *(name for name in SPLIT_PACKAGES if versions.get(name, "(none)") != "(none)"))
