"""What a user asks for, typed and checked before anything is looked up."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from trainwright.errors import RequestError
from trainwright.fields import VERSION
from trainwright.lines import cuda_tag
from trainwright.records import Record
from trainwright.texts import fits

# cu124, cuda-12.4 and 12.4.1; 124 is clear enough, 12 is not.
_CUDA = re.compile(r"(?:cu(?:da)?[ -]?)?(\d{1,2})\.(\d)(?:\.\d{1,4})?|cu(?:da)?(\d{1,2})(\d)|(\d\d)(\d)", re.ASCII)


class UserFiles(Record):
    """What the ``user`` component brings into the image; the digests make it part of the plan's identity."""

    requirements: Path | None = None
    requirements_sha256: str | None = None
    code: Path | None = None
    code_sha256: str | None = None
    entry_point: str | None = None


class Request(Record):
    """A request for an image. ``cuda`` is ``cpu`` or a version such as ``12.4``; ``None`` means: not asked for.

    ``set_`` are components in another version than their image line has, sorted by name. ``allow_unproven`` lets a
    version be tried that no image line has.
    """

    framework: str
    cuda: str | None = None
    version: str | None = None
    python: str | None = None
    base: str | None = None
    with_: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    set_: tuple[tuple[str, str], ...] = ()
    allow_unproven: bool = False
    user: UserFiles = UserFiles()

    def flags(self) -> str:
        """The request as the command line spells it, without the verb."""
        words = [f"--framework {self.framework}"]
        if self.cuda is not None:
            words.append(f"--cuda {cuda_tag(self.cuda)}")
        for flag, value in (("--version", self.version), ("--python", self.python), ("--base", self.base)):
            if value is not None:
                words.append(f"{flag} {value}")
        if self.with_:
            words.append(f"--with {','.join(self.with_)}")
        if self.without:
            words.append(f"--without {','.join(self.without)}")
        words += [f"--set {name}={version}" for name, version in self.set_]
        user = self.user
        for flag, path in (("--with-requirements", user.requirements), ("--code", user.code)):
            if path is not None:
                words.append(f"{flag} {shlex.quote(str(path))}")
        if user.entry_point is not None:
            words.append(f"--entry-point {user.entry_point}")
        if self.allow_unproven:
            words.append("--allow-unproven")
        return " ".join(words)


def make_request(
    *,
    framework: str | None,
    cuda: str | None = None,
    version: str | None = None,
    python: str | None = None,
    base: str | None = None,
    with_: str | None = None,
    without: str | None = None,
    set_: Iterable[str] = (),
    allow_unproven: bool = False,
    requirements: str | None = None,
    code: str | None = None,
    entry_point: str | None = None,
) -> Request:
    """A request from the words of the command line.

    Args:
        framework: name, such as ``pytorch``.
        cuda: ``cpu``, ``cu124``, ``12.4`` or ``124``.
        version: framework version, whole (``2.6.0``) or its beginning (``2.6``).
        python: Python version, such as ``3.11``.
        base: kind of base image.
        with_: comma-separated components to add.
        without: comma-separated components to leave out.
        set_: components to pin, each as ``name=version``.
        allow_unproven: try a version that no image line has.
        requirements: a requirements file of the user's.
        code: a folder with the user's code, baked into ``/opt/ml/code``.
        entry_point: the script to run, inside ``code``.

    Raises:
        RequestError: a word cannot be read, or a file does not exist.
    """
    if not framework:
        raise RequestError(
            "--framework is missing", remedy="./invoke build --framework pytorch --cuda cpu   (./invoke list shows all)"
        )
    for flag, value in (("--version", version), ("--python", python)):
        if value is not None and not fits(VERSION, value):
            raise RequestError(f"{flag} {value}: not a version number", remedy=f"For example: {flag} 3.11")
    return Request(
        framework=framework.strip().lower(),
        cuda=None if cuda is None else parse_cuda(cuda),
        version=version,
        python=python,
        base=base,
        with_=_names("--with", with_),
        without=_names("--without", without),
        set_=_pins(set_),
        allow_unproven=allow_unproven,
        user=_user_files(requirements, code, entry_point),
    )


def parse_cuda(text: str) -> str:
    """``cu124``, ``12.4``, ``124`` and ``12.4.1`` as ``12.4``; ``cpu`` stays.

    Raises:
        RequestError: the text is neither.
    """
    word = text.strip().lower()
    if word == "cpu":
        return "cpu"
    match = _CUDA.fullmatch(word)
    if match is None:
        raise RequestError(
            f"--cuda {text}: not a CUDA version",
            remedy="Write --cuda cu124, --cuda 12.4 or --cuda cpu; ./invoke list shows what there is.",
        )
    major, minor = [group for group in match.groups() if group is not None]
    return f"{major}.{minor}"


def _names(flag: str, text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    names = [part.strip() for part in text.split(",")]
    if not all(names):
        raise RequestError(f"{flag} {text!r}: an empty name", remedy=f"For example: {flag} cuda-compiler,rmm")
    return tuple(dict.fromkeys(names))


def _pins(words: Iterable[str]) -> tuple[tuple[str, str], ...]:
    pins: dict[str, str] = {}
    for word in words:
        name, _, version = (part.strip() for part in word.partition("="))
        if not name or not fits(VERSION, version):
            raise RequestError(f"--set {word}: not NAME=VERSION", remedy="For example: --set nccl=2.21.5")
        if pins.setdefault(name, version) != version:
            raise RequestError(f"--set {name}={pins[name]} and --set {name}={version}: which one?")
    return tuple(sorted(pins.items()))


def _user_files(requirements: str | None, code: str | None, entry_point: str | None) -> UserFiles:
    if (code is None) != (entry_point is None):
        raise RequestError(
            "--code DIR and --entry-point FILE go together: code in the image is of use only with the script to run",
            remedy="For example: --code src --entry-point train.py",
        )
    requirements_path = None if requirements is None else Path(requirements).absolute()
    if requirements_path is not None and not requirements_path.is_file():
        raise RequestError(f"--with-requirements {requirements}: no such file")
    if code is None or entry_point is None:
        return UserFiles(
            requirements=requirements_path,
            requirements_sha256=None if requirements_path is None else _sha256(requirements_path),
        )
    folder = Path(code).absolute()
    if not folder.is_dir():
        raise RequestError(f"--code {code}: no such folder")
    # The toolkit accepts only names of this form (sagemaker-training 5.1.4); it would refuse the job later.
    if not re.fullmatch(r"[A-Za-z0-9._+][A-Za-z0-9._+/-]*", entry_point) or ".." in Path(entry_point).parts:
        raise RequestError(
            f"--entry-point {entry_point}: must be a plain path inside --code (letters, digits and . _ + - /)"
        )
    if not (folder / entry_point).is_file():
        scripts = sorted(str(p.relative_to(folder)) for p in folder.glob("**/*.py"))[:5]
        raise RequestError(
            f"--entry-point {entry_point}: not in {code}",
            remedy=f"There: {', '.join(scripts)}" if scripts else f"{code} holds no Python file.",
        )
    return UserFiles(
        requirements=requirements_path,
        requirements_sha256=None if requirements_path is None else _sha256(requirements_path),
        code=folder,
        code_sha256=tree_sha256(folder),
        entry_point=entry_point,
    )


def user_code(folder: Path) -> list[Path]:
    """The files of a code folder that go into an image: all but caches, version control and virtual environments."""
    skipped = {"__pycache__", ".git", ".venv", ".trainwright", ".pytest_cache", ".mypy_cache", ".ipynb_checkpoints"}
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not skipped.intersection(path.relative_to(folder).parts[:-1])
    )


def tree_sha256(folder: Path) -> str:
    """One digest over names, contents and the executable bit of the files of a code folder."""
    digest = hashlib.sha256()
    for path in user_code(folder):
        executable = bool(path.stat().st_mode & 0o100)
        digest.update(f"{path.relative_to(folder)}\0{executable}\0{_sha256(path)}\n".encode())
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
