"""The keys of the wheel cache: which wheels a build compiles and keeps, and what each of them is made from."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwright.core.fields import FileName, OneLine, Python, Sha256
from trainwright.core.records import Record
from trainwright.plan.dockerfile import Stage, stages
from trainwright.plan.plan import PlannedComponent, PlannedSource
from trainwright.sources.inputs import Inputs

SHARED = "wheels"  # the stage of all source packages without a stage of their own
# Folders of the build context that decide nothing about a wheel: programs of this one's own; the root file system and
# the distribution's packages, which the record has by name; what instructions and requirements have by checksum.
_IMMATERIAL = re.compile(r"(tools|base|apt|archives|wheels)/|.*\.source\.txt$")
_OF_CONTEXT = re.compile(r"--mount=type=bind,source=([^,\s]+)|^(?:COPY|ADD) (?!--from)(\S.*) \S+$")
_MADE = re.compile(r" /wheels/(\S+)$")  # the end of an instruction that compiles, with its component


class MadeFrom(Record):
    """What a wheel was made from, as far as it is known before.

    Attributes:
        source, sha256: the source package.
        base: of the image and its build stages: distribution, images with their digests.
        system: versions of the distribution's packages, compilers among them, if the plan is locked.
        steps: digest of the instructions that compile it, and of all stages that they build on.
        files: digest of what these take from the build context, such as the locked build requirements, and the wheels
            of PyTorch and CUDA that it is compiled against.
    """

    source: FileName
    sha256: Sha256
    python: Python
    platform: OneLine
    base: tuple[str, ...]
    system: dict[str, str]
    steps: Sha256
    files: Sha256

    @property
    def key(self) -> str:
        """The name of the wheel in the cache."""
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class WantedWheel:
    """A source package that is compiled: for whom, in which stage, from what."""

    component: str
    stage: str
    source: PlannedSource
    made_from: MadeFrom

    @property
    def name(self) -> str:
        """Of the package."""
        return str(self.source.package).partition("==")[0]


def wanted_wheels(inputs: Inputs, files: Mapping[str, str | Path]) -> Iterator[WantedWheel]:
    """What is compiled and worth keeping, with what it is made from.

    Args:
        inputs: of a build.
        files: of its context, content by name.
    """
    made = {stage.name: stage for stage in stages(str(files["Dockerfile"]))}
    for component in inputs.plan.compiled:
        stage = made[component.name if component.own_stage else SHARED]
        below = [made[name] for name in _built_on(stage, made)]
        steps = list(_steps(component, stage, below))
        digest = _digest(files, steps)
        for source in component.sdists:
            yield WantedWheel(component.name, stage.name, source, _made_from(inputs, source, below, steps, digest))


def _made_from(
    inputs: Inputs, source: PlannedSource, below: Sequence[Stage], steps: Sequence[str], files: str
) -> MadeFrom:
    plan, lock = inputs.plan, inputs.lock
    system = (lock.system if lock is not None else None) or ()
    images = (plan.base.image, plan.base.digest, plan.base.build_image, plan.base.build_digest)
    names = {stage.name for stage in below}
    return MadeFrom(
        source=str(source.file),
        sha256=str(source.sha256),
        python=plan.python,
        platform=plan.platform,
        base=(plan.base.os, *(text for text in images if text)),
        system={package.name: package.version for package in system if names & {*package.stages}},
        steps=hashlib.sha256("\n".join(steps).encode()).hexdigest(),
        files=files,
    )


def _built_on(stage: Stage, made: Mapping[str, Stage]) -> dict[str, None]:
    """The names of a stage and of all that it is made from, from below."""
    found: dict[str, None] = {}
    for name in (stage.parent, *stage.needs):
        if name in made:
            found |= _built_on(made[name], made)
    return found | {stage.name: None}


def _steps(component: PlannedComponent, stage: Stage, below: Sequence[Stage]) -> Iterator[str]:
    """The instructions that a component's packages are compiled by, without those for other components' packages."""
    for each in below:
        yield f"FROM {each.parent}"
        for text in each.instructions:
            line = re.sub(r"\\[ \t]*\n\s*", "", text)
            compiles = _MADE.search(line) if each is stage else None
            if compiles is None or compiles[1] == component.name:
                yield line


def _digest(files: Mapping[str, str | Path], steps: Sequence[str]) -> str:
    """A digest of what instructions take from the build context, where it can make a difference to a wheel."""
    pairs = (pair for step in steps for pair in _OF_CONTEXT.findall(step))
    named = {name.rstrip("/") for pair in pairs for name in " ".join(pair).split()}
    digest = hashlib.sha256()
    for name in sorted(files):
        folders = {name, *(str(folder) for folder in Path(name).parents)}
        if folders & named and not _IMMATERIAL.match(name):
            content = files[name]
            text = content if isinstance(content, str) else sha256_of(content)
            # Where an index is, is the site's: it can deliver nothing but the locked files.
            kept = [line for line in text.splitlines() if not line.startswith("--extra-index-url ")]
            digest.update("\0".join([name, *kept, ""]).encode())
    return digest.hexdigest()


def sha256_of(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
