"""Refresh or check the locks of the image lines, and of the tools that build them."""

from __future__ import annotations

from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.image_line import ImageLine, Line, begins, cuda_tag, version_key
from trainwright.catalog.platforms import AMD64, PLATFORMS
from trainwright.catalog.tools import COMPONENT, PLATFORM, Tools, load_tools, lock_path, stale_tools
from trainwright.catalog.wheel_lock import Lock
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.owned import write_atomically
from trainwright.core.say import Say
from trainwright.lock.wheels import lock_line, resolve_lock
from trainwright.plan.request import parse_cuda
from trainwright.site.uv_settings import insecure_words

# Not every tool has a wheel for older systems there; images for it start from Debian 13.
_ARM_TOOLS = "aarch64-manylinux_2_28"


def roots(line: ImageLine) -> dict[str, tuple[str, ...]]:
    """The Python requirements of every component and option of a line, by component."""
    chosen = {**line.components, **line.options}
    return {name: selection.packages for name, selection in chosen.items() if selection.packages}


def stale(entry: Line, platform: str = AMD64) -> list[str]:
    """The requirements of a line that are missing from its lock: ``component: requirement``."""
    try:
        locked = Lock.load(entry.lock_for(platform))
    except RequestError as missing:
        return [missing.message]
    held = {(component, f"{p.name}=={p.version}") for p in locked.packages for component in p.components}
    return [
        f"{component}: {requirement}"
        for component, requirements in roots(entry.line).items()
        for requirement in requirements
        if (component, _normal(requirement)) not in held
    ]


def refresh_locks(
    framework: str | None,
    cuda: str | None,
    version: str | None = None,
    *,
    platform: str | None = None,
    check: bool,
    say: Say,
) -> None:
    """Write the locks of the chosen lines again, or only compare them with the lines' requirements; without framework,
    CUDA and version, those of the tools as well.

    Args:
        framework: only lines of it.
        cuda: only lines of this CUDA version.
        version: only lines whose framework version is or starts with it.
        platform: make or check their locks for it alone (default: those that there are, and linux/amd64).
        check: write nothing.
        say: progress callback.

    Raises:
        RequestError: no such line, or ``check`` found a stale lock.
        SourceError: the index does not answer.
        Conflict: the requirements of a line conflict.
    """
    lines = load_catalog().lines
    wanted = None if cuda is None else parse_cuda(cuda)
    chosen = [e for e in lines if framework in (None, e.line.framework)]
    chosen = [e for e in chosen if wanted is None or e.line.goes_by_cuda(cuda_tag(wanted))]
    chosen = [e for e in chosen if version is None or begins(e.line.version, version)]
    if not chosen:
        names = {f"{e.line.framework} {e.line.cuda_tag} {e.line.version}" for e in lines}
        asked = " ".join(filter(None, (framework, cuda, version)))
        raise RequestError(f"no image line for {asked}. {did_you_mean(asked, names)}")
    faults = [] if framework or cuda or version else _refresh_tools(check=check, say=say)
    for entry, own in [(each, own) for each in chosen for own in _platforms(each, platform)]:
        name = f"{entry.line.framework} {entry.name}{'' if own == AMD64 else f' for {own}'}"
        if check:
            found = stale(entry, own)
            faults += [f"{entry.lock_for(own)} lacks {fault}" for fault in found]
            say(f"{name}: {'stale' if found else 'up to date'}")
            continue
        say(f"{name}: resolving")
        made = lock_line(entry.line.as_json(), own)
        if made.insecure_hosts:
            say(insecure_words(made.insecure_hosts))
        write_atomically(entry.lock_for(own), made.dump())
    if faults:
        raise RequestError("; ".join(faults), remedy="./invoke lock-lines writes the locks again.")


def _platforms(entry: Line, platform: str | None) -> list[str]:
    """The platform that was asked for, or all that a line has a lock for; base images are for linux/amd64."""
    if platform is not None:
        return [platform] if platform == AMD64 or entry.line.base.kind == "debian" else []
    return [own for own in PLATFORMS if own == AMD64 or entry.lock_for(own).is_file()]


def _refresh_tools(*, check: bool, say: Say) -> list[str]:
    """The same for the tools of every Python; returns what ``check`` found."""
    tools, faults = load_tools(), []
    there = ((p, own) for p in tools.packages for own in PLATFORMS if own == AMD64 or lock_path(p, own).is_file())
    for python, own in there:
        name = f"Python {python}{'' if own == AMD64 else f' for {own}'}"
        if check:
            found = stale_tools(tools, python, own)
            faults += [f"the tools' lock for {name} lacks {fault}" for fault in found]
            say(f"tools, {name}: {'stale' if found else 'up to date'}")
            continue
        say(f"tools, {name}: resolving")
        made = lock_tools(tools, python, own)
        if made.insecure_hosts:
            say(insecure_words(made.insecure_hosts))
        write_atomically(lock_path(python, own), made.dump())
    return faults


def _normal(requirement: str) -> str:
    name, _, version = requirement.partition("==")
    return f"{name.lower().replace('_', '-').replace('.', '-')}=={version}"


def lock_tools(tools: Tools, python: str, image_platform: str = AMD64) -> Lock:
    """Resolve the tools for one Python, and a platform of images.

    uv is resolved separately: pip and the others have to run on that Python, uv only supports it.

    Raises:
        RequestError, SourceError, Conflict: as :func:`trainwright.lock.wheels.resolve_lock`.
    """
    platform = PLATFORM if image_platform == AMD64 else _ARM_TOOLS
    uv, *others = tools.roots(python)
    oldest = max(python, tools.uv.python, key=version_key)
    parts = [
        resolve_lock({COMPONENT: [uv]}, python=oldest, platform=platform),
        resolve_lock({COMPONENT: others}, python=python, platform=platform),
    ]
    return Lock(
        python=python,
        platform=platform,
        insecure_hosts=parts[0].insecure_hosts,
        packages=tuple(p for part in parts for p in part.packages),
    )
