"""``build --images``: many image lines in one run, which goes on where it was when it is resumed."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli.flags import emit
from trainwright.cli.output import Ended, by_checkout, say
from trainwright.core.errors import BuildFailed, Failure, RequestError
from trainwright.core.paths import import_root, own_catalog, use_catalog
from trainwright.plan.words import RequestWords
from trainwright.verbs.build_flags import JOBS, BuildFlags

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainwright.engine.engine import Engine
    from trainwright.fleet.run_folder import RunFile, RunFolder
    from trainwright.fleet.summary import FleetDocument, SetTags
    from trainwright.pipeline.images import ChosenImage
    from trainwright.push.references import PushTarget
    from trainwright.site.site import Site

Option = str | bool | tuple[str, ...]

# What each build of a line gets as it was given; and each build of stages, where it has a use for it.
_PATHS = ("catalog", "site")
_VALUES = ("cache", "registry", "push", "refresh")
_SWITCHES = ("locked", "smoke", "no_cache", "skip_source_check", "allow_redistribution", "leave_tags", "stay")
_EVERY = (*_PATHS, *_VALUES, *_SWITCHES)
_OF_STAGES = (*_PATHS, "cache", "locked", "refresh")
# What means one image alone. --fresh-base would make a base for each line, and they would share nothing.
_ALONE = (*RequestWords.__struct_fields__, "tags", "stages", "fresh_base")


def build_images(flags: BuildFlags) -> None:
    """Build the lines of ``--images``, or what is left of the run of ``--resume``.

    With --push, the moving tags of all lines move at the end, if every line is in the registry.

    Raises:
        RequestError: a flag does not go with these, a word matches no line, or there is no such run.
        EngineError: no engine answers.
        BuildFailed: the run was interrupted.
        Ended: a line failed; with its exit code, or that of a failed build if they differ. Or no tag could move.
    """
    _check(flags)
    from trainwright.catalog.catalog import open_catalog
    from trainwright.engine.engine import connect
    from trainwright.fleet.run_folder import create, find
    from trainwright.fleet.summary import text
    from trainwright.pipeline.images import choose
    from trainwright.site.site import load_site

    folder = find(flags.resume) if flags.resume is not None else None
    if folder is not None:
        flags = _of_run(flags, folder.run)
    use_catalog(flags.catalog)
    site = load_site(Path(flags.site) if flags.site else None)
    images = choose(flags.images if folder is None else ",".join(folder.run.lines), open_catalog(), site)
    target = flags.target(site)
    if flags.stale and folder is None:
        from trainwright.verbs.fresh import stale_lines

        images = stale_lines(images, site)
    if folder is None:
        folder = create(flags.images or "", tuple(image.name for image in images), _options(flags))
    with folder.held():
        # Before the first process, which cannot ask whether an engine may be set up.
        document = _build(folder, images, flags, connect(say=say), target=target, site=site)
    emit(document, text, as_json=flags.json_)
    if document.exit_code:
        raise Ended(document.exit_code)


def _check(flags: BuildFlags) -> None:
    if flags.images is not None and not flags.images.strip(" ,"):
        raise RequestError(
            "--images: no line is named", remedy="For example: --images 'pytorch-*-debian'   (./invoke list shows all)"
        )
    defaults = type(flags)()
    if flags.stale and flags.resume is not None:
        raise RequestError(
            f"--stale: not with --resume {flags.resume}, which has its lines",
            remedy=f"./invoke build --resume {flags.resume}   builds what is left of it.",
        )
    if flags.builder is not None and not all(_builders(flags)):
        raise RequestError(f"--builder {flags.builder}: a name is empty", remedy="For example: --builder farm-1,farm-2")
    for name in _ALONE:
        if getattr(flags, name) != getattr(defaults, name):
            raise RequestError(
                f"{_flag(name)}: not with {'--images' if flags.resume is None else '--resume'}; it means one image",
                remedy="./invoke build without --images builds one image.",
            )


def _of_run(flags: BuildFlags, run: RunFile) -> BuildFlags:
    """The flags of a run that is resumed: how it was begun, with the number of jobs and the output of today.

    Raises:
        RequestError: a flag is another one than the run was begun with.
    """
    given = {name: value for name, value in _options(flags).items() if name != "builder"}
    # That only stale lines were chosen is not said again: the run has its lines. Another builder makes the same images.
    options = {name: value for name, value in run.options.items() if name not in ("stale", "builder")}
    if flags.images not in (None, run.images) or (given and given != options):
        began = " ".join(["--images", shlex.quote(run.images), *_words(flags.replace(**run.options), run.options)])
        raise RequestError(
            f"--resume {run.id}: the run was begun with other flags: {began}",
            remedy=f"./invoke build --resume {run.id}   goes on with these; without --resume a new run begins.",
        )
    builder = flags.builder or run.options.get("builder")
    return flags.replace(images=run.images, **run.options | {"builder": builder})


def _options(flags: BuildFlags) -> dict[str, Option]:
    """How every line of a run is built: the flags that are not at their default. Paths are absolute.

    ``stale`` is among them, as the tags of such lines do not move as a set; and ``builder``, which is where."""
    given = {name: value for name in (*_EVERY, "stale", "builder") if (value := getattr(flags, name))}
    if flags.catalog is None and (own := own_catalog()) is not None:  # of the environment
        given["catalog"] = str(own)
    return given | {name: str(Path(given[name]).absolute()) for name in _PATHS if name in given}


def _words(flags: BuildFlags, names: Iterable[str]) -> list[str]:
    """The flags of these names as words of a command line."""
    words: list[str] = []
    for name in names:
        value = getattr(flags, name)
        if isinstance(value, bool):
            words += [_flag(name)] if value else []
        else:
            for each in (value,) if isinstance(value, str) else value or ():
                words += [_flag(name), each]
    return words


def _flag(name: str) -> str:
    """The flag of a field of the command line: ``--with-requirements``."""
    keys = dict(zip(BuildFlags.__struct_fields__, BuildFlags.__struct_encode_fields__, strict=True))
    return f"--{keys[name].replace('_', '-')}"


def _build(
    folder: RunFolder,
    images: Sequence[ChosenImage],
    flags: BuildFlags,
    engine: Engine,
    *,
    target: PushTarget | None,
    site: Site,
) -> FleetDocument:
    """Build what is left of a run, move the tags of the set if all of it is there, and write its summary.

    Raises:
        BuildFailed: it was interrupted.
    """
    from trainwright.catalog.catalog import open_catalog
    from trainwright.fleet.fleet import Fleet, end_left_over
    from trainwright.fleet.summary import summary, write_summary
    from trainwright.fleet.units import split, works
    from trainwright.fleet.view import make_view
    from trainwright.pipeline.pipeline import shared_groups

    started = time.monotonic()
    end_left_over(folder.units())
    built, left = split(folder, images, lambda image: _is_there(image, engine, site))
    for line in built:
        say(f"{line.name}: built before")
    # With --no-cache no line would take what the stages leave in the cache.
    groups = [] if flags.no_cache else shared_groups(left, open_catalog())
    waiting = _waiting(images, flags)
    of_line = _words(flags.replace(leave_tags=waiting is not None), _EVERY)
    units = works(left, groups, [*program(), "build"], of_line, _words(flags, _OF_STAGES))
    folder.forget_stages()
    builders = _builders(flags)
    jobs = flags.jobs if flags.jobs != JOBS else max(JOBS, len(builders))
    say(f"run {folder.run.id}: {len(left)} of {len(images)} lines to build, {jobs} at once; {folder.path}")
    view = make_view(flags.mode, say, len(left))
    fleet = Fleet(folder, units, jobs=jobs, keep_going=flags.keep_going, view=view, builders=builders)

    def so_far(moving: SetTags | None) -> FleetDocument:
        lines = {unit.name: unit for unit in (*built, *fleet.progress) if unit.kind == "line"}
        stages = [unit for unit in fleet.progress if unit.kind == "stages"]
        seconds = time.monotonic() - started
        document = summary(folder, [lines[image.name] for image in images], stages, seconds=seconds, moving=moving)
        write_summary(folder, document)
        return document

    try:
        fleet.run()
    except KeyboardInterrupt:
        document = so_far(waiting)
        raise BuildFailed(
            f"interrupted: {document.count('built')} of {len(images)} lines are built; no other has a tag",
            remedy=f"./invoke build --resume {folder.run.id}",
            run=folder.run.id,
        ) from None
    finally:
        view.close()
    document = so_far(waiting)
    if waiting is None or target is None or flags.leave_tags or document.count("built") < len(images):
        return document
    return so_far(_advance(waiting, images, target, site))


def _builders(flags: BuildFlags) -> tuple[str, ...]:
    """The builders of the command line, each once."""
    return tuple(dict.fromkeys(name.strip() for name in flags.builder.split(","))) if flags.builder is not None else ()


def _waiting(images: Sequence[ChosenImage], flags: BuildFlags) -> SetTags | None:
    """The moving tags of the set as long as none has moved; ``None`` if no tag moves, or each line moves its own.

    Lines of ``--stale`` have nothing in common: one that fails must not hold back the fixes of all others, which
    would not be stale the next time.
    """
    if flags.push is None or not images or (flags.stale and not flags.leave_tags):
        return None
    from trainwright.fleet.summary import SetTags

    words = [*(image.name for image in images), "--repository", flags.push, *_words(flags, _PATHS)]
    return SetTags(state="left", command=f"./invoke tags advance {shlex.join(words)}")


def _advance(waiting: SetTags, images: Sequence[ChosenImage], target: PushTarget, site: Site) -> SetTags:
    """Move the moving tags of the set, in each region; what became of them."""
    from trainwright.catalog.catalog import open_catalog
    from trainwright.fleet.run_folder import UnitError
    from trainwright.fresh.advance import advance
    from trainwright.push.push import places_of

    try:
        moved = advance([(place, images) for place in places_of(target, site)], open_catalog(), site, say=say)
    except Failure as failed:
        error = UnitError(exit_code=failed.exit_code, error=failed.kind, message=failed.message, remedy=failed.remedy)
        return waiting.replace(state="failed", error=error)
    return waiting.replace(state="moved", tags=moved.tags)


def _is_there(image: str, engine: Engine, site: Site) -> bool:
    """Whether the engine has an image, and its build record is there; of --stay, whether the registry has it."""
    from trainwright.build.store import built_record

    if "@" in image:
        from trainwright.push.ecr import Ecr
        from trainwright.push.promote import find_image
        from trainwright.push.references import parse_host

        if parse_host(image.partition("/")[0]) is None:
            return True  # of another registry, which is not asked
        place, digest = find_image(image, "smoke")
        return Ecr(place, site).manifest(digest=digest) is not None
    try:
        built_record(image, engine)
    except RequestError:
        return False
    return True


def program() -> list[str]:
    """The command that runs this program in a process of its own, in any working folder."""
    code = (
        f"import sys; sys.path.insert(0, {str(import_root())!r}); from trainwright.__main__ import run; "
        f"sys.exit(run(sys.argv[1:], checkout={by_checkout()}))"
    )
    # -P: a folder called trainwright in the working folder is not this program.
    return [sys.executable, "-P", "-c", code]
