"""``preflight``: read a script, check every family of rules, apply suppressions, return one document."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwright.core import findings
from trainwright.core import findings_baseline as baseline
from trainwright.core.data_files import read_yaml
from trainwright.core.errors import RequestError
from trainwright.core.findings import Finding, FindingsDocument, Rule, Silenced, Unread
from trainwright.core.records import parse_record
from trainwright.preflight import (
    absent_gpus,
    amp,
    apart,
    arguments,
    async_saves,
    auto_shard,
    autocast,
    averaging,
    backward_passes,
    best_values,
    carried,
    client_states,
    collectives,
    counts,
    data,
    dataclass_arguments,
    decay,
    deepspeed,
    devices,
    distributed,
    downloads,
    empty_weights,
    environment,
    epoch_metrics,
    forward_passes,
    fsdp,
    groups,
    horovod,
    hotloop,
    huggingface,
    joining,
    keras_callbacks,
    keras_epochs,
    keras_losses,
    learning_rate,
    lightning,
    lightning_checkpoints,
    lightning_optimizers,
    lightning_ranks,
    loaders,
    lockstep,
    loop,
    losses,
    metrics,
    offloaded,
    optimizers,
    own_counts,
    parameter_servers,
    peft,
    pipes,
    printed,
    removed_columns,
    replicas,
    requirements,
    restarted_schedules,
    resumed,
    resuming,
    retraced,
    sagemaker_paths,
    same_draws,
    saving,
    schedule,
    sharded,
    shares,
    skipped_gradients,
    smddp,
    smp,
    smp_limits,
    smp_tensorflow,
    steps,
    strategies,
    suppressions,
    swallowed,
    tapes,
    tensorflow,
    totals,
    trainer_arguments,
    trainers,
    unalike,
    uncalled,
    unlearned_ends,
    untrained,
    unused,
    web_datasets,
    worker_seeds,
    wrapping,
    xla,
)
from trainwright.preflight.notebooks import CellCode
from trainwright.preflight.subjects import NamedScript, subjects
from trainwright.sagemaker.job import Job, load_job
from trainwright.script import reader
from trainwright.script.reader import Module, Script
from trainwright.script.script_facts import ScriptFacts

FAMILIES = (
    *(smp, xla, distributed, devices, collectives, amp, loop, saving, hotloop, environment, data, huggingface),
    *(horovod, tensorflow, strategies, sagemaker_paths, arguments, wrapping, lockstep, schedule, trainer_arguments),
    *(unused, lightning, averaging, unalike, groups, learning_rate, dataclass_arguments, resuming, steps),
    *(backward_passes, metrics, printed, decay, losses, keras_losses, keras_callbacks, downloads, uncalled),
    *(joining, swallowed, autocast, fsdp, replicas, loaders, resumed, trainers, apart, counts, shares),
    *(smddp, smp_limits, smp_tensorflow, lightning_ranks, sharded, removed_columns, tapes, parameter_servers),
    *(auto_shard, pipes, empty_weights, same_draws, optimizers, totals, forward_passes, peft, deepspeed, keras_epochs),
    *(restarted_schedules, unlearned_ends, lightning_optimizers, offloaded, absent_gpus, async_saves, worker_seeds),
    *(web_datasets, skipped_gradients, client_states, lightning_checkpoints, retraced, epoch_metrics, own_counts),
    *(best_values, untrained),
)
RULES: tuple[Rule, ...] = (
    *reader.RULES,
    *suppressions.RULES,
    *requirements.RULES,
    *(rule for family in FAMILIES for rule in family.RULES),
)
CODES = findings.table(RULES)
# One parser's options, each with the same mistake; the message names the others.
IN_PARSERS = {
    rule.code
    for rule in (arguments.BOOL, arguments.LETTERS, arguments.MISSING, arguments.UNTYPED, arguments.POSITIONAL)
}
# What holds in a job's container; the code of a notebook itself runs where its folders stay.
IN_LOOPS = {hotloop.ITEM.code, hotloop.PRINT.code}
IN_CONTAINERS = {"TW142", "TW144", "TW145"}


@contextmanager
def _room_for_depth() -> Iterator[None]:
    """Raise the recursion limit: ``ast.unparse`` makes several calls per level of a tree."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 20 * reader.DEEPEST))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def examine(script: Script, job: Job | None = None, *, subject: str = "", strict: bool = False) -> FindingsDocument:
    """Check a parsed script against every rule."""
    name = subject or (script.files[0] if script.files else "nothing")
    return _checked([NamedScript(name, script, {each: each for each in script.files})], lambda _: job, strict=strict)


def _checked(
    scripts: Sequence[NamedScript],
    job_of: Callable[[NamedScript], Job | None],
    unread: Sequence[Unread] = (),
    *,
    beside: Mapping[str, Sequence[Finding]] = {},
    accepted: Path | None = None,
    renewed: bool = False,
    strict: bool = False,
) -> FindingsDocument:
    """Check scripts against every rule; what they share is reported once. ``beside``: findings in other files."""
    found: list[Finding] = []
    files: dict[str, None] = {}
    modules: dict[str, Module] = {}
    facts: dict[str, Any] = {}
    for each in scripts:
        known = ScriptFacts(each.script, job_of(each), each.started)
        raw = list(each.script.findings)
        with _room_for_depth():
            for family in FAMILIES:
                raw += family.check(known)
        if each.notebook and not each.cells[each.names[each.script.files[0]]].name:
            raw = [finding for finding in raw if finding.code not in IN_CONTAINERS]
        raw = [finding for finding in raw if not _as_program(each.script, finding)]
        found += [findings.moved(f, each.names.get(f.path, f.path), f.line) for f in raw]
        files |= dict.fromkeys(each.names[name] for name in each.script.files)
        for module in each.script.modules:
            shown = each.names[module.name]
            modules.setdefault(shown, module if module.name == shown else replace(module, name=shown))
        facts[each.shown] = known.summary()
    for name, more in beside.items():
        files[name] = None
        found += more
    kept, silenced = suppressions.silence(list(modules.values()), list(dict.fromkeys(found)), sorted(CODES))
    cells = {name: (each.notebook, code) for each in scripts for name, code in each.cells.items()}
    names = list(dict.fromkeys(cells[name][0] if name in cells else name for name in files))
    new = list(dict.fromkeys(_in_notebook(finding, cells) for finding in _together(kept, modules)))
    compared = baseline.compare(new, names, accepted, renewed=renewed)
    return findings.document(
        scripts[0].shown if len(facts) == 1 else f"{len(facts)} scripts",
        names,
        facts[scripts[0].shown] if len(facts) == 1 else facts,
        compared.new,
        [_silenced(each, cells) for each in silenced],
        unread=unread,
        known=compared.known,
        gone=compared.gone,
        strict=strict,
    )


def _as_program(script: Script, finding: Finding) -> bool:
    """Return whether a finding is in what an imported file does only when it is started itself."""
    module = next((m for m in script.modules if m.name == finding.path), None)
    if module is None or module is script.entry or finding.line is None:
        return False
    return any(
        isinstance(node, ast.If)
        and "__name__" in ast.unparse(node.test)
        and node.body[0].lineno <= finding.line <= (node.body[-1].end_lineno or 0)
        for node in module.tree.body
    )


def _together(kept: Sequence[Finding], modules: Mapping[str, Module]) -> list[Finding]:
    """One finding for what a loop does at each step, for a parser's options, and for each line: the first of them."""
    groups: dict[object, list[Finding]] = {}
    for finding in kept:
        place: object = finding.line
        if finding.code in IN_LOOPS and finding.path in modules and finding.line is not None:
            loops = (n for n in ast.walk(modules[finding.path].tree) if isinstance(n, ast.For | ast.While))
            around = [n for n in loops if n.lineno <= (finding.line or 0) <= (n.end_lineno or 0)]
            place = (around[0].lineno, "loop") if around else finding.line
        elif finding.code in IN_PARSERS:
            place = finding.severity
        key = (finding.code, finding.path, place) if place is not None else finding
        groups.setdefault(key, []).append(finding)
    return [_first(group) for group in groups.values()]


def _first(group: list[Finding]) -> Finding:
    first, *others = group
    if not others:
        return first
    options = dict.fromkeys(each.message.split()[0] for each in others) if first.code in IN_PARSERS else ()
    names = f": {', '.join(options)}" if options else ""
    return findings.moved(first, first.path, first.line, f"and {len(others)} more like it{names}")


def _silenced(kept: Silenced, cells: Mapping[str, tuple[str, CellCode]]) -> Silenced:
    """Return a silenced finding at its line in the notebook's file."""
    if kept.path not in cells:
        return kept
    notebook, code = cells[kept.path]
    line = code.places[kept.line - 1][0] if kept.line else None
    return Silenced(code=kept.code, path=notebook, line=line, reason=kept.reason)


def _in_notebook(finding: Finding, cells: Mapping[str, tuple[str, CellCode]]) -> Finding:
    """Return a finding in a notebook at its line in the notebook's file; others as they are."""
    if finding.path not in cells:
        return finding
    notebook, code = cells[finding.path]
    place = code.places[finding.line - 1] if finding.line and finding.line <= len(code.places) else None
    where = f"cell {place[1]}, line {place[2]}" if place else ""
    named = ": ".join(part for part in (where, code.name) if part)
    return findings.moved(finding, notebook, place[0] if place else None, named)


def preflight(
    paths: Sequence[str],
    source_dir: str | None = None,
    job_file: str | None = None,
    *,
    image: str | None = None,
    accepted: Path | None = None,
    renewed: bool = False,
    only_training: bool = False,
    strict: bool = False,
) -> FindingsDocument:
    """Check training scripts without running them.

    Args:
        paths: scripts, notebooks, shell scripts and folders, also relative to ``source_dir``; without any, the
            job file names the script.
        source_dir: the folder that is uploaded with the job.
        job_file: the job file; it names the launcher, instances and hyperparameters.
        image: that the job runs in, built here (default: the job file's image or plan): its packages are held
            against the requirements.txt of the source folder, or of the script's own.
        accepted: the file of the baseline.
        renewed: write that file from today's findings.
        only_training: leave out scripts that do not train.
        strict: warnings count as errors.

    Raises:
        RequestError: a path does not exist, nothing can be read, or the job file or the baseline is invalid.
    """
    job = load_job(Path(job_file)) if job_file else None
    if job is not None and job_file is not None:
        beside = Path(job_file).parent
        source_dir = source_dir or (str(beside / job.source_dir) if job.source_dir else None)
        if not paths and job.entry_point:
            paths = [job.entry_point if source_dir else str(beside / job.entry_point)]
    if not paths:
        raise RequestError("the script to check is missing", remedy="./invoke preflight train.py")
    named = subjects(paths, source_dir, only_training=only_training)

    def job_of(each: NamedScript) -> Job | None:
        """The job, started as the shell script starts it if the job itself starts one process."""
        if job is None or each.started is None or not each.started.distribution or job.distribution:
            return job
        data = read_yaml(Path(str(job_file)))
        return parse_record(
            Job, {**data, "distribution": {each.started.distribution: {"enabled": True}}}, str(job_file)
        )

    unread = [Unread(path=path, reason=why.message) for path, why in named.unread.items()]
    beside_of = _requirements(image, job, [Path(source_dir)] if source_dir else [Path(path) for path in paths])
    return _checked(named.found, job_of, unread, beside=beside_of, accepted=accepted, renewed=renewed, strict=strict)


def _requirements(image: str | None, job: Job | None, places: Sequence[Path]) -> dict[str, list[Finding]]:
    """The findings of the requirements files in folders, and beside scripts, by their names."""
    files = dict.fromkeys((place if place.is_dir() else place.parent) / requirements.FILE for place in places)
    if image is not None:
        known = carried.carried(image)
        return {str(path): requirements.check(path, str(path), known) for path in files if path.is_file()}
    return {str(path): requirements.check_for(job, path, str(path)) for path in files if path.is_file()}
