"""Selects the files of a user's folder for an image, and refuses links out of it and credentials."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from trainwright.core.errors import RequestError
from trainwright.core.owned import MANIFEST
from trainwright.core.paths import home_dir, setting
from trainwright.core.records import Record
from trainwright.core.text import hidden, printable
from trainwright.user.code import check_entry_point, code_folder
from trainwright.user.dockerignore import NAME as IGNORE_FILE
from trainwright.user.dockerignore import IgnoreRules, read_ignore
from trainwright.user.script import read_script
from trainwright.user.secret_files import is_secret
from trainwright.user.system_packages import read_packages

if TYPE_CHECKING:
    from trainwright.user.required import Required

# Caches, version control, environments: never needed by a job.
_SKIPPED = {
    *("__pycache__", ".git", ".hg", ".svn", ".venv", ".tox", ".nox", ".trainwright"),
    *(".pytest_cache", ".mypy_cache", ".ruff_cache", ".ipynb_checkpoints"),
}
# Joiners that Persian, Hindi and emoji need; terminals do not interpret them.
_JOINERS = "\u200c\u200d"
_LISTED = 10  # files that a message names


class UserFiles(Record):
    """The user's files in the image; their digests are part of the plan's identity.

    Attributes:
        apt: packages of the distribution, ``NAME`` or ``NAME=VERSION``.
        run: the script of the last step.
        code: the folder; if ``--code`` names a link, its target.
        code_files: how many files of the folder are baked in.
        code_bytes: their size.
        secrets: those that look like credentials, relative to the folder; allowed by ``--allow-secrets``.
        allow_secrets: whether files that look like credentials may enter the image.
        allow_change: Python packages of an extended image that ``requirements`` may change.
    """

    requirements: Path | None = None
    requirements_sha256: str | None = None
    apt: tuple[str, ...] = ()
    run: Path | None = None
    run_sha256: str | None = None
    code: Path | None = None
    code_sha256: str | None = None
    entry_point: str | None = None
    code_files: int = 0
    code_bytes: int = 0
    secrets: tuple[str, ...] = ()
    allow_secrets: bool = False
    allow_change: tuple[str, ...] = ()


# Derived from the digests, or specific to this machine: not part of a plan's identity.
NOT_IDENTITY = ("requirements", "run", "code", "code_files", "code_bytes", "secrets", "allow_secrets")


class FoundFile(Struct, frozen=True):
    """A file for a context: its name relative to the folder, the path of its content, its size in bytes."""

    name: str
    path: Path
    size: int
    executable: bool

    def sha256(self) -> str:
        """The digest of its content.

        Raises:
            RequestError: it cannot be read.
        """
        return _sha256(self.path)


def make_user_files(
    requirements: str | None,
    code: str | None,
    entry_point: str | None,
    *,
    apt: tuple[str, ...] = (),
    run: str | None = None,
    allow_secrets: bool = False,
    allow_change: tuple[str, ...] = (),
    git: bool = False,
) -> UserFiles:
    """Read and check the user's files of a request.

    Args:
        requirements: a requirements file, or another that :func:`trainwright.user.required.read_required` reads.
        code: a folder.
        entry_point: the script to run, relative to ``code``.
        apt: packages of the distribution, each a word of ``--with-apt``.
        run: a script that the build runs last.
        allow_secrets: also bake files that look like credentials.
        allow_change: Python packages of an extended image that the requirements may change.
        git: whether the image has git to fetch a requirement with.

    Raises:
        RequestError: a file is missing, or must not enter an image.
    """
    if (code is None) != (entry_point is None):
        raise RequestError(
            "--code DIR and --entry-point FILE must be used together",
            remedy="For example: --code src --entry-point train.py",
        )
    if allow_change and requirements is None:
        raise RequestError(
            f"--allow-change {','.join(allow_change)}: nothing changes packages without --with-requirements"
        )
    fields: dict[str, Any] = {"allow_secrets": allow_secrets, "allow_change": allow_change, "apt": read_packages(apt)}
    if run is not None:
        path = Path(run).absolute()
        read_script(path, f"--with-run {run}")
        fields |= {"run": path, "run_sha256": _sha256(path)}
    if requirements is not None:
        from trainwright.user.required import read_required

        path = Path(requirements).absolute()
        required = read_required(path, f"--with-requirements {requirements}", git=git)
        # Of other files, only what is taken from them enters an image.
        digest = _sha256(path) if required.plain else hashlib.sha256("\n".join(required.lines).encode()).hexdigest()
        fields |= {"requirements": path, "requirements_sha256": digest}
    if code is not None:
        assert entry_point is not None, "as was checked above"
        folder = code_folder(code)
        found = code_files(folder, allow_secrets=allow_secrets)
        check_entry_point(entry_point, folder, {file.name for file in found}, code)
        fields |= {
            "code": folder,
            "code_sha256": digest_of(found),
            "entry_point": entry_point,
            "code_files": len(found),
            "code_bytes": sum(file.size for file in found),
            "secrets": tuple(_secrets(found, folder)),
        }
    return UserFiles(**fields)


def user_requirements(user: UserFiles) -> Required | None:
    """What the file of ``--with-requirements`` asks for; None if there is no such file.

    Raises:
        RequestError: the file has changed, and what it asks for is not allowed in an image.
    """
    if user.requirements is None:
        return None
    from trainwright.user.required import read_required

    return read_required(user.requirements, f"--with-requirements {user.requirements}", git=True)


def user_script(user: UserFiles) -> str | None:
    """The text of ``--with-run`` as a build runs it; None if there is no such script.

    Raises:
        RequestError: the file has changed since it was planned.
    """
    if user.run is None:
        return None
    text = read_script(user.run, f"--with-run {user.run}")
    if hashlib.sha256(text.encode()).hexdigest() != user.run_sha256:
        raise RequestError(
            f"--with-run {user.run}: has changed since the plan was made", remedy="Run the command again."
        )
    return text


def code_files(folder: Path, *, allow_secrets: bool = False) -> list[FoundFile]:
    """The files of a code folder for an image, sorted: all but caches, version control, virtual environments,
    Trainwright's own files, and files excluded by the folder's ``.dockerignore``.

    Links within the folder are followed: the image gets the content of their targets.

    Raises:
        RequestError: a link leaves the folder, a file looks like credentials, or a file cannot be baked.
    """
    own = _own_folders()
    if folder.resolve() in own:
        raise RequestError(
            f"--code {folder}: is a folder of Trainwright's own files", remedy="Use the folder of your script."
        )

    def skipped(path: Path) -> bool:
        return path.name in _SKIPPED or path in own or any((path / mark).is_file() for mark in ("pyvenv.cfg", MANIFEST))

    leave_out = f"name it in {folder / IGNORE_FILE}"
    found = _files(folder, f"--code {folder}", leave_out, ignore=read_ignore(folder), skipped=skipped)
    if not allow_secrets:
        refuse_secrets(found, f"--code {folder}", leave_out, root=folder)
    return found


def component_files(folder: Path, *, allow_secrets: bool = False) -> list[FoundFile]:
    """The files of a component's folder that go into a context, sorted: all but its data, template, tests and caches.

    Raises:
        RequestError: a link leaves the folder, a file looks like credentials, or a file cannot enter a context.
    """
    what, leave_out = f"component {folder.name} ({folder})", "move it out of the component's folder"
    found = _files(folder, what, leave_out, ignore=IgnoreRules([]), skipped=lambda path: path.name == "__pycache__")
    own = {"component.yaml", "Dockerfile.j2"}

    def enters(name: PurePosixPath) -> bool:
        return not (name.name in own or name.name.startswith("test_") or name.suffix == ".pyc")

    found = [file for file in found if enters(PurePosixPath(file.name))]
    if not allow_secrets:
        refuse_secrets(found, what, leave_out, root=folder)
    return found


def catalog_files(folder: Path) -> list[FoundFile]:
    """The files of a user's own catalog, sorted: what is in its ``images/`` and ``templates/``.

    Raises:
        RequestError: a link leaves the folder, a file looks like credentials, or a file cannot be read.
    """
    what, leave_out = f"--catalog {folder}", "move it out of the catalog's folder"
    found = _files(folder, what, leave_out, ignore=IgnoreRules([]), skipped=lambda path: path.name in _SKIPPED)
    found = [file for file in found if file.name.partition("/")[0] in ("images", "templates")]
    refuse_secrets(found, what, leave_out, root=folder)
    return found


def named_file(name: str, path: Path) -> FoundFile:
    """One file, under a name.

    Raises:
        RequestError: it cannot be read.
    """
    try:
        found = path.stat()
    except OSError as refused:
        raise RequestError(f"{path}: cannot be read: {refused.strerror}", remedy="Make it readable.") from None
    return FoundFile(name, path, found.st_size, bool(found.st_mode & 0o100))


def refuse_secrets(found: Sequence[FoundFile], what: str, leave_out: str, *, root: Path) -> None:
    """Refuse files that look like credentials, by their names or those of link targets.

    Args:
        found: the files.
        what: how messages name the folder.
        leave_out: how to exclude a file, for messages.
        root: the folder.

    Raises:
        RequestError: naming them.
    """
    if secret := _secrets(found, root):
        raise RequestError(
            f"{what}: these look like credentials, and everyone who may pull the image could read them: "
            f"{_listed(secret)}",
            remedy=f"Leave each out ({leave_out}); a job gets its secrets at run time, from its role or from AWS "
            "Secrets Manager. If they must be in the image, add --allow-secrets",
            secrets=secret,
        )


def _secrets(found: Sequence[FoundFile], root: Path) -> list[str]:
    real = root.resolve()

    def names(file: FoundFile) -> Iterator[str]:
        yield file.name
        if file.path.is_relative_to(real):  # a different name if it is a link
            yield file.path.relative_to(real).as_posix()

    return [file.name for file in found if any(is_secret(name, file.path) for name in names(file))]


def digest_of(files: Sequence[FoundFile]) -> str:
    """One digest over names, contents and executable bits of files.

    Raises:
        RequestError: one cannot be read.
    """
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}\0{file.executable}\0{_sha256(file.path)}\n".encode())
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as refused:
        raise RequestError(f"{path}: cannot be read: {refused.strerror}", remedy="Make it readable.") from None


# ---- which files ---------------------------------------------------------------------------------------------------


class _Refused(Exception):
    """A file that cannot enter a context; the text says which and why."""


def _files(
    root: Path, what: str, leave_out: str, *, ignore: IgnoreRules, skipped: Callable[[Path], bool]
) -> list[FoundFile]:
    """The files of a folder and of those below it, sorted.

    Args:
        root: the folder.
        what: how messages name it.
        leave_out: how to exclude a file, for messages.
        ignore: patterns of excluded files.
        skipped: whether a folder is excluded.

    Raises:
        RequestError: a file cannot be read, copied or named.
    """
    try:
        found = list(_walk(root.resolve(), ignore=ignore, skipped=skipped))
    except _Refused as refused:
        raise RequestError(f"{what}: {refused}", remedy=f"Correct that, or {leave_out}.") from None
    except OSError as refused:
        raise RequestError(
            f"{what}: {refused.filename}: cannot be read: {refused.strerror}",
            remedy=f"Make it readable, or {leave_out}.",
        ) from None
    return sorted(found, key=lambda file: PurePosixPath(file.name))


def _walk(root: Path, *, ignore: IgnoreRules, skipped: Callable[[Path], bool]) -> Iterator[FoundFile]:
    # Folders still to read: what their files' names begin with, where they are, and the folders above.
    pending: list[tuple[str, Path, tuple[Path, ...]]] = [("", root, (root,))]
    while pending:
        prefix, place, above = pending.pop()
        for entry in os.scandir(place):
            name, path = prefix + entry.name, place / entry.name
            left_out = ignore.matches(name)
            if left_out and not (ignore.exceptions and entry.is_dir(follow_symlinks=False)):
                continue
            if entry.is_symlink():
                if entry.name.startswith(".#"):  # Emacs marks a file that is being edited so
                    continue
                path = _target(name, path, root, ignore=ignore)
            found = path.stat()
            if stat.S_ISDIR(found.st_mode):
                if skipped(path):
                    continue
                if path in above:
                    raise _Refused(f"{name} is a link to {path}, which would put that folder in itself")
                pending.append((f"{name}/", path, (*above, path)))
                continue
            _check_name(name)
            if not stat.S_ISREG(found.st_mode):
                raise _Refused(f"{name} is {_kind(found.st_mode)}, not a file")
            yield FoundFile(name, path, found.st_size, bool(found.st_mode & 0o100))


def _target(name: str, path: Path, root: Path, *, ignore: IgnoreRules) -> Path:
    """The target of a link; it must be in the folder and not be excluded itself."""
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):  # missing, not readable, or a link loop
        raise _Refused(f"{name} is a link to {path.readlink()}, which cannot be opened") from None
    if not target.is_relative_to(root):
        raise _Refused(f"{name} is a link to {target}, outside of the folder")
    if ignore.matches(target.relative_to(root).as_posix()):
        raise _Refused(f"{name} is a link to {target}, which {IGNORE_FILE} leaves out")
    return target


def _check_name(name: str) -> None:
    if odd := hidden(name, allowed=_JOINERS):
        reason = "is not UTF-8" if any("\ud800" <= char <= "\udfff" for char in odd) else "contains a control character"
        raise _Refused(f"the name {printable(name, allowed='')} {reason}")


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
    return next((word for is_one, word in kinds if is_one(mode)), "a device")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _own_folders() -> set[Path]:
    """The folders of Trainwright's records, contexts and downloads, which are never part of the user's code."""
    home = home_dir()
    named = (setting("TRAINWRIGHT_STATE"), setting("TRAINWRIGHT_CACHE"))
    cache = home / ".cache" / "trainwright" if home is not None else None
    return {Path(each).resolve() for each in (".trainwright", *named, cache) if each}
