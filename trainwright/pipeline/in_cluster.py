"""``python -m trainwright.pipeline.in_cluster BAKE TARGET JOB``: what ``buildctl`` is told besides the context.

The Jobs of ``pipeline --format kubernetes`` build with BuildKit alone, whose client reads no bake file. The arguments
that a target has there (labels, build arguments, secrets) become a file, a word in each line, which goes into the Job
beside the context. Their names and values are those of BuildKit's frontend for Dockerfiles.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainwright.build.labels import revision
from trainwright.core.data_files import read_json
from trainwright.core.errors import RequestError
from trainwright.pipeline.bake import BAKE_FILE, CONTEXTS, SECRETS
from trainwright.plan.dockerfile import with_collector

OPTIONS = "options"
WORKSPACE = "/workspace"  # where the folder of the bake file is in the Job
STAGES_FILE = "Dockerfile.stages"


def options(target: dict[str, Any], *, source_revision: str, stages: bool = False) -> list[str]:
    """The arguments of ``buildctl build`` for a target of a bake file, without context, cache and output.

    Args:
        target: as :func:`trainwright.pipeline.bake.bake_document` has it.
        source_revision: what the variable of that name stands for.
        stages: the stages of :data:`STAGES_FILE` instead of the image.

    Raises:
        RequestError: a value has several lines.
    """
    words = ["--opt", f"filename={STAGES_FILE if stages else target['dockerfile']}"]
    words += [] if stages else ["--opt", f"target={target['target']}"]
    arguments = {name: value.replace("${SOURCE_REVISION}", source_revision) for name, value in target["args"].items()}
    words += [word for name, value in arguments.items() for word in ("--opt", f"build-arg:{name}={value}")]
    if not stages:
        words += [word for name, value in target["labels"].items() for word in ("--opt", f"label:{name}={value}")]
    for secret in target.get("secret", ()):
        name, _, path = secret.partition(",src=")
        words += ["--secret", f"{name},src={WORKSPACE}/{path}"]
    for word in words:
        if "\n" in word or "\r" in word:
            raise RequestError(f"{word.partition('=')[0]}: a value of several lines cannot be sent into a Job")
    return words


def _bring_secrets(target: dict[str, Any], folder: Path) -> None:
    """Copy secrets that are elsewhere on this machine, such as a bundle of certificates, beside the others."""
    for number, secret in enumerate(target.get("secret", ())):
        name, _, path = secret.partition(",src=")
        if Path(path).is_absolute():
            near = Path(SECRETS, "elsewhere", name.removeprefix("id="))
            (folder / near).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / near)
            target["secret"][number] = f"{name},src={near}"


def main(argv: Sequence[str] | None = None) -> None:
    """Write the file of a Job, and the Dockerfile of its stages if it builds stages alone.

    Raises:
        RequestError: as :func:`options`, or the bake file has no such target.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("target")
    parser.add_argument("job")
    parser.add_argument("--stages", default="")
    asked = parser.parse_args(argv)
    targets: dict[str, Any] = read_json(asked.folder / BAKE_FILE)["target"]
    if asked.target not in targets:
        raise RequestError(f"{asked.target}: no such target in {asked.folder / BAKE_FILE}: {json.dumps(list(targets))}")
    _bring_secrets(targets[asked.target], asked.folder)
    words = options(targets[asked.target], source_revision=revision(), stages=bool(asked.stages))
    if asked.stages:
        context = asked.folder / CONTEXTS / asked.target
        text = with_collector((context / "Dockerfile").read_text(), asked.stages.split(","))
        (context / STAGES_FILE).write_text(text)
    (asked.folder / OPTIONS).mkdir(exist_ok=True)
    (asked.folder / OPTIONS / asked.job).write_text("".join(f"{word}\n" for word in words))


if __name__ == "__main__":
    main()
