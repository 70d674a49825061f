"""What a user asks for, typed and checked before anything is looked up."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Any

from trainwright.catalog.image_line import cuda_tag
from trainwright.catalog.platforms import AMD64, PLATFORMS
from trainwright.catalog.wheel_lock import normalise
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.fields import PACKAGE, VERSION
from trainwright.core.records import Record
from trainwright.core.text import fits
from trainwright.plan.destination import CLUSTER, DESTINATIONS, SAGEMAKER
from trainwright.plan.words import RequestWords
from trainwright.user.files import UserFiles, make_user_files

# cu124, cuda-12.4 and 12.4.1; 124 is unambiguous, 12 is not.
# In place of a version: the provider of a component, as in --set pytorch=index.
PROVIDER = r"[a-z][a-z-]{0,63}"
_CUDA = re.compile(r"(?:cu(?:da)?[ -]?)?(\d{1,2})\.(\d)(?:\.\d{1,4})?|cu(?:da)?(\d{1,2})(\d)|(\d\d)(\d)", re.ASCII)

# The parts of a request in one word, in the order in which they are tried; the framework is what comes before them.
_PARTS = {
    "cuda": r"cpu|cu[0-9]{2,3}|cuda[0-9]{2,3}",
    "python": "py[0-9]{2,3}",
    "base": "debian|nvidia|dlc",
    "version": VERSION,
}
_SHORT_FORM = "For example: pytorch, pytorch:cu124, pytorch:2.6.0-cu124, pytorch:2.6.0-cu124-py311"


class Request(Record):
    """A request for an image. ``cuda`` is ``cpu`` or a version such as ``12.4``; ``None`` means not requested.

    ``destination`` is where its jobs run, a key of :data:`trainwright.plan.destination.DESTINATIONS`.
    ``set_`` lists components whose version, or whose provider, differs from the image line's, sorted by name.
    ``gpus`` are compute capabilities, sorted; empty: no machine code is left out.
    ``allow_unproven`` permits a version that no image line has.
    """

    framework: str
    cuda: str | None = None
    version: str | None = None
    python: str | None = None
    base: str | None = None
    destination: str = SAGEMAKER
    platform: str = AMD64
    with_: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    set_: tuple[tuple[str, str], ...] = ()
    gpus: tuple[str, ...] = ()
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
        if self.destination != SAGEMAKER:
            words.append(f"--for {self.destination}")
        if self.platform != AMD64:
            words.append(f"--platform {self.platform}")
        if self.with_:
            words.append(f"--with {','.join(self.with_)}")
        if self.without:
            words.append(f"--without {','.join(self.without)}")
        words += [f"--set {name}={version}" for name, version in self.set_]
        words += [f"--for-gpus {','.join(self.gpus)}"] if self.gpus else []
        user = self.user
        if user.apt:
            words.append(f"--with-apt {','.join(user.apt)}")
        files = (("--with-requirements", user.requirements), ("--with-run", user.run), ("--code", user.code))
        words += [f"{flag} {shlex.quote(str(path))}" for flag, path in files if path is not None]
        if user.entry_point is not None:
            words.append(f"--entry-point {user.entry_point}")
        if user.allow_change:
            words.append(f"--allow-change {','.join(user.allow_change)}")
        if user.allow_secrets:
            words.append("--allow-secrets")
        if self.allow_unproven:
            words.append("--allow-unproven")
        return " ".join(words)


def make_request(**words: Any) -> Request:
    """:func:`read_request` with the words as keyword arguments."""
    return read_request(RequestWords(**words))


def read_request(words: RequestWords) -> Request:
    """A request from the words of the command line.

    Raises:
        RequestError: a word is invalid, or a file does not exist.
    """
    words = _in_full(words)
    if not words.framework:
        raise RequestError(
            "--framework is missing",
            remedy="./invoke build --framework pytorch --cuda cpu   (./invoke list shows all; "
            "./invoke init writes a project file)",
        )
    for flag, value in (("--version", words.version), ("--python", words.python)):
        if value is not None and not fits(VERSION, value):
            raise RequestError(f"{flag} {value}: not a version number", remedy=f"For example: {flag} 3.11")
    return Request(
        framework=words.framework.strip().lower(),
        cuda=None if words.cuda is None else parse_cuda(words.cuda),
        version=words.version,
        python=words.python,
        base=words.base,
        destination=_destination(words.for_),
        platform=AMD64 if words.platform is None else read_platform(words.platform),
        with_=_own_names("--with", words.with_),
        without=_own_names("--without", words.without),
        set_=_pins(words.set_),
        gpus=_gpus(words.for_gpus),
        allow_unproven=words.allow_unproven,
        user=make_user_files(
            words.requirements,
            words.code,
            words.entry_point,
            apt=words.apt,
            run=words.run,
            allow_secrets=words.allow_secrets,
            allow_change=_packages(words.allow_change),
            git=words.base is not None and words.base.strip() == "dlc",
        ),
    )


def _in_full(words: RequestWords) -> RequestWords:
    """The words without their short form: ``pytorch:2.6.0-cu124`` gives framework, version and CUDA.

    Raises:
        RequestError: a part of it is given by a flag as well, or it names no framework.
    """
    if not words.short:
        return words
    given: dict[str, str] = {}
    name, *parts = re.split("[:-]", words.short.strip().lower())
    for part in parts:
        key = next((key for key, pattern in _PARTS.items() if fits(pattern, part)), None)
        if key is None and given:
            raise RequestError(f"{words.short}: what is {part!r}?", remedy=_SHORT_FORM)
        if key is None:
            name += f"-{part}"  # of the framework's own name
            continue
        if key in given:
            raise RequestError(f"{words.short}: {given[key]} and {part}: which one?", remedy=_SHORT_FORM)
        given[key] = f"{part[2]}.{part[3:]}" if key == "python" else part
    given["framework"] = name
    for key in given:
        if getattr(words, key) is not None:
            raise RequestError(f"{words.short} and --{key} {getattr(words, key)}: which one?", remedy="Leave one out.")
    return words.replace(short=None, **given)


def parse_cuda(text: str) -> str:
    """``cu124``, ``12.4``, ``124`` and ``12.4.1`` as ``12.4``; ``cpu`` stays.

    Raises:
        RequestError: the text is invalid.
    """
    word = text.strip().lower()
    if word == "cpu":
        return "cpu"
    match = _CUDA.fullmatch(word)
    if match is None:
        raise RequestError(
            f"--cuda {text}: not a CUDA version",
            remedy="Write both numbers, --cuda cu124 or --cuda 12.4, or --cuda cpu; ./invoke list shows all versions.",
        )
    major, minor = [group for group in match.groups() if group is not None]
    return f"{major}.{minor}"


def _destination(word: str | None) -> str:
    if word is None:
        return SAGEMAKER
    name = word.strip().lower()
    if name not in DESTINATIONS:
        raise RequestError(
            f"--for {word}: no such place. {did_you_mean(name, DESTINATIONS)}",
            remedy="; ".join(f"--for {each}: {what}" for each, what in DESTINATIONS.items()),
        )
    return name


def _gpus(words: str | None) -> tuple[str, ...]:
    if words is None:
        return ()
    from trainwright.sagemaker.gpus import read_gpus

    return read_gpus(words)


def read_platform(word: str) -> str:
    """A platform of images: ``linux/arm64``, or ``arm64``.

    Raises:
        RequestError: there is no such platform.
    """
    name = word.strip().lower()
    name = name if "/" in name else f"linux/{name}"
    if name not in PLATFORMS:
        raise RequestError(
            f"--platform {word}: no such platform. {did_you_mean(name, PLATFORMS)}",
            remedy="Images are made for linux/amd64, and some image lines for linux/arm64.",
        )
    return name


def _own_names(flag: str, text: str | None) -> tuple[str, ...]:
    """Names of components, without the one that follows from where jobs run."""
    names = _names(flag, text)
    if CLUSTER in names:
        raise RequestError(f"{flag} {CLUSTER}: it comes with --for", remedy="For example: --for hyperpod")
    return names


def _names(flag: str, text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    names = [part.strip() for part in text.split(",")]
    if not all(names):
        raise RequestError(f"{flag} {text!r}: an empty name", remedy=f"For example: {flag} cuda-compiler,rmm")
    return tuple(dict.fromkeys(names))


def _packages(text: str | None) -> tuple[str, ...]:
    """The names of ``--allow-change``, normalised and sorted (PEP 503)."""
    names = _names("--allow-change", text)
    if wrong := next((name for name in names if not fits(PACKAGE, name)), None):
        raise RequestError(f"--allow-change {wrong}: not the name of a Python package")
    return tuple(sorted({normalise(name) for name in names}))


def _pins(words: Iterable[str]) -> tuple[tuple[str, str], ...]:
    pins: dict[str, str] = {}
    for word in words:
        name, _, version = (part.strip() for part in word.partition("="))
        if not name or not (fits(VERSION, version) or fits(PROVIDER, version)):
            raise RequestError(f"--set {word}: not NAME=VERSION", remedy="For example: --set nccl=2.21.5")
        if pins.setdefault(name, version) != version:
            raise RequestError(f"--set {name}={pins[name]} and --set {name}={version}: which one?")
    return tuple(sorted(pins.items()))
