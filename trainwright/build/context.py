"""The build context of a plan: everything that a plain ``docker build`` of its Dockerfile needs, in one folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from trainwright.core.errors import SourceError
from trainwright.core.layout import size
from trainwright.core.owned import claim, fill
from trainwright.core.say import Say
from trainwright.plan.identity import tool_files
from trainwright.plan.plan import PlannedSource
from trainwright.plan.rendered import render_dockerfile
from trainwright.prove.in_build import proof_files
from trainwright.sources.apt_repository import context_files, preferences
from trainwright.sources.inputs import Input, Inputs

COMPILED = "compiled"  # the folder of wheels that were compiled before
Amend = Callable[[Mapping[str, str | Path]], dict[str, str | Path]]


def write_context(
    inputs: Inputs, folder: Path, *, say: Say, named: str = "", refresh: str | None = None, amend: Amend = dict
) -> None:
    """Fill ``folder`` with the Dockerfile and everything it takes in.

    Args:
        inputs: of the build, fetched; nothing of their site is written.
        folder: missing, empty, or filled by this function before; see :func:`trainwright.core.owned.fill`.
        say: progress callback: skipped files, and the size of the user's code.
        named: what the user called the folder, for errors.
        refresh: a day. Steps that install packages of the distribution read it, so that the builder takes none of them
            from a cache that another day, or none, has left.
        amend: changes the files, content by name, before they are written.

    Raises:
        SourceError: a local file has the wrong checksum, or the site's folder lacks a package.
        RequestError: the folder holds something else.
        BuildFailed: the disk is full.
    """
    named = named or str(folder)
    claim(folder, "context", named)
    plan = inputs.plan
    files = _folders(inputs, say)
    files |= {"Dockerfile": render_dockerfile(plan, inputs.catalog), **tool_files()}
    known = inputs.catalog.components
    files |= proof_files(plan, {c.name: known[c.name].path for c in plan.components if c.name in known})
    if inputs.rootfs is not None:
        assert inputs.rootfs.path is not None, "the base is fetched before a context is written"
        files["base/rootfs.tar"] = inputs.rootfs.path
    for archive in inputs.archives:
        if archive.path is not None:
            files[f"archives/{archive.owner}/{archive.file}"] = archive.path
        for note in archive.notes:
            say(note)
    owners = [*(c.name for c in plan.components), "tools"]
    packages = {name: [p for p in inputs.python if p.owner == name] for name in owners}
    for name, python in packages.items():
        component = plan.component(name)
        files |= _requirements(name, python, component.index if component is not None else None)
    files["requirements/constraints.txt"] = "".join(
        sorted(f"{_exactly(p.source)}\n" for p in inputs.python if p.owner != "tools")
    )
    if inputs.requirements and not packages["user"]:
        # Written anew from what was checked: comments stay out, and so does whatever they hold.
        files["requirements/user.txt"] = "".join(f"{line}\n" for line in inputs.requirements)
    if inputs.script is not None:
        files["user/run/script"] = inputs.script  # made executable, as it begins with #!
    files |= _apt_files(inputs)
    if refresh is not None:
        files["apt/refresh"] = f"{refresh}\n"
    archives = dict.fromkeys(f"archives/{archive.owner}" for archive in inputs.archives)
    fill(
        folder,
        amend(files),
        kind="context",
        named=named,
        directories=["apt", *archives, *(f"wheels/{name}" for name in packages)],
        last="Dockerfile",
    )


def _apt_files(inputs: Inputs) -> dict[str, str | Path]:
    """What apt reads in build steps: the versions of the lock, and the packages of the site's folder."""
    files: dict[str, str | Path] = {}
    lock, base = inputs.lock, inputs.plan.base
    if lock is not None and lock.system is not None and base.family == "apt":
        held = (*lock.system, *(lock.base.packages if lock.base is not None else ()))
        files["apt/preferences"] = preferences(held, strict=inputs.strict)
        # An installer brings packages of its own, so what it has apt fetch beside them is pinned and not confined.
        files["apt/pins"] = preferences(held, strict=False)
    return files | context_files(inputs.packages, base.os, "apt/repository")


def _folders(inputs: Inputs, say: Say) -> dict[str, str | Path]:
    """The files of folders: of ``--code``, and of the components, which may be a user's as well."""
    files: dict[str, str | Path] = {}
    code = []
    for each in inputs.files:
        assert each.path is not None, "what lies in a folder was found there"
        if each.kind == "user file":
            code.append(each)
            files[f"user/code/{each.file}"] = each.path
        else:
            files[f"components/{each.owner}/{each.file}"] = each.path
    user = inputs.plan.user
    if user.code is not None:
        noun = "file" if len(code) == 1 else "files"
        told = f"{user.code}: {len(code)} {noun}, {size(sum(f.source.size or 0 for f in code))} go into /opt/ml/code"
        say(f"{told}, as --allow-secrets says with {', '.join(user.secrets)}" if user.secrets else told)
    return files


def _requirements(name: str, packages: Sequence[Input], index: str | None) -> dict[str, str | Path]:
    """Hash-pinned requirement files of one component, and those of its wheels that are in a folder of the site."""
    local = {package.file: package.path for package in packages if package.path is not None}
    for package in packages:
        if package.path is None and package.wrong:
            path, found = list(package.wrong.items())[-1]
            raise SourceError(
                f"{path} has the sha256 {found}, expected {package.sha256}",
                remedy=f"remove or replace {path}; or lock again if the new content is intended",
                **{"file": package.file, "expected": package.sha256, "found": found, "urls": [path]},
            )
    sources = [package.source for package in packages]
    head = ""
    if index and not all(s.file in local for s in sources if "+" in str(s.package)):
        # A local version (2.13.0+cpu) is only on the framework's own index.
        head = f"--extra-index-url {index}\n"

    def text(chosen: Iterable[PlannedSource]) -> str:
        return head + "".join(f"{_exactly(s)} --hash=sha256:{s.sha256}\n" for s in chosen)

    wheels = [s for s in sources if str(s.file).endswith(".whl")]
    sdists = [s for s in sources if s not in wheels]
    files: dict[str, str | Path] = {f"requirements/{name}.txt": text(wheels)}
    if sdists:
        files[f"requirements/{name}.source.txt"] = text(sdists)
    return files | {f"wheels/{name}/{file}": path for file, path in local.items()}


def _exactly(source: PlannedSource) -> str:
    """A requirement for this very version: uv takes ``torch==2.13.0`` for 2.13.0+cpu where both are on offer."""
    return str(source.package).replace("==", "===", 1)
