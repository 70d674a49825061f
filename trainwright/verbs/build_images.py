"""``build --images``: many image lines in one run, which goes on where it was when it is resumed."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli.flags import emit
from trainwright.cli.program import Ended, by_checkout, say, use_catalog
from trainwright.core.errors import BuildFailed, RequestError
from trainwright.core.paths import import_root, own_catalog
from trainwright.plan.words import RequestWords

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainwright.engine.engine import Engine
    from trainwright.fleet.run_folder import RunFile, RunFolder
    from trainwright.fleet.summary import FleetDocument
    from trainwright.pipeline.images import ChosenImage
    from trainwright.verbs.build import BuildFlags

Option = str | bool | tuple[str, ...]

JOBS = 2  # BuildKit runs the stages of one build side by side already
# What each build of a line gets as it was given; and each build of stages, where it has a use for it.
_PATHS = ("catalog", "site")
_VALUES = ("builder", "cache", "registry", "push", "refresh")
_SWITCHES = ("locked", "smoke", "no_cache", "skip_source_check", "allow_redistribution")
_OF_STAGES = (*_PATHS, "builder", "cache", "locked", "refresh")
# What means one image alone. --fresh-base would make a base for each line, and they would share nothing.
_ALONE = (*RequestWords.__struct_fields__, "tags", "stages", "fresh_base")


def build_images(flags: BuildFlags) -> None:
    """Build the lines of ``--images``, or what is left of the run of ``--resume``.

    Raises:
        RequestError: a flag does not go with these, a word matches no line, or there is no such run.
        EngineError: no engine answers.
        BuildFailed: the run was interrupted.
        Ended: a line failed; with its exit code, or that of a failed build if they differ.
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
    if flags.stale:
        from trainwright.verbs.fresh import stale_lines

        images = stale_lines(images, site)
    if folder is None:
        folder = create(flags.images or "", tuple(image.name for image in images), _options(flags))
    with folder.held():
        # Before the first process, which cannot ask whether an engine may be set up.
        document = _build(folder, images, flags, connect(say=say))
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
    given = _options(flags)
    if flags.images not in (None, run.images) or (given and given != run.options):
        began = " ".join(["--images", shlex.quote(run.images), *_words(flags.replace(**run.options), run.options)])
        raise RequestError(
            f"--resume {run.id}: the run was begun with other flags: {began}",
            remedy=f"./invoke build --resume {run.id}   goes on with these; without --resume a new run begins.",
        )
    return flags.replace(images=run.images, **run.options)


def _options(flags: BuildFlags) -> dict[str, Option]:
    """How every line of a run is built: the flags that are not at their default. Paths are absolute."""
    given = {name: value for name in (*_PATHS, *_VALUES, *_SWITCHES) if (value := getattr(flags, name))}
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
    from trainwright.verbs.build import BuildFlags

    keys = dict(zip(BuildFlags.__struct_fields__, BuildFlags.__struct_encode_fields__, strict=True))
    return f"--{keys[name].replace('_', '-')}"


def _build(folder: RunFolder, images: Sequence[ChosenImage], flags: BuildFlags, engine: Engine) -> FleetDocument:
    """Build what is left of a run, and write its summary.

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
    built, left = split(folder, images, lambda image: _is_there(image, engine))
    for line in built:
        say(f"{line.name}: built before")
    # With --no-cache no line would take what the stages leave in the cache.
    groups = [] if flags.no_cache else shared_groups(left, open_catalog())
    every = (*_PATHS, *_VALUES, *_SWITCHES)
    units = works(left, groups, [*program(), "build"], _words(flags, every), _words(flags, _OF_STAGES))
    folder.forget_stages()
    say(f"run {folder.run.id}: {len(left)} of {len(images)} lines to build, {flags.jobs} at once; {folder.path}")
    view = make_view(flags.mode, say, len(left))
    fleet = Fleet(folder, units, jobs=flags.jobs, keep_going=flags.keep_going, view=view)

    def so_far() -> FleetDocument:
        lines = {unit.name: unit for unit in (*built, *fleet.progress) if unit.kind == "line"}
        stages = [unit for unit in fleet.progress if unit.kind == "stages"]
        seconds = time.monotonic() - started
        document = summary(folder, [lines[image.name] for image in images], stages, seconds=seconds)
        write_summary(folder, document)
        return document

    try:
        fleet.run()
    except KeyboardInterrupt:
        document = so_far()
        raise BuildFailed(
            f"interrupted: {document.count('built')} of {len(images)} lines are built; no other has a tag",
            remedy=f"./invoke build --resume {folder.run.id}",
            run=folder.run.id,
        ) from None
    finally:
        view.close()
    return so_far()


def _is_there(image: str, engine: Engine) -> bool:
    """Whether the engine has an image, and its build record is there."""
    from trainwright.build.store import built_record

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
