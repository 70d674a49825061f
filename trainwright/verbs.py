"""The verbs: typed, thin, no logic. Each imports what it needs when it runs, so that `plan` and `list` are quick."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit

from trainwright.cli import CATALOG_HELP, JSON_HELP, print_json, request_verb, say, use_catalog, verb
from trainwright.errors import EngineError

if TYPE_CHECKING:
    from trainwright.catalog import Catalog
    from trainwright.plan import Plan
    from trainwright.site import Site

Words = Mapping[str, Any]
PROGRESS_HELP = "auto, live, plain, json or none"


def _resolve(words: Words, *, to_build: bool = False) -> tuple[Plan, Catalog, Site]:
    """The plan for the words of a command line; ``to_build``: an unproven one gets its lock made where it has none."""
    from trainwright import unproven
    from trainwright.catalog import load_catalog
    from trainwright.request import make_request
    from trainwright.resolve import resolve
    from trainwright.site import load_site

    named = dict(words)
    site_file = named.pop("site")
    use_catalog(named.pop("catalog"))
    request = make_request(requirements=named.pop("with_requirements"), **named)
    site = load_site(Path(site_file) if site_file else None)
    catalog = load_catalog()
    locks = unproven.make_lock(say) if to_build else unproven.stored_lock
    return resolve(request, catalog, site.base_image, locks, site.aws.region), catalog, site


@verb(
    name="list",
    help={
        "built": "the images built here, newest first",
        "components": "the components and their providers",
        "framework": "only lines of this framework",
        "cuda": "only lines of this CUDA version",
        "catalog": CATALOG_HELP,
        "json": JSON_HELP,
    },
)
def list_(
    c: Context,
    *,
    built: bool = False,
    components: bool = False,
    framework: str | None = None,
    cuda: str | None = None,
    catalog: str | None = None,
    json: bool = False,
) -> None:
    """Show the image lines of the catalog (or --components, or --built)."""
    from trainwright import listing, show

    use_catalog(catalog)
    document = listing.built() if built else listing.components() if components else listing.lines(framework, cuda)
    if json:
        print_json(document)
    else:
        print(show.listing_text(document))


@request_verb(help={"json": JSON_HELP})
def plan(c: Context, words: Words, json: bool = False) -> None:
    """Resolve a request and print the plan: versions, sources, environment, tags."""
    from trainwright import show

    resolved, _, _ = _resolve(words)
    if json:
        print_json(resolved.as_json())
    else:
        print(show.plan_text(resolved))


@request_verb(help={"json": JSON_HELP})
def explain(c: Context, words: Words, json: bool = False) -> None:
    """Say why each version is in the plan: who provides it, the evidence, what it costs."""
    from trainwright import listing, show

    document = listing.explain(*_resolve(words))
    if json:
        print_json(document)
    else:
        print(show.explain_text(document))


@request_verb(help={"output": "the folder to fill (made when missing)", "json": JSON_HELP})
def render(c: Context, words: Words, output: str | None = None, json: bool = False) -> None:
    """Print the Dockerfile of a plan, or write it with its whole build context into --output."""
    from trainwright.context import write_context
    from trainwright.errors import RequestError
    from trainwright.render import render_dockerfile

    resolved, catalog, site = _resolve(words, to_build=True)
    if output is None:
        text = render_dockerfile(resolved, catalog)
        if json:
            print_json({"schema": "trainwright/render/1", "plan": resolved.id, "dockerfile": text})
        else:
            print(text, end="")
        return
    folder = Path(output).absolute()
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "Dockerfile").is_file():
        raise RequestError(f"--output {output}: a folder that holds something else", remedy="Name an empty folder.")
    write_context(resolved, catalog, site, folder, say=say)
    if json:
        print_json({"schema": "trainwright/render/1", "plan": resolved.id, "output": str(folder)})
    else:
        print(f"{folder}/Dockerfile\nBuild it with: cd {folder} && DOCKER_BUILDKIT=1 docker build .")


@verb(
    help={
        "framework": "only lines of this framework",
        "cuda": "only lines of this CUDA version",
        "version": "only lines of this version of the framework",
        "catalog": CATALOG_HELP,
        "check": "change nothing; fail where a lock does not fit its line any more",
    }
)
def lock(  # noqa: PLR0917 - invoke passes flags by name
    c: Context,
    framework: str | None = None,
    cuda: str | None = None,
    version: str | None = None,
    catalog: str | None = None,
    check: bool = False,
) -> None:
    """Pin every Python package of the image lines, with hashes, from the configured index."""
    from trainwright.locking import refresh_locks

    use_catalog(catalog)
    refresh_locks(framework, cuda, version, check=check, say=say)


@request_verb(
    help={
        "tag": "a further tag for the image (may be repeated)",
        "progress": PROGRESS_HELP,
        "no-cache": "build every step anew",
        "fresh-base": "make the Debian base anew, from today's packages",
        "skip-source-check": "build without asking first whether every source answers",
        "smoke": "run the smoke tests, too, unless this image has passed them",
        "json": JSON_HELP,
    },
    iterable=["tag"],
)
def build(
    c: Context,
    words: Words,
    *,
    tag: list[str] | None = None,  # invoke takes the kind of a flag from its default, so none that is a tuple
    progress: str = "auto",
    no_cache: bool = False,
    fresh_base: bool = False,
    skip_source_check: bool = False,
    smoke: bool = False,
    json: bool = False,
) -> None:
    """Build the image through BuildKit, probe it against the plan, tag it."""
    from trainwright import show, workflow

    resolved, catalog, site = _resolve(words, to_build=True)
    options = workflow.build_options(
        tuple(tag or ()), progress, no_cache=no_cache, fresh_base=fresh_base, skip_source_check=skip_source_check
    )
    document = workflow.build_image(resolved, catalog, site, options, smoke=smoke, say=say)
    if json:
        print_json(document)
    else:
        print(show.build_text(document))


@verb(
    help={
        "image": "tag or id of an image built here",
        "select": "only checks whose name holds this word",
        "catalog": CATALOG_HELP,
        "json": JSON_HELP,
    }
)
def smoke(
    c: Context, image: str = "", select: str | None = None, catalog: str | None = None, json: bool = False
) -> None:
    """Run the image tests of every component inside the image, and the container contract."""
    from trainwright import show, workflow

    use_catalog(catalog)
    document = workflow.smoke_image(image, select=select, say=say)
    if json:
        print_json(document)
    else:
        print(show.smoke_text(document))


@verb(help={"fix": "mend what can be mended", "json": JSON_HELP})
def doctor(c: Context, fix: bool = False, json: bool = False) -> None:
    """Say what this machine lacks, and the command that mends it."""
    from trainwright import doctor as examination
    from trainwright import show
    from trainwright.site import load_site

    base = load_site().base_image
    document = examination.run_doctor(fix=fix, say=say, registries=(base,) if base else ())
    if json:
        print_json(document)
    else:
        print(show.doctor_text(document))
    if any(finding["severity"] == "error" for finding in document["findings"]):
        raise Exit(code=EngineError.exit_code)


@verb(
    help={
        "entry-point": "the training script (default: the one that --job names)",
        "source-dir": "the folder that goes into the job (default: the script's own)",
        "job": "the job file: launcher, hosts and hyperparameters are then held against the script",
        "strict": "warnings count as errors",
        "json": JSON_HELP,
    }
)
def preflight(
    c: Context,
    *,
    entry_point: str = "",
    source_dir: str | None = None,
    job: str | None = None,
    strict: bool = False,
    json: bool = False,
) -> None:
    """Read a training script (never run it) for mistakes that would cost a job; exit code 2 for errors."""
    from trainwright.findings import findings_text
    from trainwright.preflight.run import preflight as check

    found = check(entry_point, source_dir, job, strict=strict)
    if json:
        print_json(found.as_json())
    else:
        print(findings_text(found))
    if found.exit_code:
        raise Exit(code=found.exit_code)


@verb(positional=["log"], help={"log": "the log of a failed job, or - for standard input", "json": JSON_HELP})
def diagnose(c: Context, log: str, json: bool = False) -> None:
    """Name the cause of a failed job from its log, and the mend."""
    from trainwright import diagnose as clinic

    found = clinic.diagnose_file(log)
    if json:
        print_json(found.as_json())
    else:
        print(clinic.diagnosis_text(found))


namespace = Collection(list_, plan, explain, render, lock, build, smoke, doctor, preflight, diagnose)
