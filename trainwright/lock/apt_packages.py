"""What apt would install in a base image, found out in a separate build step.

A one-step build in the base image (``templates/apt/``) asks apt, with the site's mirrors, proxies and secrets, and
returns its answer as files. So the answer takes the image, today's archive and the site's settings into account;
nothing is mounted into a container, and a remote engine works as well.
"""

from __future__ import annotations

import re
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.core.errors import RequestError, SourceError, nearest
from trainwright.core.heartbeat import heartbeat, waiting
from trainwright.core.masking import mask
from trainwright.core.owned import fill
from trainwright.core.paths import locked, state_dir, templates_dir
from trainwright.core.runner import run
from trainwright.core.say import Say
from trainwright.engine.buildkit import command
from trainwright.engine.engine import Engine
from trainwright.plan.dockerfile import stages, steps
from trainwright.plan.plan import Base
from trainwright.plan.plan_lock import LockedArchive, LockedSystemPackage, SystemPackage
from trainwright.plan.render import render_question
from trainwright.site.site import Site
from trainwright.sources.apt_repository import context_files, gathered, locked_packages

SECONDS = 3600
BASE = "base"
# What a stage starts from -> the folder of the questions that are asked there.
_FOLDERS = {BASE: "runtime", "${BUILD_IMAGE}": "build"}
# As in the macro os_install of templates/macros.j2; a user's packages may have a version.
_INSTALL = re.compile(r"/mnt/apt-install((?:\s+\\?\s*[a-z0-9][\w.+:=~-]*)+)")
# The question about a user's packages; it sorts before those of the stages.
_NAMED = "0-named"


@dataclass(frozen=True)
class Start:
    """Where apt is asked: the base of a plan, its root file system (if it has one), and the build arguments that name
    its images."""

    base: Base
    rootfs: Path | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What apt answered: packages to install, packages in the base images, and the available versions by package."""

    packages: tuple[LockedSystemPackage, ...]
    installed: tuple[SystemPackage, ...]
    known: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Question:
    """The packages that a stage of a Dockerfile installs with apt, including those of its parent stages, and what it
    starts from: ``base`` or ``${BUILD_IMAGE}``."""

    start: str
    packages: tuple[str, ...]


def questions(dockerfile: str) -> dict[str, Question]:
    """What each stage that installs distribution packages asks apt for."""
    parents = {stage.name: stage.parent for stage in stages(dockerfile)}
    own: dict[str, set[str]] = {}
    for step in steps(dockerfile):
        for listed in _INSTALL.findall(step.instruction):
            own.setdefault(step.stage, set()).update(listed.replace("\\", " ").split())
    found = {}
    for stage, names in own.items():
        packages, at = set(names), stage
        while at in parents and at != BASE:
            packages |= own.get(at, set())
            at = parents[at]
        found[stage] = Question(at, tuple(sorted(packages)))
    return found


def ask_apt(
    dockerfile: str,
    start: Start,
    site: Site,
    engine: Engine,
    *,
    also: Mapping[str, str],
    named: Sequence[str] = (),
    say: Say,
) -> Answer:
    """What apt would install today in the stages of a Dockerfile.

    Args:
        dockerfile: of the plan.
        start: the base.
        site: how the archive is reached.
        engine: runs the build that asks.
        also: packages, with their versions, that an installer fetched with apt in an earlier build; those not in the
            archive came with the installer.
        named: packages of ``--with-apt``.
        say: progress callback.

    Raises:
        RequestError: the archive lacks a package of ``named``.
        SourceError: the archive does not answer, or has no such package.
    """
    asked = questions(dockerfile)
    say("asking apt for the versions of the distribution's packages")
    files = {
        f"{_FOLDERS[question.start]}/{stage}/install": " ".join(question.packages) for stage, question in asked.items()
    }
    files |= _about_named(named)
    if also:
        files[f"{_FOLDERS[BASE]}/os/also"] = "".join(f"{name} {version}\n" for name, version in sorted(also.items()))
    with tempfile.TemporaryDirectory(prefix="trainwright-apt-") as name:
        answer = Path(name)
        with heartbeat(say, waiting("asking apt")):
            _build(start, site, engine, files=files, target=answer)
        _refuse_named(answer, start.base)
        records = {path.parent.name: path.read_text() for path in sorted(answer.glob("*/*/records"))}
        known = _known(answer)
        rows = {line for path in answer.glob("*/installed") for line in path.read_text().splitlines()}
        installed = tuple(
            SystemPackage(name=name, version=version, architecture=architecture)
            for name, version, architecture in sorted(line.split() for line in rows)
        )
    return Answer(locked_packages(records), installed, known)


def _known(answer: Path) -> dict[str, tuple[str, ...]]:
    """The versions that the archive has of each package (``apt-cache madison``), the newest first."""
    known: dict[str, list[str]] = {}
    for row in "".join(path.read_text() for path in sorted(answer.glob("*/known"))).splitlines():
        package, version = (part.strip() for part in row.split("|")[:2])
        known.setdefault(package, []).append(version)
    return {package: tuple(dict.fromkeys(versions)) for package, versions in known.items()}


def check_named(packages: Sequence[str], start: Start, site: Site, engine: Engine, *, say: Say) -> None:
    """Check that the base's archive has the packages of ``--with-apt``, before anything is built on it.

    Args:
        packages: each ``NAME`` or ``NAME=VERSION``.
        start: the base.
        site: how the archive is reached.
        engine: runs the build that asks.
        say: progress callback.

    Raises:
        RequestError: it lacks one, or that version of it; with the nearest names, or the versions that it has.
        SourceError: the archive does not answer.
    """
    say("asking apt for the packages of --with-apt")
    with tempfile.TemporaryDirectory(prefix="trainwright-apt-") as name:
        answer = Path(name)
        with heartbeat(say, waiting("asking apt")):
            _build(start, site, engine, files=_about_named(packages), target=answer)
        _refuse_named(answer, start.base)


def _about_named(packages: Sequence[str]) -> dict[str, str]:
    return {f"{_FOLDERS[BASE]}/{_NAMED}/named": " ".join(packages)} if packages else {}


def _refuse_named(answer: Path, base: Base) -> None:
    """Refuse packages of ``--with-apt`` that apt cannot install, by its answer."""
    failed = answer / _FOLDERS[BASE] / _NAMED / "failed"
    if not failed.is_file():
        return
    names, known = (answer / _FOLDERS[BASE] / "names").read_text().split(), _known(answer)
    said: dict[str, list[str]] = {}
    for line in failed.read_text().splitlines():
        if line.startswith(" "):
            said[next(reversed(said))].append(mask(line.strip()))
        else:
            said[line] = []
    rows, near = [], list[str]()
    for package, errors in said.items():
        name, _, version = package.partition("=")
        if name not in names:
            rows.append(f"{name}: {base.os} has no package of this name")
            near += nearest(name, names, 2)
        elif version and version not in known.get(name, ()):
            rows.append(f"{package}: {base.os} has {name} {', '.join(known.get(name, ()))}")
        else:
            rows.append(f"{package}: {'; '.join(errors) or 'apt cannot install it'}")
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    raise RequestError(
        "\n".join(["--with-apt: not all of these packages can be installed", *(f"  {row}" for row in rows)]),
        remedy=f"{hint}`apt-cache search WORD` on {base.os} finds packages by what they are for.",
        packages=sorted(said),
        nearest=near,
    )


def fetch_packages(
    packages: tuple[LockedSystemPackage, ...],
    pool: tuple[LockedArchive, ...],
    start: Start,
    site: Site,
    engine: Engine,
    *,
    target: Path,
) -> str:
    """Fetch packages in their locked versions, and files of the archive's pool.

    Args:
        packages: of the distribution.
        pool: files in the pool of Debian's archive, each under a package's name.
        start: the base.
        site: how the archive is reached.
        engine: runs the build that asks.
        target: the folder for the files; their checksums are not checked yet.

    Returns:
        The packages' entries in apt's index.

    Raises:
        SourceError: one of them is no longer in the archive.
    """
    pins = [
        f"{p.name}={p.version}" if p.architecture == "all" else f"{p.name}:{p.architecture}={p.version}"
        for p in packages
    ]
    files = {
        f"{_FOLDERS[BASE]}/fetch/download": "".join(f"{pin}\n" for pin in pins),
        f"{_FOLDERS[BASE]}/fetch/pool": "".join(f"{a.package} {a.file} {a.sha256}\n" for a in pool),
    }
    with tempfile.TemporaryDirectory(prefix="apt-", dir=target) as name:
        answer = Path(name)
        _build(start, site, engine, files=files, target=answer)
        found = answer / _FOLDERS[BASE] / "fetch"
        failed = (found / "failed").read_text().strip() if (found / "failed").is_file() else ""
        if failed:
            _not_there(failed, packages, pool)
        for path in (found / "files").iterdir():
            path.replace(target / path.name)
        return (found / "records").read_text()


def _not_there(failed: str, packages: tuple[LockedSystemPackage, ...], pool: tuple[LockedArchive, ...]) -> None:
    first = next(line for line in failed.splitlines() if not line.startswith(" "))
    archive = next((a for a in pool if a.file == first), None)
    package = next((p for p in packages if first.startswith((f"{p.name}=", f"{p.name}:"))), None)
    owner = archive.component if archive else "/".join(package.stages) if package else "os"
    places = [line.strip().partition(": E:")[0] for line in failed.splitlines() if "/pool/" in line]
    rows = [f"  {line}" for line in mask(failed).splitlines()]
    raise SourceError(
        "\n".join([f"{owner}: the distribution's archive does not have {mask(first)}", *rows]),
        remedy="Distributions keep only the latest versions: lock today's with ./invoke lock … --upgrade apt, "
        "and pull soon after.",
        component=owner,
        file=first,
        expected=archive.sha256 if archive else package.sha256 if package else None,
        urls=[mask(place) for place in places],
    )


def _build(start: Start, site: Site, engine: Engine, *, files: Mapping[str, str], target: Path) -> None:
    """Ask questions (``<start>/<question>/<file>``); the answers are written to ``target/<start>/<question>``."""
    base = start.base
    folder = state_dir() / "contexts" / "apt"
    used = {_FOLDERS[BASE], *(file.partition("/")[0] for file in files)}
    asked = {name: begin for begin, name in _FOLDERS.items() if name in used}
    context: dict[str, str | Path] = {"Dockerfile": render_question(base, asked)}
    context |= {f"ask/{name}": text for name, text in files.items()}
    context["ask/ask.sh"] = (templates_dir() / "apt" / "ask.sh").read_text()
    if start.rootfs is not None:
        context["base/rootfs.tar"] = start.rootfs
    context |= context_files(gathered(site, base.os, None), base.os, "apt/repository")
    with locked(folder), tempfile.TemporaryDirectory(prefix="trainwright-") as scratch:
        directories = ["apt", *(f"ask/{name}" for name in asked)]
        fill(folder, context, kind="context", named=str(folder), directories=directories, last="Dockerfile")
        secrets = site.secrets(Path(scratch, "secrets"), base.os)
        arguments = {**start.arguments, "ASKED": uuid.uuid4().hex}
        argv = [*command(engine, site, secrets, arguments), "--progress", "plain"]
        argv += ["--output", f"type=local,dest={target}", str(folder)]
        done = run(argv, env={**engine.cli_env, **site.build_args()}, timeout=SECONDS)
    if not done.ok:
        raise _failure(done.stderr or done.stdout)


def _failure(said: str) -> SourceError:
    lines = [mask(line).strip() for line in said.splitlines() if line.strip()]
    why = [line for line in lines if " E: " in f" {line}"] or [line for line in lines if "error" in line.lower()]
    return SourceError(
        "\n".join(["os: apt in the base image gave no answer", *(f"  {line[:300]}" for line in (why or lines)[-6:])]),
        remedy="Check that the distribution's archive answers, or set a mirror: apt_mirror in trainwright.toml.",
        component="os",
        file=None,
        urls=[],
        last_lines=lines[-20:],
    )
