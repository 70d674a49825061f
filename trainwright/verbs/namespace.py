"""The verbs: typed, thin, no logic. Each imports what it needs when it runs, so that `plan` and `list` are quick."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit

from trainwright.cli.program import (
    CATALOG_HELP,
    JSON_HELP,
    REQUEST_FLAGS,
    answer,
    artifact,
    print_json,
    request_verb,
    say,
    use_catalog,
    verb,
)
from trainwright.core.errors import EngineError
from trainwright.verbs.job_verbs import diagnose, estimator, preflight, rehearse
from trainwright.verbs.pipeline_verbs import pipeline
from trainwright.verbs.ship_verbs import push

if TYPE_CHECKING:
    from trainwright.catalog.catalog import Catalog
    from trainwright.plan.plan import Plan
    from trainwright.plan.request import Request
    from trainwright.push.references import PushTarget
    from trainwright.site.site import Site

Words = Mapping[str, Any]
PROGRESS_HELP = "auto, live, plain, json or none"


def _resolve(words: Words, *, to_build: bool = False) -> tuple[Plan, Catalog, Site]:
    """The plan for the words of a command line; ``to_build``: an unproven one gets its lock made where it has none."""
    from trainwright.catalog.catalog import load_catalog
    from trainwright.lock import unproven
    from trainwright.plan.resolve import resolve
    from trainwright.site.site import load_site

    site_file = words["site"]
    request = _request(words)
    site = load_site(Path(site_file) if site_file else None)
    catalog = load_catalog()
    locks = unproven.make_lock(say) if to_build else unproven.stored_lock
    return resolve(request, catalog, site.base_image, locks, site.aws.region), catalog, site


def _request(words: Words) -> Request:
    """The request of a command line; its catalog becomes the one of this run."""
    from trainwright.plan.request import make_request

    named = {name: value for name, value in words.items() if name not in ("site", "catalog", "with_requirements")}
    use_catalog(words["catalog"])
    return make_request(requirements=words["with_requirements"], **named)


def _flags(words: Words) -> str:
    """The request as the command line spells it, with the files of this run, seen from the working folder."""
    import shlex

    request, here = _request(words), Path.cwd()
    user = request.user
    paths = {name: path for name in ("requirements", "code") if (path := getattr(user, name)) is not None}
    near = {name: path.relative_to(here) for name, path in paths.items() if path.is_relative_to(here)}
    flags = request.model_copy(update={"user": user.model_copy(update=near)}).flags()
    return " ".join([flags, *(f"--{name} {shlex.quote(words[name])}" for name in ("catalog", "site") if words[name])])


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
    from trainwright.verbs import listing, show

    use_catalog(catalog)
    document = listing.built() if built else listing.components() if components else listing.lines(framework, cuda)
    if json:
        print_json(document)
    else:
        answer(show.listing_text(document))


@request_verb(help={"json": JSON_HELP})
def plan(c: Context, words: Words, json: bool = False) -> None:
    """Resolve a request and print the plan: versions, sources, environment, tags."""
    from trainwright.verbs import show

    resolved, _, _ = _resolve(words)
    if json:
        print_json(resolved.as_json())
    else:
        answer(show.plan_text(resolved))


@request_verb(help={"json": JSON_HELP})
def explain(c: Context, words: Words, json: bool = False) -> None:
    """Say why each version is in the plan: who provides it, the evidence, what it costs."""
    from trainwright.verbs import listing, show

    document = listing.explain(*_resolve(words))
    if json:
        print_json(document)
    else:
        answer(show.explain_text(document))


@request_verb(help={"output": "the folder to fill (made when missing)", "json": JSON_HELP})
def render(c: Context, words: Words, output: str | None = None, json: bool = False) -> None:
    """Print the Dockerfile of a plan, or write it with its whole build context into --output."""
    from trainwright.build.context import write_context
    from trainwright.build.render import render_dockerfile
    from trainwright.core.owned import claim
    from trainwright.sources.fetch import fetch_base
    from trainwright.sources.gather import gather_locked

    resolved, catalog, site = _resolve(words, to_build=True)
    inputs = gather_locked(resolved, catalog, site, _flags(words), strict=False)
    if output is None:
        text = render_dockerfile(inputs.plan, catalog)
        if json:
            print_json({"schema": "trainwright/render/1", "plan": resolved.id, "dockerfile": text})
        else:
            artifact(text)
        return
    folder = Path(output).absolute()
    claim(folder, "context", f"--output {output}")  # before the base is made
    write_context(fetch_base(inputs, say=say), folder, say=say, named=f"--output {output}")
    if json:
        print_json({"schema": "trainwright/render/1", "plan": resolved.id, "output": str(folder)})
    else:
        answer(f"{folder}/Dockerfile\nBuild it with: cd {folder} && DOCKER_BUILDKIT=1 docker build .")


@request_verb(
    help={
        "output": "the file to write (default: locks/<plan id>.lock.json in the working folder)",
        "check": "change nothing; say what differs or is newer, and fail where the lock cannot be built from any more",
        "upgrade": "take it anew: base, apt, tools, a component or a Python package (may be repeated)",
        "json": JSON_HELP,
    },
    iterable=["upgrade"],
)
def lock(
    c: Context,
    words: Words,
    *,
    output: str | None = None,
    check: bool = False,
    upgrade: list[str] | None = None,
    json: bool = False,
) -> None:
    """Pin every input of a plan: base digest, archives, Python files, the distribution's packages."""
    from trainwright.core.errors import RequestError
    from trainwright.verbs import show, workflow

    names = tuple(upgrade or ())
    if check and names:
        raise RequestError("--check changes nothing, and --upgrade does", remedy="Give one of them.")
    resolved, catalog, site = _resolve(words, to_build=True)
    document = workflow.lock_plan(
        resolved,
        catalog,
        site,
        flags=_flags(words),
        output=Path(output).absolute() if output else None,
        upgrade=names,
        check=check,
        say=say,
    )
    if json:
        print_json(document)
    else:
        answer(show.lock_text(document))


@request_verb(
    help={
        "tag": "a further tag for the image (may be repeated)",
        "progress": PROGRESS_HELP,
        "no-cache": "build every step anew",
        "fresh-base": "make the Debian base anew, from today's packages",
        "locked": "use only what the lock of the plan names; refuse to build without a whole one",
        "skip-source-check": "build without asking first whether every source answers",
        "smoke": "run the smoke tests, too, unless this image has passed them",
        "builder": "the buildx builder to build with (default: the engine's own)",
        "cache": "a registry cache, read and written; further ones are only read (may be repeated)",
        "registry": "the builder pushes the image to this repository, without a tag; it is pulled and proven here",
        "stages": "build only these stages of the Dockerfile, for the builder's cache: no image, no tag",
        "push": "push the image to this ECR repository, once it has passed its smoke tests (more flags: ./invoke push)",
        "json": JSON_HELP,
    },
    iterable=["tag", "cache"],
)
def build(
    c: Context,
    words: Words,
    *,
    tag: list[str] | None = None,  # invoke takes the kind of a flag from its default, so none that is a tuple
    progress: str = "auto",
    no_cache: bool = False,
    fresh_base: bool = False,
    locked: bool = False,
    skip_source_check: bool = False,
    smoke: bool = False,
    builder: str | None = None,
    cache: list[str] | None = None,
    registry: str | None = None,
    stages: str | None = None,
    push: str | None = None,
    json: bool = False,
) -> None:
    """Build the image through BuildKit, probe it against the plan, tag it."""
    from trainwright.core.errors import RequestError
    from trainwright.verbs import show, workflow

    resolved, catalog, site = _resolve(words, to_build=True)
    site = site.model_copy(update={"builder": builder}) if builder else site
    options = workflow.build_options(
        tuple(tag or ()),
        progress,
        no_cache=no_cache,
        fresh_base=fresh_base,
        skip_source_check=skip_source_check,
        cache=tuple(cache or ()),
        registry=registry,
    )
    if stages is not None:
        if tag or smoke or registry or push:
            remedy = "Leave --tag, --smoke, --registry and --push out, or build all of it."
            raise RequestError("--stages makes no image", remedy=remedy)
        made = workflow.build_stages(
            resolved, catalog, site, options, names=stages, flags=_flags(words), locked=locked, say=say
        )
        if json:
            print_json(made)
        else:
            answer(show.stages_text(made))
        return
    target = _push_target(push, site)
    document = workflow.build_image(
        resolved, catalog, site, options, flags=_flags(words), locked=locked, smoke=smoke or target is not None, say=say
    )
    shipped = _push(document, target, site, progress) if target is not None else None
    if json:
        print_json({**document, "push": shipped})
        return
    answer(show.build_text(document))
    if shipped is not None:
        from trainwright.push.show import push_text

        answer(f"\n{push_text(shipped)}")


def _push_target(repository: str | None, site: Site) -> PushTarget | None:
    """Where ``--push`` leads to: known before a build begins, as a mistake in it would come out at its end."""
    if repository is None:
        return None
    from trainwright.push.references import find_target

    return find_target(repository, (), None, site.aws)


def _push(document: Mapping[str, Any], target: PushTarget, site: Site, progress: str) -> dict[str, Any]:
    """Push what was just built; the document of ``push --json``."""
    from trainwright.push.push import push_images, push_options

    options = push_options(progress=progress)
    return push_images([document["image_id"]], target, site, options, say=say)


@verb(
    help={
        "image": "tag or id of an image built here",
        "select": "only checks whose name holds this word",
        "junit": "a file for the checks as a JUnit report, as build services read it",
        "catalog": CATALOG_HELP,
        "json": JSON_HELP,
    }
)
def smoke(
    c: Context,
    *,
    image: str = "",
    select: str | None = None,
    junit: str | None = None,
    catalog: str | None = None,
    json: bool = False,
) -> None:
    """Run the image tests of every component inside the image, and the container contract."""
    from trainwright.verbs import show, workflow

    use_catalog(catalog)
    document = workflow.smoke_image(image, select=select, say=say, junit=Path(junit) if junit else None)
    if json:
        print_json(document)
    else:
        answer(show.smoke_text(document))


@verb(
    positional=["action"],
    help={
        "action": "pull: fetch every byte that a lock names",
        "lock": "the lock of a plan, a file",
        "to": "the folder to fill (made when missing; may hold mirrors of other locks)",
        "site": REQUEST_FLAGS["site"],
        "json": JSON_HELP,
    },
)
def mirror(
    c: Context,
    action: str,
    *,
    lock: str | None = None,
    to: str | None = None,
    site: str | None = None,
    json: bool = False,
) -> None:
    """Fill a folder from which a locked plan is built without any network: mirror pull --lock FILE --to DIR."""
    from trainwright.core.errors import RequestError, did_you_mean
    from trainwright.site.site import load_site
    from trainwright.verbs import show, workflow

    example = "For example: ./invoke mirror pull --lock locks/ID.lock.json --to mirror"
    if action != "pull":
        raise RequestError(f"mirror {action}: no such action. {did_you_mean(action, ['pull'])}", remedy=example)
    if lock is None or to is None:
        raise RequestError(f"mirror pull: {'--lock' if lock is None else '--to'} is missing", remedy=example)
    document = workflow.pull_mirror(Path(lock), Path(to), load_site(Path(site) if site else None), say=say)
    if json:
        print_json(document)
    else:
        answer(show.mirror_text(document))


@verb(help={"fix": "mend what can be mended", "json": JSON_HELP})
def doctor(c: Context, fix: bool = False, json: bool = False) -> None:
    """Say what this machine lacks, and the command that mends it."""
    from trainwright.doctor import doctor as examination
    from trainwright.site.site import load_site
    from trainwright.verbs import show

    base = load_site().base_image
    document = examination.run_doctor(fix=fix, say=say, registries=(base,) if base else ())
    if json:
        print_json(document)
    else:
        answer(show.doctor_text(document))
    if any(finding["severity"] == "error" for finding in document["findings"]):
        raise Exit(code=EngineError.exit_code)


namespace = Collection(
    *(
        list_,
        plan,
        explain,
        render,
        lock,
        build,
        mirror,
        smoke,
        rehearse,
        push,
        pipeline,
        estimator,
        preflight,
        diagnose,
        doctor,
    )
)
