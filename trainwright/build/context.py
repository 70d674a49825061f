"""The build context of a plan: everything that a plain ``docker build`` of its Dockerfile needs, in one folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from trainwright.build.render import render_dockerfile
from trainwright.catalog.catalog import Catalog
from trainwright.catalog.tools import tools_lock
from trainwright.core.errors import RequestError
from trainwright.core.layout import size
from trainwright.core.owned import claim, fill
from trainwright.core.paths import tool_files
from trainwright.plan.plan import Plan, PlannedSource
from trainwright.plan.plan_lock import files_of
from trainwright.site.apt_sources import DEBIAN_SUITES
from trainwright.site.site import Site
from trainwright.sources import locations
from trainwright.sources.apt_repository import context_files, preferences
from trainwright.sources.debian_base import Base as BaseFileSystem
from trainwright.sources.debian_base import make_base
from trainwright.sources.inputs import Inputs, inputs_of
from trainwright.sources.rootfs import locked_rootfs
from trainwright.user.files import code_files, component_files, user_requirements


def write_context(
    what: Plan | Inputs,
    catalog: Catalog,
    site: Site,
    folder: Path,
    *,
    say: Callable[[str], None],
    fresh_base: bool = False,
    named: str = "",
) -> BaseFileSystem | None:
    """Fill ``folder`` with the Dockerfile and everything it takes in.

    Args:
        what: the plan, or with its lock the inputs of a build.
        catalog: where the components' files lie.
        site: where wheels and archives of a local folder and the base file system come from; nothing of it is written.
        folder: missing, empty, or filled by this function before; see :func:`trainwright.core.owned.fill`.
        say: told of long steps before they begin.
        fresh_base: make the base root file system anew, from today's packages.
        named: what the user called the folder, for errors.

    Returns:
        The base root file system, where it was made on the spot.

    Raises:
        SourceError: the base could not be made or is not the one of the lock, or a local file has the wrong checksum.
        RequestError: ``fresh_base`` where a lock pins the base, or the folder holds something else.
        BuildFailed: the disk is full.
    """
    claim(folder, "context", named or str(folder))  # before anything is fetched or made
    inputs = inputs_of(what)
    plan, lock = inputs.plan, inputs.lock
    files = _users_own(plan, catalog, say)
    files |= {"Dockerfile": render_dockerfile(plan, catalog)}
    files |= {f"tools/{path.parent.name}/{path.name}": path.read_text() for path in tool_files()}
    base = None
    pinned = lock.base.sha256 if lock is not None and lock.base is not None else None
    if pinned is not None and lock is not None and plan.base.image is None:
        if fresh_base:
            remedy = f"./invoke lock {lock.request} --upgrade base"
            raise RequestError("--fresh-base: the lock of this plan pins the base", remedy=remedy)
        files["base/rootfs.tar"] = locked_rootfs(plan.base.os, pinned, site, say=say)
    elif plan.base.image is None:
        base = make_base(DEBIAN_SUITES[plan.base.os], site, say=say, refresh=fresh_base)
        files["base/rootfs.tar"] = base.path
    for component in plan.components:
        here, passed_over = locations.in_folder(files_of(component), site)
        here |= {file: path for (owner, file), path in inputs.files.items() if owner == component.name}
        files |= {f"archives/{component.name}/{file}": path for file, path in here.items()}
        for note in passed_over:
            say(note)
    packages = {c.name: [s for s in c.sources if s.package and "==" in s.package] for c in plan.components}
    tools = tools_lock(plan.python).packages if lock is None or lock.tools is None else lock.tools
    packages["tools"] = [PlannedSource(package=f"{p.name}=={p.version}", file=p.file, sha256=p.sha256) for p in tools]
    for name, sources in packages.items():
        files |= _requirements(name, sources, plan, site)
    files["requirements/constraints.txt"] = "".join(
        sorted(f"{_exactly(s)}\n" for name, sources in packages.items() if name != "tools" for s in sources)
    )
    if plan.user.requirements is not None and not packages["user"]:
        # Written anew from what was checked: comments stay out, and so does whatever they hold.
        files["requirements/user.txt"] = "".join(f"{line}\n" for line in user_requirements(plan.user))
    files |= _apt_files(inputs, site)
    directories = [f"archives/{component.name}" for component in plan.components if files_of(component)]
    fill(
        folder,
        files,
        kind="context",
        named=named or str(folder),
        directories=["apt", *directories, *(f"wheels/{name}" for name in packages)],
        last="Dockerfile",
    )
    return base


def _apt_files(inputs: Inputs, site: Site) -> dict[str, str | Path]:
    """What apt reads in build steps: the versions of the lock, and the packages of the site's folder."""
    files: dict[str, str | Path] = {}
    packages = inputs.lock.system if inputs.lock is not None else None
    if packages is not None and inputs.plan.base.family == "apt":
        base = inputs.lock.base if inputs.lock is not None else None
        held = base.packages if base is not None else ()
        files["apt/preferences"] = preferences((*packages, *held), strict=inputs.strict)
        # An installer brings packages of its own, so what it has apt fetch beside them is pinned and not confined.
        files["apt/pins"] = preferences((*packages, *held), strict=False)
    if site.apt_folder is not None:
        files |= context_files(site.apt_folder, inputs.plan.base.os, packages, "apt/repository")
    return files


def _users_own(plan: Plan, catalog: Catalog, say: Callable[[str], None]) -> dict[str, str | Path]:
    """The files of folders: of ``--code``, and of the components, which may be a user's as well."""
    user, files = plan.user, dict[str, str | Path]()
    for component in plan.components:
        found = component_files(catalog.components[component.name].path, allow_secrets=user.allow_secrets)
        files |= {f"components/{component.name}/{file.name}": file.path for file in found}
    if user.code is not None:
        found = code_files(user.code, allow_secrets=user.allow_secrets)
        files |= {f"user/code/{file.name}": file.path for file in found}
        noun = "file" if len(found) == 1 else "files"
        told = f"{user.code}: {len(found)} {noun}, {size(sum(file.size for file in found))} go into /opt/ml/code"
        say(f"{told}, as --allow-secrets says with {', '.join(user.secrets)}" if user.secrets else told)
    return files


def _requirements(name: str, sources: list[PlannedSource], plan: Plan, site: Site) -> dict[str, str | Path]:
    """Hash-pinned requirement files of one component, and those of its wheels that lie in a folder of the site."""
    local = site.wheelhouse({s.file: s.sha256 for s in sources if s.file and s.sha256})
    component = plan.component(name)
    index = component.index if component is not None else None
    head = ""
    if index and not all(s.file in local for s in sources if "+" in (s.package or "")):
        # A local version (2.13.0+cpu) is only on the framework's own index.
        head = f"--extra-index-url {index}\n"

    def text(chosen: Iterable[PlannedSource]) -> str:
        return head + "".join(f"{_exactly(s)} --hash=sha256:{s.sha256}\n" for s in chosen)

    wheels = [s for s in sources if (s.file or "").endswith(".whl")]
    sdists = [s for s in sources if s not in wheels]
    files: dict[str, str | Path] = {f"requirements/{name}.txt": text(wheels)}
    if sdists:
        files[f"requirements/{name}.source.txt"] = text(sdists)
    return files | {f"wheels/{name}/{file}": path for file, path in local.items()}


def _exactly(source: PlannedSource) -> str:
    """A requirement for this very version: uv takes ``torch==2.13.0`` for 2.13.0+cpu where both are on offer."""
    return (source.package or "").replace("==", "===", 1)
