"""From a context to a proven, tagged image: BuildKit, probe, tags, record.

The docker SDK cannot speak to BuildKit, so the build itself goes through the command line client.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from trainwright.build import store
from trainwright.build.context import COMPILED
from trainwright.build.labels import build_labels, revision
from trainwright.build.ledger import layers_of, make_ledger, owner_of, timeline_of
from trainwright.build.options import BuildOptions
from trainwright.build.store import BuildRecord, EngineUsed
from trainwright.build.user_step import SCRIPT, step_failure
from trainwright.core.errors import (
    BuildFailed,
    EngineError,
    ProofFailed,
    RegistryRefused,
    SourceError,
)
from trainwright.core.heartbeat import heartbeat, waiting
from trainwright.core.masking import mask
from trainwright.core.paths import state_dir
from trainwright.core.runner import run, stream
from trainwright.core.say import Say
from trainwright.engine import builders
from trainwright.engine.build_display import make_view, readable
from trainwright.engine.buildkit import command
from trainwright.engine.buildkit_log import BuildProgress, Vertex
from trainwright.engine.buildkit_parsers import masked_line
from trainwright.engine.cache import cache_words
from trainwright.engine.engine import Engine
from trainwright.plan.dockerfile import steps, with_collector
from trainwright.prove import probe as probing
from trainwright.prove.smoke import BuiltProof
from trainwright.prove.system_check import check_system_packages, gone_from_archive
from trainwright.site.site import Site
from trainwright.sources import base_image
from trainwright.sources.failures import source_failure
from trainwright.sources.inputs import Inputs

_KEY_LINE = re.compile(r"error|fail|denied|not found|no space|mismatch|unable|cannot", re.IGNORECASE)
# An engine of 20.10 to 28 with its own layer store keeps the reference to a layer of build cache that it found when it
# started, after that layer is deleted with the cache (remove in moby's builder/builder-next/adapters/snapshot, where
# refs has the layer by its chain and not by the snapshot; moby/buildkit #5469). A layer with the same digest, made
# again, is then looked for in the old place. Newer releases write the file by another name first.
_LOST_LAYER = re.compile(r"failed to prepare .*/overlay2/\w+/(?:\.tmp-)?committed\w*: no such file or directory")
# uv 0.9 and newer: "error: No solution found when resolving dependencies", then why.
_NO_SOLUTION = re.compile(r"No solution found.*?\bcause: (.+)", re.DOTALL)


@dataclass(frozen=True)
class ProofWanted:
    """A folder for the results of a proof, and the build argument that says what is to be proven."""

    folder: Path
    asked: str

    def words(self) -> list[str]:
        """The arguments for BuildKit's client."""
        output = f"type=local,dest={self.folder}"
        return ["--target", "proof", "--build-arg", f"PROVE={self.asked}", "--output", output]


@dataclass(frozen=True)
class Built:
    """What BuildKit made: an image in the engine (none where stages alone were built), and where it was pushed."""

    image_id: str
    progress: BuildProgress
    pushed: str | None = None


def probe_image(
    inputs: Inputs,
    engine: Engine,
    built: Built,
    *,
    base: Mapping[str, Any],
    again: bool,
    proof: BuiltProof | None = None,
    say: Say,
) -> dict[str, Any]:
    """What the probe finds in an image; what it found earlier, unless it is to look ``again``.

    ``base`` is what was found in the image that this one extends; it is empty for others. With ``proof``, the builder
    has looked already, and only the configuration is asked for here.

    Raises:
        ProofFailed: the image differs from the plan; it gets no tag.
    """
    plan, image_id = inputs.plan, built.image_id
    earlier = _earlier(inputs, image_id)
    if proof is not None:
        found = {**proof.found, "image": probing.image_config(engine.client.path, image_id, None)}
    elif earlier is not None and not again:
        found = earlier.probe
    else:
        say("probing the image")
        with heartbeat(say, waiting("probing the image")):
            found = probing.probe(engine.client.path, image_id, plan.as_json())
    found = {**found, "base": dict(base)} if base else found
    try:
        probing.check(plan.as_json(), found)
        check_system_packages(inputs, found)
    except ProofFailed as failed:
        raise ProofFailed(
            f"the image differs from the plan, so it gets no tag: {failed.message}",
            remedy=f"{failed.remedy}\nThe image is {image_id[7:19]}; docker rmi {image_id[7:19]} removes it.".strip()
            + (f" In the registry it is {built.pushed}, without any tag." if built.pushed else ""),
            image_id=image_id,
            **failed.details,
        ) from None
    return found


def record_image(
    inputs: Inputs,
    engine: Engine,
    built: Built,
    probe: dict[str, Any],
    *,
    history: Sequence[tuple[str, int]],
    dockerfile: str,
    options: BuildOptions,
    seconds: float,
) -> BuildRecord:
    """Give an image its tags and write its record.

    Args:
        inputs, engine, options: of the build.
        built: the image.
        probe: what was found in it.
        history: its steps, as of :func:`trainwright.build.weigh.layers_in_engine`.
        dockerfile: the text that was built.
        seconds: that all of it took.

    Raises:
        BuildFailed: the engine refuses a tag.
    """
    plan, earlier = inputs.plan, _earlier(inputs, built.image_id)
    own = own_steps(built.progress)
    cached, total = sum(vertex.cached for vertex in own), len(own)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    # The cache does not know how long its steps took.
    told = earlier.timeline if earlier is not None and cached == total else None
    record = BuildRecord(
        image_id=built.image_id,
        tags=(*plan.tags, *options.tags),
        plan=plan,
        size_bytes=sum(size for _, size in history),
        seconds=round(seconds, 1),
        cached=cached == total,
        cached_steps=cached,
        total_steps=total,
        built_at=now,
        ledger=tuple(make_ledger(plan, dockerfile, built.progress.steps, history)),
        engine=EngineUsed(server=engine.server_version, client=engine.client.version, buildkit=engine.client.buildkit),
        source_revision=revision(),
        probe=probe,
        pushed=built.pushed,
        smoke=earlier.smoke if earlier is not None else None,
        layers=tuple(layers_of(dockerfile, history, probe.get("image", {}).get("layers", ()))),
        timeline=told or timeline_of(own, now),
    )
    commands = [[engine.client.path, "tag", built.image_id, tag] for tag in record.tags]
    with ThreadPoolExecutor(len(commands)) as pool:  # a client takes 30 ms to start
        answers = list(pool.map(partial(run, env=engine.cli_env), commands))
    for tag, done in zip(record.tags, answers, strict=True):
        if not done.ok:
            raise BuildFailed(f"the engine refused the tag {tag}: {done.tail(2)}", remedy="Give another --tag.")
    store.save(record, dockerfile)
    return record


def _earlier(inputs: Inputs, image_id: str) -> BuildRecord | None:
    """The record of an earlier build of the plan that made the same image and probed it for the same facts."""
    earlier, plan = store.load(image_id), inputs.plan
    if earlier is None or earlier.plan.id != plan.id:
        return None
    # The same image may be held to more than before: what the probe looks for is not part of a plan's id.
    return earlier if (earlier.plan.expect, earlier.plan.probes) == (plan.expect, plan.probes) else None


def own_steps(progress: BuildProgress) -> list[Vertex]:
    """The steps of components and shared stages.

    FROM is not a step of ours, and BuildKit never reports it as cached. Wheels that were compiled before are taken, not
    made: the builder may see them for the first time.
    """
    taken = ("FROM ", f"COPY {COMPILED}/")
    return [v for v in progress.steps if v.component is not None and not v.text.startswith(taken)]


def builder_of(engine: Engine, site: Site, options: BuildOptions) -> builders.Builder:
    """Who builds, and that it can do what is asked of it: known before anything is fetched or made."""
    found = builders.builder_for(engine, site, asked=bool(options.cache or options.registry))
    if options.registry is not None:
        builders.require_push(found, options.registry)
    return found


def run_build(
    inputs: Inputs,
    folder: Path,
    engine: Engine,
    *,
    options: BuildOptions,
    builder: builders.Builder,
    arguments: Mapping[str, str],
    say: Say,
    stages: Sequence[str] = (),
    proof: ProofWanted | None = None,
) -> Built:
    """Run BuildKit for an image, or for stages alone: these are for its cache and make no image. Or for its proof.

    Args:
        inputs: what the build takes in.
        folder: the build context.
        engine: an answering engine.
        options: how to build.
        builder: who builds.
        arguments: that name base images.
        say: progress callback.
        stages: build these; what they are made from is built as well.
        proof: build the image for this, and send it alone.

    Raises:
        RequestError: the Dockerfile has no such stage.
        BuildFailed: a step failed or the build was interrupted; no tag was moved.
        EngineError: the engine went away.
        SourceError: an input is missing, or has another checksum; no tag was moved.
        RegistryRefused: the registry of ``options`` did not take the image, or does not give it.
    """
    plan, site = inputs.plan, inputs.site
    builders.refuse_local_images(builder, arguments, base_image.LOADED)
    caches = cache_words(options.cache, plan, builder, say=say)
    log_path = state_dir() / "logs" / f"{plan.id[:16]}.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    text = (folder / "Dockerfile").read_text()
    # BuildKit builds one target at a time, and every export replaces the cache of a reference: one stage more that
    # needs all of them.
    text = with_collector(text, stages) if stages else text
    own = steps(text)
    progress = BuildProgress(engine.client.progress, owner=lambda vertex: owner_of(vertex, own))
    with tempfile.TemporaryDirectory(prefix="trainwright-") as scratch:
        id_file, metadata = Path(scratch, "image-id"), Path(scratch, "metadata.json")
        dockerfile = Path(scratch, "Dockerfile")
        dockerfile.write_text(text)
        secrets = site.secrets(Path(scratch, "secrets"), plan.base.os)
        argv = [*command(engine, site, secrets, arguments), *caches]
        if proof is not None:
            argv += proof.words()
        elif not stages:
            argv += [word for name, value in build_labels(inputs).items() for word in ("--label", f"{name}={value}")]
            argv += ["--iidfile", str(id_file), *builders.output_words(builder, options.registry, metadata)]
        elif builder.driver != "builtin":
            argv += ["--file", str(dockerfile), "--output", "type=cacheonly"]
        else:  # a client without buildx always makes an image
            argv += ["--file", str(dockerfile), "--iidfile", str(id_file)]
        argv += _common_words(engine, options)
        view = make_view(options.mode)
        with (
            log_path.open("w") as log,
            stream([*argv, str(folder)], env={**engine.cli_env, **site.build_args()}) as running,
        ):
            log.write(mask(f"# {' '.join(argv)} {folder}\n"))
            try:
                for line in running.lines():
                    log.write(masked_line(line) + "\n")
                    progress.feed(line)
                    view.update(progress)
                done = running.wait()
            except KeyboardInterrupt:
                running.stop()
                raise BuildFailed(
                    "interrupted; no tag was moved",
                    remedy="Run the same command again: finished steps come from the cache.",
                    log=str(log_path),
                ) from None
            finally:
                progress.close()
                view.close()
        if not done.ok or (not stages and proof is None and not id_file.is_file()):
            raise _failure(inputs, engine, progress, log_path, done.returncode, registry=options.registry)
        for trouble in progress.cache_troubles:
            say(f"--cache: {trouble}")
        if options.registry is not None and not stages and proof is None:
            return _pushed(engine, options, metadata, progress, say)
        image_id = id_file.read_text().strip() if id_file.is_file() else ""
    if stages and image_id:
        run([engine.client.path, "rmi", image_id], env=engine.cli_env)
    return Built(image_id, progress)


def _pushed(engine: Engine, options: BuildOptions, metadata: Path, progress: BuildProgress, say: Say) -> Built:
    """What a builder pushed, in the engine as well unless it is to stay there."""
    image_id, pushed = builders.pushed_image(str(options.registry), metadata)
    if not options.stay:
        say(f"pulling the image from {options.registry}, to prove it here")
        image_id = builders.pull_pushed(engine, pushed)
    return Built(image_id, progress, pushed)


def _common_words(engine: Engine, options: BuildOptions) -> list[str]:
    words = ["--progress", engine.client.progress, "--build-arg", f"SOURCE_REVISION={revision()}"]
    return [*words, "--no-cache"] if options.no_cache else words


def _failure(
    inputs: Inputs, engine: Engine, progress: BuildProgress, log_path: Path, code: int, *, registry: str | None
) -> BuildFailed | EngineError | SourceError | RegistryRefused:
    """What to tell of a build that failed: which component, which step, its last lines."""
    alive = run([engine.client.path, "version", "--format", "{{.Server.Version}}"], env=engine.cli_env, timeout=20)
    if not alive.ok:
        return EngineError(
            "the engine stopped answering during the build; no tag was moved",
            remedy="./invoke doctor --fix starts it again; then the same command continues from the cache.",
            log=str(log_path),
        )
    text = log_path.read_text(errors="replace")
    failed = progress.failed
    if (
        failed is not None
        and failed.step is None
        and (refused := builders.push_failure(registry, failed.error, str(log_path)))
    ):
        return refused
    component = progress.vertices[failed.id].component if failed is not None else None
    last = list(failed.log)[-20:] if failed is not None and failed.log else text.splitlines()[-20:]
    if failed is not None and (source := source_failure(inputs, component, failed.exit_code, last, str(log_path))):
        return source
    if failed is not None and inputs.strict and (gone := gone_from_archive(inputs, component, last, str(log_path))):
        return gone
    remedy = f"The whole log: {log_path}"
    if "no space left on device" in text:
        remedy = f"The disk is full: `docker system df` shows why, `docker builder prune` frees the cache. {remedy}"
    elif _LOST_LAYER.search(text):
        again = "Restart it (systemctl restart docker), then run the command again"
        remedy = f"The engine looks for a layer that it deleted with its build cache. {again}. {remedy}"
    elif missing := re.search(r"could not find bridge (\S+):", text):
        again = "Restart it (systemctl restart docker); ./invoke doctor says whether it is well again"
        remedy = f"The engine's own network, the bridge {missing[1]}, is gone. {again}. {remedy}"
    elif re.search(r"temporary failure|could not resolve|connection (timed out|refused|reset)|dns error", text, re.I):
        remedy = f"A source did not answer: run the command again, or see ./invoke doctor. {remedy}"
    step = failed.name if failed is not None else "before the first step"
    if failed is not None and inputs.script is not None and component == "user" and SCRIPT in step:
        script = inputs.plan.user.run or Path(SCRIPT)
        code = failed.exit_code or code
        return step_failure(script, inputs.script, step=step, exit_code=code, last=last, log=str(log_path))
    why = next((line for line in reversed(last) if _KEY_LINE.search(line)), "") or progress.problem
    if contradiction := _NO_SOLUTION.search("\n".join(last)):
        why = contradiction[1].replace("\n", " ")
        if component == "user" and inputs.plan.base.kind == "dlc":
            name = next(iter(re.findall(r"you require ([\w.-]+)", why)), "NAME")
            remedy = f"Leave {name} out, or let it change in the base image: --allow-change {name}. {remedy}"
    return BuildFailed(
        f"{component or 'the build'} failed in {readable(step)[:120]}: {why.strip()[:300]}; no tag was moved",
        remedy=remedy,
        component=component,
        step=step,
        step_exit_code=failed.exit_code if failed is not None else code,
        last_lines=last,
        log=str(log_path),
    )
