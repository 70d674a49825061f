"""An image that is proven where it is built, before a byte of it leaves the builder.

A builder that is not the engine's own makes the stage ``proof`` first, and sends its results. The image comes out of
its cache afterwards: one that is not what its plan says goes nowhere.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trainwright.build.build import Built, ProofWanted, own_steps, run_build
from trainwright.build.options import BuildOptions
from trainwright.core.errors import ProofFailed, RequestError
from trainwright.core.owned import write_atomically
from trainwright.core.paths import state_dir
from trainwright.core.say import Say
from trainwright.engine.builders import Builder
from trainwright.engine.buildkit_log import BuildProgress, Vertex
from trainwright.engine.engine import Engine
from trainwright.plan.dockerfile import IMAGE_STAGES
from trainwright.plan.plan import Plan
from trainwright.prove.in_build import ALL, ASKED, BUILD, FOLDER, PROBE, read
from trainwright.prove.smoke import BuiltProof
from trainwright.sources.inputs import Inputs


@dataclass(frozen=True)
class ProofRun:
    """What a builder found in an image, and the steps by which it made it."""

    proof: BuiltProof
    progress: BuildProgress


def proves(builder: Builder, plan: Plan, *, stay: bool = False) -> bool:
    """Whether a builder is to prove an image itself.

    The engine's own has the image where containers of it run. What AWS's containers bring is held against what was
    found in them before (:mod:`trainwright.prove.base`), which takes containers as well.

    Raises:
        RequestError: the image is to ``stay`` there, and its builder cannot prove it.
    """
    its_own = not builder.own and plan.base.kind != "dlc"
    if stay and not its_own:
        raise RequestError(
            "--stay: what one of AWS's containers brings is looked at in containers here", remedy="Leave --stay out."
        )
    return its_own


def prove_where_built(
    inputs: Inputs,
    context: Path,
    engine: Engine,
    *,
    options: BuildOptions,
    builder: Builder,
    arguments: Mapping[str, str],
    smoke: bool,
    say: Say,
) -> ProofRun:
    """Have an image built and proven, and only the results sent; they stay in ``built-proofs/`` of the state folder.

    Args:
        inputs: what the build takes in.
        context: the build context.
        engine: whose client asks the builder.
        options: how to build.
        builder: who builds.
        arguments: that name base images.
        smoke: run the image tests as well.
        say: progress callback.

    Raises:
        ProofFailed: the image is not what its plan says, a test failed, or the results cannot be trusted.
        Failure: as of :func:`trainwright.build.build.run_build`.
    """
    folder, asked = results_folder(inputs.plan), ALL if smoke else PROBE
    say(f"the builder {builder.name} builds the image and proves it")

    def ask(what: str, how: BuildOptions) -> BuildProgress:
        shutil.rmtree(folder, ignore_errors=True)
        wanted = ProofWanted(folder, what)
        return run_build(
            inputs, context, engine, options=how, builder=builder, arguments=arguments, proof=wanted, say=say
        ).progress

    progress = ask(asked, options)
    if _is_old(progress):
        # BuildKit takes a step from its cache by what came before it, not by the bytes of that.
        say("the image was built anew, so it is proven anew")
        ask(f"{asked} {datetime.now(UTC).isoformat()}", options.replace(no_cache=False))
    return ProofRun(read(folder, context, asked=asked), progress)


def results_folder(plan: Plan) -> Path:
    """Where the results of a builder are kept."""
    return state_dir() / "built-proofs" / plan.id[:16]


def keep_asked(plan: Plan, context: Path, builder: Builder, seconds: float) -> Path:
    """Keep beside the results of a builder what it was asked, so that they can be taken elsewhere; their folder.

    Args:
        plan: of the image.
        context: the build context.
        builder: who built.
        seconds: that it took.
    """
    folder = results_folder(plan)
    asked = folder / ASKED / FOLDER
    asked.mkdir(parents=True, exist_ok=True)
    for name in ("plan.json", "request.json"):
        shutil.copyfile(context / FOLDER / name, asked / name)
    how = {"client": "buildx", "buildkit": f"{builder.name} ({builder.driver})", "seconds": round(seconds, 1)}
    write_atomically(folder / BUILD, json.dumps(how) + "\n")
    return folder


def check_stays(built: Built, options: BuildOptions) -> None:
    """Check that an image which its builder has not proven does not have to stay where it is.

    Raises:
        ProofFailed: it has to.
    """
    if options.stay:
        raise ProofFailed(
            f"{built.pushed}: the builder no longer had the image that it proved, and pushed another, which has no tag",
            remedy="Build again.",
        )


def is_proven(image: BuildProgress) -> bool:
    """Whether an image is the one that was proven: it came out of the builder's cache as a whole."""
    return not _made(image)


def _is_old(progress: BuildProgress) -> bool:
    """Whether a proof came from the cache, although steps of the image did not."""
    proof = [step for step in progress.steps if step.stage == "proving" and step.text.startswith("RUN")]
    return all(step.cached for step in proof) and bool(_made(progress))


def _made(progress: BuildProgress) -> list[Vertex]:
    """The steps of the image that were not taken from the cache."""
    return [step for step in own_steps(progress) if step.stage in IMAGE_STAGES and not step.cached]
