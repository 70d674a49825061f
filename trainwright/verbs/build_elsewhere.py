"""``build --on codebuild``: sends what a build needs, follows it in CodeBuild, and downloads the result."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from trainwright.cli.flags import emit
from trainwright.cli.output import complain, say
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.layout import duration, size

if TYPE_CHECKING:
    from trainwright.pipeline.codebuild import CodeBuild, UploadProject
    from trainwright.pipeline.remote_record import RemoteBuildDocument
    from trainwright.pipeline.upload import Upload
    from trainwright.plan.plan import Plan
    from trainwright.site.site import Site
    from trainwright.verbs.build_flags import BuildFlags

PLACES = ("codebuild",)
_ONLY = ("follow", "project", "region")
# What the build there is told; and what means this machine's engine, or something that a build there cannot do.
_SWITCHES = ("locked", "no_cache", "fresh_base", "skip_source_check")
_HERE = {
    **dict.fromkeys(("images", "resume", "stale", "keep_going", "jobs"), "one image is sent at a time"),
    **dict.fromkeys(("builder", "stages", "cache", "registry", "allow_redistribution"), "it is about an engine here"),
    "leave_tags": "a build there moves the tags of its image",
    "dry_run": "it asks the engine of this machine",
    "tags": "it names an image in the engine of this machine; ./invoke tags moves tags in the registry",
}


def build_elsewhere(flags: BuildFlags) -> None:
    """Build where ``--on`` says, or follow a build there.

    Raises:
        RequestError: a flag does not go with it, a file must not be sent, or there is no project that takes it.
        Conflict: nothing fits the request; nothing was sent.
        RegistryRefused: AWS refuses or does not answer.
        BuildFailed: it was interrupted, stopped or too slow there.
        Failure: what the program has failed with there, with its exit code.
    """
    _check(flags)
    from trainwright.pipeline.codebuild import CodeBuild
    from trainwright.site.site import load_site

    site = load_site(Path(flags.site) if flags.site else None)
    service = CodeBuild(_region(flags.region, site), site)
    if flags.follow is not None:
        emit(_followed(service, flags.follow, flags), remote_text, as_json=flags.json_)
        return
    plan, upload, build = _sent(service, flags, site)
    say(f"{build}: builds plan {plan.id[:12]}; Ctrl-C stops it")
    document = _followed(service, build, flags, sent=len(upload.sent), sent_bytes=upload.size)
    if site.signing.key:
        say("not signed: keys stay on this machine; ./invoke sign signs what is in the registry")
    emit(document, remote_text, as_json=flags.json_)


def check_place(flags: BuildFlags) -> None:
    """Refuse flags of ``--on`` without it.

    Raises:
        RequestError: naming the first.
    """
    for name in _ONLY:
        if getattr(flags, name) is not None:
            raise RequestError(f"--{name}: only with --on", remedy="For example: ./invoke build --on codebuild")


def _check(flags: BuildFlags) -> None:
    if flags.on not in PLACES:
        raise RequestError(
            f"--on {flags.on}: there is no such place. {did_you_mean(str(flags.on), PLACES)}",
            remedy="./invoke build --on codebuild",
        )
    defaults = type(flags)()
    for name, why in _HERE.items():
        if getattr(flags, name) != getattr(defaults, name):
            flag = {"tags": "tag"}.get(name, name).replace("_", "-")
            raise RequestError(f"--{flag}: not with --on {flags.on}; {why}", remedy=f"Leave --{flag} out.")
    if flags.follow is None:
        return
    from trainwright.core.text import fits
    from trainwright.pipeline.codebuild import BUILD_ID

    if not fits(BUILD_ID, flags.follow, limit=320):
        raise RequestError(
            f"--follow {flags.follow}: not the id of a build",
            remedy="For example: --follow trainwright-upload:0b9f1c1e-5a52-4a0e-8f0f-0c6f3f6f2d11",
        )
    if flags.project is not None:
        raise RequestError("--project: not with --follow, whose build has its project", remedy="Leave --project out.")


def _region(named: str | None, site: Site) -> str:
    """The region of ``--region``, or the site's.

    Raises:
        RequestError: none is known, or there is no such region.
    """
    from trainwright.push.references import registry_host

    region = named or site.aws.region
    if not region:
        raise RequestError(
            "no region is known", remedy="Add --region us-west-2, or set AWS_REGION, or [aws] region in the site file."
        )
    registry_host("0" * 12, region)
    return region


def _sent(service: CodeBuild, flags: BuildFlags, site: Site) -> tuple[Plan, Upload, str]:
    """Resolve the request here, send it, and start its build; plan, what was sent, and the build's id."""
    from trainwright.build.labels import revision
    from trainwright.pipeline.upload import write_upload
    from trainwright.plan.plan_lock import find_lock, refuse_unlocked
    from trainwright.site.site import Aws
    from trainwright.site.site import Site as Anywhere
    from trainwright.verbs.request import begin
    from trainwright.verbs.state import known, run
    from trainwright.verbs.way import upto

    if site.scan_fail_on is not None:
        raise RequestError(
            f"scan_fail_on = {site.scan_fail_on!r}: its database is here, so the gate cannot hold in CodeBuild",
            remedy="Build where the gate can look, or name a site file without it: --site FILE",
        )
    state = begin(flags, asks="" if flags.json_ else "build")
    # What this machine replaces would not be replaced there: the plan is the one of a machine without a site.
    elsewhere = Anywhere(aws=Aws(region=service.region))
    plan = known(run(upto("resolve"), replace(state, site=elsewhere)).plan)
    for notice in plan.notices:
        say(f"note: {notice}")
    if flags.locked:
        refuse_unlocked(plan, find_lock(plan, site), state.flags)
    project = service.project(flags.project)
    repository = _repository(flags.push, project)
    with tempfile.TemporaryDirectory(prefix="trainwright-") as scratch:
        upload = write_upload(Path(scratch) / "upload.zip", known(state.request), plan, site)
        say(f"sending {_told(upload)} to s3://{project.bucket} (project {project.name} in {project.region})")
        source = service.send(project, upload)
    options = [f"--{name.replace('_', '-')}" for name in _SWITCHES if getattr(flags, name)]
    options += ["--refresh", flags.refresh] if flags.refresh else []
    variables = {
        "PLAN": plan.id,
        "REQUEST": upload.words,
        "OPTIONS": " ".join(options),
        "TRAINWRIGHT_REVISION": revision(),
    }
    return plan, upload, service.start(project, source, variables | ({"REPOSITORY": repository} if repository else {}))


def _told(upload: Upload) -> str:
    """What is sent, in words; the files by name, as they leave this machine."""
    shown = [name.removeprefix("files/") for name in upload.sent[:10]]
    more = f" and {len(upload.sent) - len(shown)} more" if len(upload.sent) > len(shown) else ""
    files = f" with {', '.join(shown)}{more}" if shown else ", none of your files among it"
    return f"the program and the request{files} ({size(upload.size)})"


def _repository(named: str | None, project: UploadProject) -> str:
    """The repository of ``--push``, by its name; empty for that of the stack.

    Raises:
        RequestError: it is malformed, or in another registry than that of the project.
    """
    if named is None:
        from trainwright.plan.project import read_project

        if not project.variables.get("REPOSITORY"):
            raise RequestError(
                f"the project {project.name} has no variable REPOSITORY, so it does not know where to push",
                remedy="--push REPOSITORY names one that its role may push to; infra/upload.yaml makes one.",
            )
        own = read_project(Path.cwd())
        if own is not None and own.repository:
            say(
                f"note: the build pushes to {project.variables['REPOSITORY']}, not to the {own.repository} of "
                "trainwright.toml; ./invoke promote copies the image there, and --push names one that its role reaches"
            )
        return ""
    from trainwright.push.references import find_target
    from trainwright.site.site import Aws

    target = find_target(named, (), None, Aws(region=project.region))
    if target.regions != (project.region,) or target.account not in (None, project.account):
        raise RequestError(
            f"--push {named}: {project.name} pushes to the registry of {project.account} in {project.region}",
            remedy="./invoke promote copies the image to other accounts and regions afterwards.",
        )
    return target.repository


def _followed(
    service: CodeBuild, build: str, flags: BuildFlags, *, sent: int = 0, sent_bytes: int = 0
) -> RemoteBuildDocument:
    """Follow a build to its end, bring home its record, and check both."""
    from trainwright.pipeline.follow import follow, outcome
    from trainwright.pipeline.remote_record import document_of, failure_of, folder_of, unpack

    folder, region = folder_of(build), service.region
    show = None if flags.mode == "none" else lambda line: complain(f"  | {line}")
    state, lines = follow(service, build, folder, say=say, show=show)
    content = service.fetch(state.record) if all(state.record) else None
    if content is not None:
        unpack(content, folder, build)
    outcome(state, lines, region)
    if state.status != "SUCCEEDED":
        raise failure_of(state, folder, lines, region)
    return document_of(state, folder, region, sent=sent, sent_bytes=sent_bytes)


def remote_text(document: RemoteBuildDocument) -> str:
    """What was built where, what it pushed, and where its record is; the lines that use it."""
    from trainwright.verbs.push import push_text

    spent = duration(document.seconds, tenths=False)
    lines = [
        f"build   {document.build}  {spent} in CodeBuild, {document.region}",
        f"plan    {document.plan}",
        f"digest  {document.digest}",
        f"record  {document.record}",
        "",
        push_text(document.push),
    ]
    return "\n".join(lines)
