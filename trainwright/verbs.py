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
        "cuda": "only the line of this CUDA version",
        "catalog": CATALOG_HELP,
        "check": "change nothing; fail where a lock does not fit its line any more",
    }
)
def lock(
    c: Context,
    framework: str | None = None,
    cuda: str | None = None,
    catalog: str | None = None,
    check: bool = False,
) -> None:
    """Pin every Python package of the image lines, with hashes, from the configured index."""
    from trainwright.locking import refresh_locks

    use_catalog(catalog)
    refresh_locks(framework, cuda, check=check, say=say)


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


@verb(
    help={
        "image": "tag or id of an image that the engine has",
        "entry-point": "the script, relative to --source-dir; or any file, where that is not given",
        "source-dir": "the folder that an estimator would upload",
        "requirements": "a requirements file, in place of the source folder's requirements.txt",
        "hosts": "how many instances (default: 1)",
        "processes-per-host": "ranks on each (default: what the platform takes for --instance-type)",
        "distribution": "the estimator's distribution: a file or a text of JSON, or mpi or torch_distributed",
        "instance-type": "as ml.p4d.24xlarge (default: ml.m5.xlarge)",
        "hyperparameters": "a file or a text of JSON",
        "input": "a channel and its folder, as training=DIR (may be repeated)",
        "env": "a variable of the estimator's environment, as NAME=VALUE (may be repeated)",
        "sdk": "whose contract: 2 (the image's `train`) or 3 (the drivers of SageMaker SDK 3)",
        "launch-only": "show the launch line and environment on every host, and run nothing",
        "timeout": "seconds until it is ended (default: 300)",
        "stop-after": "send SIGTERM after so many seconds, as StopTrainingJob does",
        "memory": "limit of each host, as 2g",
        "output": "folder for report, logs and artifacts (default: one under .trainwright/rehearsals)",
        "quiet": "do not show the logs of the hosts",
        "json": JSON_HELP,
    },
    iterable=["input", "env"],
)
def rehearse(
    c: Context,
    *,
    image: str = "",
    entry_point: str = "",
    source_dir: str | None = None,
    requirements: str | None = None,
    hosts: int = 1,
    processes_per_host: int = 0,
    distribution: str | None = None,
    instance_type: str = "ml.m5.xlarge",
    hyperparameters: str | None = None,
    input: list[str] | None = None,
    env: list[str] | None = None,
    sdk: int = 2,
    launch_only: bool = False,
    timeout: float = 300.0,
    stop_after: str | None = None,
    memory: str | None = None,
    output: str | None = None,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Run a training job in an image as SageMaker would, on one or more simulated hosts."""
    from trainwright.engine import connect
    from trainwright.rehearsal.request import make_job
    from trainwright.rehearsal.run import rehearse as run_rehearsal
    from trainwright.rehearsal.show import rehearsal_text

    job = make_job(
        image=image,
        entry_point=entry_point,
        source_dir=source_dir,
        requirements=requirements,
        hosts=hosts,
        processes_per_host=processes_per_host,
        distribution=distribution,
        instance_type=instance_type,
        hyperparameters=hyperparameters,
        inputs=input or [],
        environment=env or [],
        sdk=sdk,
        launch_only=launch_only,
        timeout=timeout,
        stop_after=stop_after,
        memory=memory,
    )
    engine = connect(say=say)
    document = run_rehearsal(job, engine, say=say, output=Path(output) if output else None, quiet=quiet)
    if json:
        print_json(document)
    else:
        print(rehearsal_text(document))


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


namespace = Collection(list_, plan, explain, render, lock, build, smoke, rehearse, doctor)
