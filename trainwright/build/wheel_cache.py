"""The wheel cache: wheels that a build compiled, kept by what they were made from.

A later build that would compile the same takes them, even if its builder has forgotten everything. In its build context
they stand in for the stage that compiles them; the plan, its id and what is installed are the same as without them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Protocol

from msgspec import Meta

from trainwright.build.context import COMPILED
from trainwright.build.wheel_keys import SHARED, MadeFrom, WantedWheel, sha256_of, wanted_wheels
from trainwright.catalog.wheel_lock import normalise
from trainwright.core.data_files import read_json
from trainwright.core.errors import Failure, RequestError, SourceError
from trainwright.core.fields import PythonFile, Sha256
from trainwright.core.owned import write_atomically
from trainwright.core.paths import cache_dir, locked
from trainwright.core.records import Record, parse_record
from trainwright.core.runner import run
from trainwright.core.say import Say
from trainwright.engine.buildkit import command
from trainwright.engine.engine import Engine
from trainwright.sources.inputs import Inputs

_RECORD = "wheel.json"
_EXPORT_SECONDS = 3600.0  # a builder that has lost a step since the build compiles once more


class CompiledWheel(Record):
    """A wheel of the cache: its record, ``wheel.json`` beside it."""

    schema: Literal["trainwright/compiled-wheel/1"] = "trainwright/compiled-wheel/1"
    made_from: MadeFrom
    file: PythonFile
    size: Annotated[int, Meta(ge=0)]
    sha256: Sha256


class WheelPlace(Protocol):
    """Where a site keeps wheels besides this user's cache. Both methods raise ``Failure`` if it refuses."""

    name: str

    def fetch(self, key: str, folder: Path) -> bool:
        """Write the files of an entry into a folder; whether there is such an entry."""

    def store(self, key: str, folder: Path) -> None:
        """Keep the files of a folder as an entry."""


class WheelCache:
    """The wheels of one build.

    Args:
        inputs: of the build.
        engine: whose client asks the builder for what was compiled.
        fresh: compile everything again.
        say: progress callback.

    Attributes:
        place: of the site; ``None`` if it names none.
    """

    def __init__(self, inputs: Inputs, engine: Engine, *, fresh: bool, say: Say) -> None:
        self._inputs, self.engine, self._fresh, self._say = inputs, engine, fresh, say
        self.place: WheelPlace | None = None
        self._missing: list[WantedWheel] = []

    def amend(self, files: Mapping[str, str | Path]) -> dict[str, str | Path]:
        """The files of a build context, with the wheels that are in the cache in place of what compiles them.

        Raises:
            SourceError: the site's place has another wheel under this name.
        """
        amended, wanted = dict(files), list(wanted_wheels(self._inputs, files))
        have = [] if self._fresh else [(each, path) for each in wanted if (path := self._take(each)) is not None]
        self._missing = [each for each in wanted if each not in (one for one, _ in have)]
        compiling = {(each.stage, each.component) for each in self._missing}
        for stage in dict.fromkeys(each.stage for each, _ in have):
            names = sorted({each.component for each, _ in have if each.stage == stage})
            kept = [name for name in names if (stage, name) not in compiling]
            whole = not any(one == stage for one, _ in compiling)
            amended["Dockerfile"] = without_compiling(str(amended["Dockerfile"]), stage, kept, whole=whole)
        taken = [
            (each, path) for each, path in have if each.stage == SHARED or (each.stage, each.component) not in compiling
        ]
        for each, path in taken:
            if (each.stage, each.component) not in compiling:
                amended[f"{COMPILED}/{each.component}/{path.name}"] = path
            else:
                # pip takes a wheel that has the required checksum, and copies it to those it makes.
                amended[f"wheels/{each.component}/{path.name}"] = path
                name = f"requirements/{each.component}.source.txt"
                amended[name] = str(amended[name]).replace(str(each.source.sha256), sha256_of(path))
        if taken:
            self._say(f"compiled before, from the wheel cache: {', '.join(path.name for _, path in taken)}")
        return amended

    def keep(self, context: Path, arguments: Mapping[str, str]) -> None:
        """Keep what a build has compiled. What cannot be kept is compiled again one day; that fails no build.

        Args:
            context: of the build that has just ended well.
            arguments: that name base images.
        """
        if not self._missing:
            return
        made = dict.fromkeys(each.stage for each in self._missing)
        text = f"{(context / 'Dockerfile').read_text()}\nFROM scratch AS {COMPILED}\n"
        text += "".join(f"COPY --from={stage} /wheels/ /wheels/\n" for stage in made)
        with tempfile.TemporaryDirectory(prefix="trainwright-") as scratch:
            dockerfile, out = Path(scratch, "Dockerfile"), Path(scratch, "out")
            dockerfile.write_text(text)
            secrets = self._inputs.site.secrets(Path(scratch, "secrets"), self._inputs.plan.base.os)
            argv = [*command(self.engine, self._inputs.site, secrets, arguments), "--file", str(dockerfile)]
            argv += ["--target", COMPILED, "--output", f"type=local,dest={out}", str(context)]
            env = {**self.engine.cli_env, **self._inputs.site.build_args()}
            done = run(argv, env=env, timeout=_EXPORT_SECONDS)
            if not done.ok:
                self._say(f"the compiled wheels were not kept: {done.tail(2)}")
                return
            for each in self._missing:
                found = [path for path in (out / "wheels" / each.component).glob("*.whl") if _is_of(path.name, each)]
                if len(found) == 1:
                    self._keep(each, found[0])

    def _take(self, wanted: WantedWheel) -> Path | None:
        """The wheel, in this user's cache."""
        key = wanted.made_from.key
        here = _folder(key)
        with locked(here):
            if here.is_dir():
                try:
                    return _checked(here, wanted)
                except ValueError as wrong:
                    self._say(f"{here} is not used, and removed: {wrong}")
                    shutil.rmtree(here)
            if self.place is None:
                return None
            with tempfile.TemporaryDirectory(dir=here.parent) as scratch:
                try:
                    if not self.place.fetch(key, Path(scratch)):
                        return None
                except Failure as trouble:
                    self._say(f"the wheel cache {self.place.name} is not used: {trouble.message}")
                    return None
                try:
                    _checked(Path(scratch), wanted)
                except ValueError as wrong:
                    raise SourceError(
                        f"the wheel cache {self.place.name} has a wrong wheel for {wanted.source.file}: {wrong}",
                        remedy=f"Somebody changed {key} there: remove it. Or compile again without asking: --no-cache.",
                        file=wanted.source.file,
                    ) from None
                _put(Path(scratch), here)
            return _checked(here, wanted)

    def _keep(self, wanted: WantedWheel, wheel: Path) -> None:
        key = wanted.made_from.key
        here = _folder(key)
        record = CompiledWheel(
            made_from=wanted.made_from, file=wheel.name, size=wheel.stat().st_size, sha256=sha256_of(wheel)
        )
        with locked(here), tempfile.TemporaryDirectory(dir=here.parent) as scratch:
            shutil.copy(wheel, scratch)
            write_atomically(Path(scratch, _RECORD), json.dumps(record.as_json(), indent=1) + "\n")
            _put(Path(scratch), here)
            if self.place is not None:
                try:
                    self.place.store(key, here)
                except Failure as trouble:
                    self._say(f"{wheel.name} was not kept in {self.place.name}: {trouble.message}")


def without_compiling(dockerfile: str, stage: str, components: Sequence[str], *, whole: bool) -> str:
    """The Dockerfile with a stage that copies the wheels of these components from the build context.

    Args:
        dockerfile: as it was rendered.
        stage: that compiles.
        components: whose wheels are all there.
        whole: whether these are all of the stage: it then needs no compilers.
    """
    copies = {name: f"COPY {COMPILED}/{name}/ /wheels/{name}/\n" for name in components}
    if whole:  # a stage ends with an empty line
        text = f"FROM scratch AS {stage}\n{''.join(copies.values())}"
        return re.sub(rf"^FROM \S+ AS {re.escape(stage)}\n(?:.+\n)*", text, dockerfile, flags=re.M)
    for name, copy in copies.items():
        dockerfile = re.sub(rf"^RUN (?:.*\\\n)+.* -w /wheels/{re.escape(name)}\n", copy, dockerfile, flags=re.M)
    return dockerfile


def _checked(folder: Path, wanted: WantedWheel) -> Path:
    """The wheel of an entry, if it is the one that is wanted, byte for byte as it was kept.

    Raises:
        ValueError: it is not; says why.
    """
    try:
        record = parse_record(CompiledWheel, read_json(folder / _RECORD), _RECORD)
    except RequestError as wrong:
        raise ValueError(wrong.message) from None
    if record.made_from != wanted.made_from or not _is_of(record.file, wanted):
        raise ValueError(f"its record is of {record.file}, made from something else")
    path = folder / record.file
    found = sha256_of(path) if path.is_file() and not path.is_symlink() else "none"
    if found != record.sha256:
        raise ValueError(f"{record.file} has the sha256 {found}, expected {record.sha256}")
    return path


def _is_of(wheel: str, wanted: WantedWheel) -> bool:
    return wheel.endswith(".whl") and normalise(wheel.partition("-")[0]) == normalise(wanted.name)


def _folder(key: str) -> Path:
    """Of a wheel in this user's cache; its parent is made."""
    folder = cache_dir() / "compiled-wheels" / key
    folder.parent.mkdir(exist_ok=True)
    return folder


def _put(scratch: Path, here: Path) -> None:
    """Make an entry of the files of a folder. It appears as a whole."""
    part = here.with_name(f".{here.name}.{os.getpid()}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    for path in scratch.iterdir():
        shutil.copyfile(path, part / path.name)
        (part / path.name).chmod(0o644)  # the same for every entry: modes are part of a builder's cache keys
    shutil.rmtree(here, ignore_errors=True)
    part.rename(here)
