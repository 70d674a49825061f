"""Reads a rendered Dockerfile: its stages, their steps, and the component of each step.

The ledger (seconds and bytes per component) and error messages are based on this, so they work for any Dockerfile made
by :mod:`trainwright.plan.render`, a committed one included.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.core.errors import RequestError, did_you_mean

_FROM = re.compile(r"FROM\s+(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE)
# The last step, which is of no component: its first command is ldconfig.
_OF_ALL = re.compile(r"RUN (?:--mount=\S+ )*(?:\\\n\s*)?ldconfig\b")
_MARK = re.compile(r"# ([a-z0-9-]+) (\S+) \(([a-z0-9-]+)\)$")
# BuildKit counts these as steps of a stage, the FROM included unless it names another stage or scratch.
_COUNTED = {"RUN", "COPY", "ADD", "WORKDIR"}
# Whom shared stages are attributed to; any other stage belongs to the component named in the comment above it.
_OWNERS = {name: name for name in ("base", "os", "tools", "toolchain", "wheels", "bytecode", "final")}
_OWNERS |= {"devel": "toolchain", "python": "python", "interpreter": "python"}
# The stages that the image consists of, from below; all others it only takes files from.
IMAGE_STAGES = ("base", "os", "interpreter", "packages", "final")
# The stages of the image's proof (templates/proof/), and the last one, which is the image again: of no part of a plan.
PROOF_STAGES = ("proving", "proof", "proved", "image")
# What only one image can have: its packages together, and what is made from them.
OWN_STAGES = ("packages", "bytecode", "final", *PROOF_STAGES)
LAYER = "-layer"  # how the names of stages end in which wheels are unpacked into a component's layer


@dataclass(frozen=True)
class LayerStep:
    """One instruction that creates a layer. ``component`` is the name of a component or a shared stage."""

    stage: str
    instruction: str
    component: str


@dataclass(frozen=True)
class Stage:
    """A build stage: its parent, the other stages it copies from or mounts, and its instructions verbatim."""

    name: str
    parent: str
    needs: tuple[str, ...]
    instructions: tuple[str, ...] = ()


def instructions(dockerfile: str) -> list[str]:
    """Complete instructions as a builder reads them: without comments, one line each."""
    whole = (text for text in _instructions(dockerfile) if not text.startswith("#"))
    return [re.sub(r"\\[ \t]*\n", "", text) for text in whole]


def _instructions(dockerfile: str) -> list[str]:
    """Comments and complete instructions, with continuation lines joined."""
    found: list[str] = []
    open_ = False
    for line in dockerfile.splitlines():
        text = line.strip()
        if open_:
            if text and not text.startswith("#"):
                found[-1] += "\n" + line
                open_ = text.endswith("\\")
            continue
        if text:
            found.append(text)
            open_ = text.endswith("\\") and not text.startswith("#")
    return found


def steps(dockerfile: str) -> list[LayerStep]:
    """Every layer-making instruction of the image and of what it is made from, in file order."""
    found: list[LayerStep] = []
    stage, component, marked = "", "", ""
    for text in _instructions(dockerfile):
        mark = _MARK.match(text)
        head = _FROM.match(text)
        if head:
            stage = head[2] or head[1]
            component = _OWNERS.get(stage) or marked or stage
        elif mark:
            component = marked = mark[1]
        elif text.split(maxsplit=1)[0].upper() in _COUNTED and stage not in PROOF_STAGES:
            owner = "os" if _OF_ALL.match(text) and stage == "final" else component
            if text.startswith("COPY --from=bytecode "):
                owner = "bytecode"
            found.append(LayerStep(stage, text, owner))
    return found


def stages(dockerfile: str) -> list[Stage]:
    """The stages and what they are made from, in file order."""
    found: list[Stage] = []
    names: set[str] = set()
    for text in _instructions(dockerfile):
        head = _FROM.match(text)
        if head:
            name = head[2] or head[1]
            found.append(Stage(name, head[1], ()))
            names.add(name)
        elif found and not text.startswith("#"):
            used = [n for n in re.findall(r"(?:--from=|,from=)([\w-]+)", text) if n in names]
            last = found[-1]
            needs = tuple(dict.fromkeys((*last.needs, *used)))
            found[-1] = Stage(last.name, last.parent, needs, (*last.instructions, text))
    return found


def with_collector(dockerfile: str, names: Sequence[str]) -> str:
    """The Dockerfile with an additional empty last stage that depends on these stages.

    Raises:
        RequestError: it has no such stage, or only the image itself is requested.
    """
    known = [stage.name for stage in stages(dockerfile) if stage.name not in ("final", *PROOF_STAGES)]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise RequestError(
                f"--stages {name}: no such stage of this plan. {hint}", remedy="./invoke render shows it."
            )
    mounts = " ".join(f"--mount=type=bind,from={name},target=/mnt/{name}" for name in names)
    return f"{dockerfile}\nFROM {names[0]} AS collector\nRUN --mount=type=tmpfs,target=/mnt {mounts} true\n"


def diagram(dockerfile: str) -> str:
    """The stages as a comment; those in one row are built in parallel."""
    depth: dict[str, int] = {}
    rows: dict[int, list[str]] = {}
    for stage in stages(dockerfile):
        depth[stage.name] = 1 + max((depth.get(n, 0) for n in (stage.parent, *stage.needs)), default=0)
        rows.setdefault(depth[stage.name], []).append(_with_needs(stage))
    lines = ["# Stages, those in one row in parallel:", "#"]
    lines += [f"#     {'   '.join(row)}" for _, row in sorted(rows.items())]
    return "\n".join(lines)


def _with_needs(stage: Stage) -> str:
    needs = [n for n in (stage.parent, *stage.needs) if n not in ("scratch",)]
    return f"{stage.name} <- {' + '.join(dict.fromkeys(needs))}" if needs else stage.name
