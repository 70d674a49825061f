"""``prove``: sources, lock, build, image tests and a rehearsal of image lines, and a proof of each that travels."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec.structs import replace

from trainwright.build.options import BuildOptions
from trainwright.cli.flags import ArtifactsFlag, CatalogFlag, JsonFlag, SiteFlag, emit, verb
from trainwright.cli.output import Ended, say
from trainwright.core.errors import Failure, ProofFailed, RequestError, SourceError
from trainwright.core.layout import table
from trainwright.core.paths import use_catalog
from trainwright.core.records import Document, Field
from trainwright.proofs.runs import STEPS, LineRun, StepName, StepRun, begin, folder_of, keep
from trainwright.verbs.state import State, known, run
from trainwright.verbs.way import upto

if TYPE_CHECKING:
    from trainwright.build.store import BuildRecord
    from trainwright.catalog.image_line import Line
    from trainwright.engine.engine import Engine
    from trainwright.plan.plan import Plan
    from trainwright.proofs.proof import LineProof
    from trainwright.rehearse.documents import RehearsalDocument


class ProveFlags(CatalogFlag, SiteFlag, ArtifactsFlag, JsonFlag):
    """The flags of ``prove``."""

    bare: ClassVar[str] = "lines"
    examples: ClassVar[tuple[str, ...]] = (
        "prove pytorch/cpu",
        "prove pytorch:cu124 tensorflow --again",
        "prove --import artifacts",
    )

    lines: tuple[str, ...] = Field(
        default=(),
        alias="line",
        description="image lines: pytorch/cpu (a folder of images/), pytorch:cu124, pytorch, or a pattern",
    )
    imports: tuple[str, ...] = Field(
        default=(), alias="import", description="take proofs made elsewhere: a file, or a folder of them"
    )
    again: bool = Field(default=False, description="prove lines that are proven, too, from the first step on")
    twin: bool = Field(
        default=False,
        description="the lines of --catalog stand for shipped ones of the same names, whose sources are unreachable",
    )
    output: str | None = Field(
        default=None, description="the folder of proofs (default: proofs/ beside the catalog's images/)"
    )
    progress: str = Field(default="auto", description="of the builds: auto, live, plain, json or none")


class ProveRow(Document):
    """A line: whether it is proven, whether that is new (``false``: it was there), and its steps."""

    line: str
    plan: str
    outcome: Literal["proven", "failed"]
    new: bool
    steps: tuple[StepRun, ...]
    proof: str | None


class ProveDocument(Document):
    """``prove --json``."""

    schema: Literal["trainwright/prove/1"]
    lines: tuple[ProveRow, ...]


@verb
def prove(flags: ProveFlags) -> None:
    """Take image lines through every step, and keep a proof of each.

    The steps are sources, lock, build, image tests and a rehearsal. A run that was killed goes on where it was.
    """
    from trainwright.catalog.catalog import open_catalog
    from trainwright.catalog.listing import named
    from trainwright.engine.engine import connect
    from trainwright.site.site import load_site

    use_catalog(flags.catalog)
    catalog = open_catalog()
    if bool(flags.lines) == bool(flags.imports):
        raise RequestError(
            "prove takes image lines, or --import",
            remedy="For example: ./invoke prove pytorch/cpu   (or: --import FOLDER)",
        )
    if flags.twin and not flags.catalog:
        raise RequestError("--twin needs --catalog: the folder with the data of the stand-ins", remedy="docs/proofs.md")
    if flags.imports:
        emit(_taken(flags, catalog), prove_text, as_json=flags.json_)
        return
    entries, site = named(catalog, flags.lines), load_site(Path(flags.site) if flags.site else None)
    options = BuildOptions(progress=flags.progress, skip_source_check=True)  # the first step has asked for all of them
    engine = connect(say=say)
    start = State(say=say, site=site, catalog=catalog, options=options, locked=True, smoke=True, engine=engine)
    rows = tuple(_prove(entry, start, flags) for entry in entries)
    emit(ProveDocument(schema="trainwright/prove/1", lines=rows), prove_text, as_json=flags.json_)
    if any(row.outcome == "failed" for row in rows):
        raise Ended(ProofFailed.exit_code)


def _taken(flags: ProveFlags, catalog: Any) -> ProveDocument:
    """Proofs made elsewhere."""
    from trainwright.proofs.home import take
    from trainwright.proofs.places import roots

    root = Path(flags.output).absolute() if flags.output else roots()[-1]
    rows = [
        ProveRow(
            line=f"{proof.framework}/{proof.line}",
            plan=proof.plan,
            outcome=proof.outcome,
            new=new,
            steps=(),
            proof=str(root / proof.path),
        )
        for proof, _, new in take(flags.imports, catalog, root)
    ]
    return ProveDocument(schema="trainwright/prove/1", lines=tuple(rows))


def _prove(entry: Line, start: State, flags: ProveFlags) -> ProveRow:
    """Take one line through all steps; its first failure is kept, and the next line goes on."""
    from trainwright.plan.of_line import request_of
    from trainwright.proofs.home import save_own
    from trainwright.proofs.places import roots

    name = f"{entry.path.parent.parent.name}/{entry.name}"
    root = Path(flags.output).absolute() if flags.output else roots()[0 if flags.twin else -1]
    place = root / entry.path.parent.parent.name / f"{entry.name}.json"
    tried = _try("sources", name, lambda: _plans(entry, start, twin=flags.twin))
    if isinstance(tried, StepRun):
        return ProveRow(line=name, plan="", outcome="failed", new=True, steps=(tried,), proof=None)
    plan, stands_for = tried
    line_run = begin(entry, plan.id, again=flags.again)
    if line_run.done and place.is_file():
        say(f"{name}: proven; --again proves it once more")
        return ProveRow(line=name, plan=plan.id, outcome="proven", new=False, steps=line_run.steps, proof=str(place))
    request = request_of(entry)
    state = replace(start, catalog=start.catalog.alone(entry), request=request, plan=plan, flags=request.flags())
    line_run, state, document = _steps(entry, name, line_run, state)
    path = save_own(_proof(entry, line_run, state, document, stands_for), root)
    if path is None:
        say(f"{name}: the failure is not kept, as {place} proves this plan")
    return ProveRow(
        line=name,
        plan=plan.id,
        outcome="proven" if line_run.done else "failed",
        new=True,
        steps=line_run.steps,
        proof=None if path is None else str(path),
    )


def _plans(entry: Line, start: State, *, twin: bool) -> tuple[Plan, str | None]:
    """The plan of a line, and for a twin the id of the one that it stands for.

    Raises:
        RequestError: the plan is not the line's, because the site replaces the base; no shipped line has that name.
    """
    from trainwright.catalog.catalog import load_catalog
    from trainwright.core.paths import images_dir, templates_dir
    from trainwright.plan.of_line import plan_of
    from trainwright.proofs.home import known_lines

    site = start.site
    plan = plan_of(entry, start.catalog, site.base_image, site.aws.region)
    if site.base_image is not None and plan.base.image == site.base_image:
        raise RequestError(
            "the site's base_image replaces the base of the line, so this would prove another image",
            remedy="Run it without base_image; [registries] may name a mirror (docs/site.md).",
        )
    if not twin:
        return plan, None
    shipped = load_catalog(images_dir(), templates_dir())
    real = known_lines(shipped).get((entry.path.parent.parent.name, entry.name))
    if real is None or real.path == entry.path:
        raise RequestError(
            f"{entry.path}: --twin: " + ("is the shipped line" if real else "no shipped line has this name"),
            remedy="A twin is a line of --catalog in a folder with the name of a shipped one.",
        )
    return plan, plan_of(real, shipped).id


def _steps(entry: Line, name: str, line_run: LineRun, state: State) -> tuple[LineRun, State, RehearsalDocument | None]:
    """Run the steps that have not passed, up to the first that fails."""
    state, line_run = _resumed(line_run, state)
    document: RehearsalDocument | None = None
    work: Mapping[StepName, Callable[[], Any]] = {
        "sources": lambda: _sources(entry, state),
        "lock": lambda: _lock(state),
        "build": lambda: run(upto("tag_and_record")[len(upto("resolve")) :], state),
        "smoke": lambda: run([upto("smoke")[-1]], state),
        "rehearsal": lambda: _rehearse(entry, state),
    }
    for step in STEPS:
        if line_run.passed(step):
            continue
        say(f"{name}: {step}")
        started = time.monotonic()
        result = _try(step, name, work[step])
        seconds = round(time.monotonic() - started, 1)
        failed = isinstance(result, StepRun)
        if isinstance(result, State):
            state = result
            line_run = line_run.replace(image=known(state.record).image_id)
        made = result.replace(seconds=seconds) if isinstance(result, StepRun) else None
        line_run = line_run.with_step(made or StepRun(step=step, outcome="passed", seconds=seconds))
        keep(entry, line_run)
        if failed:
            break
    if line_run.image:
        document = _rehearsal_of(entry, line_run.image)
        state = replace(state, record=_record(line_run.image))
    return line_run, state, document


def _try(step: StepName, name: str, work: Callable[[], Any]) -> Any:
    """What a step returns; of one that fails, whatever of, its failure: another line may still succeed."""
    from trainwright.core.faults import as_failure

    try:
        return work()
    except Failure as failure:
        failed = failure
    except Exception as fault:
        failed = as_failure(fault, ["prove", name])
    say(f"{name}: {step} failed: {failed.message}")
    return StepRun(step=step, outcome="failed", seconds=0.0, says=failed.message, remedy=failed.remedy)


def _resumed(line_run: LineRun, state: State) -> tuple[State, LineRun]:
    """The state after the steps that have passed; what was built and is gone is built again."""
    from trainwright.build.store import built_record

    if not line_run.image:
        return state, line_run
    try:
        return replace(state, record=built_record(line_run.image, known(state.engine))), line_run
    except RequestError:
        return state, line_run.replace(steps=tuple(s for s in line_run.steps if s.step in STEPS[:2]), image="")


def _sources(entry: Line, state: State) -> None:
    """Every base image, archive and package of the line is there.

    Raises:
        SourceError: one is not, or they could not be asked for.
    """
    from trainwright.sources.survey import survey
    from trainwright.verbs.sources import missing_packages

    (found,) = survey([entry], state.catalog, state.site, state.engine, missing_packages, say=say).lines
    if found.problem or found.unavailable:
        missing = [f"{each.kind} {each.name}" for each in found.unavailable]
        raise SourceError(
            "; ".join(filter(None, (found.problem, ", ".join(missing)))),
            remedy=f"./invoke sources {state.flags}   # says where each was looked for",
        )


def _lock(state: State) -> None:
    """The lock of the plan, complete."""
    from trainwright.verbs.lock import lock_plan

    lock_plan(
        known(state.plan), state.catalog, state.site, flags=state.flags, output=None, upgrade=(), check=False, say=say
    )


def _rehearse(entry: Line, state: State) -> None:
    """The job of the pipeline for such an image, on two hosts.

    Raises:
        RehearsalFailed: the job fails.
    """
    from trainwright.core.paths import data_root
    from trainwright.pipeline.batch import rehearsal
    from trainwright.rehearse.flags import make_job
    from trainwright.rehearse.rehearsal import rehearse
    from trainwright.rehearse.words import RehearsalWords

    job = rehearsal(known(state.plan))
    source = data_root() / job["SOURCE_DIR"]
    if not source.is_dir():
        raise RequestError(f"{source}: no such folder", remedy="prove needs a checkout, which has examples/.")
    words = RehearsalWords(
        image=known(state.record).image_id,
        source_dir=str(source),
        entry_point="train.py",
        distribution=job["DISTRIBUTION"] or None,
        hosts=2,
    )
    folder = folder_of(entry) / "rehearsal"
    (folder / "report.json").unlink(missing_ok=True)
    rehearse(make_job(words), known(state.engine), say=say, site=state.site, output=folder, quiet=True)


def _rehearsal_of(entry: Line, image: str) -> RehearsalDocument | None:
    """The report of the rehearsal in an image, if there was one."""
    from trainwright.core.data_files import read_state
    from trainwright.core.records import MisfitError, read_record
    from trainwright.rehearse.documents import RehearsalDocument

    try:
        found = read_record(RehearsalDocument, read_state(folder_of(entry) / "rehearsal" / "report.json"))
    except MisfitError:
        return None
    return found if found.image_id == image else None


def _record(image: str) -> BuildRecord | None:
    from trainwright.build.store import load

    return load(image)


def _proof(
    entry: Line, line_run: LineRun, state: State, document: RehearsalDocument | None, stands_for: str | None
) -> LineProof:
    """The proof of a line, whatever became of its tests, or that it came to no image."""
    from trainwright.build.labels import revision
    from trainwright.proofs.make import efa_seen, failed_before_image, make_proof
    from trainwright.sources.gather import gather_locked

    engine: Engine = known(state.engine)
    seen = {"gpu": engine.gpus, "efa": efa_seen()}
    failed = next((each.step for each in line_run.steps if each.outcome == "failed"), None)
    if failed is not None and not line_run.image:
        plan = known(state.plan)
        return failed_before_image(entry, plan, failed, engine, revision=revision(), stands_for=stands_for, **seen)
    inputs = gather_locked(known(state.plan), state.catalog, state.site, state.flags, strict=False)
    record = known(state.record)
    return make_proof(entry, record, inputs, document, failed=failed, stands_for=stands_for, **seen)


def prove_text(document: ProveDocument) -> str:
    """A row per line; under it why it failed."""
    lines = []
    rows = [
        (row.line, *(_word(row, step) for step in STEPS), row.outcome + ("" if row.new else " before"))
        for row in document.lines
    ]
    head, *texts = table([("line", *STEPS, ""), *rows]).splitlines()
    for text, row in zip(texts, document.lines, strict=True):
        lines.append(text)
        for step in row.steps:
            if step.outcome == "failed":
                lines += [f"    {line}" for line in (*step.says.splitlines()[:12], *step.remedy.splitlines()[:3])]
    proofs = [f"proof   {row.proof}" for row in document.lines if row.proof]
    return "\n".join([head, *lines, "", *proofs])


def _word(row: ProveRow, step: str) -> str:
    made = next((each for each in row.steps if each.step == step), None)
    return "-" if made is None else "failed" if made.outcome == "failed" else f"{made.seconds:.0f} s"
