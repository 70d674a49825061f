"""What comes back from a build in CodeBuild: its record in ``.trainwright/remote/<build>/``, and what it says."""

from __future__ import annotations

import json
import re
import zipfile
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from trainwright.build.store import BuildRecord
from trainwright.core import errors
from trainwright.core.data_files import parse_json
from trainwright.core.errors import BuildFailed, Failure, ProofFailed, RegistryRefused
from trainwright.core.paths import state_dir
from trainwright.core.records import Document, MisfitError, read_record
from trainwright.core.text import hidden
from trainwright.pipeline.codebuild import BuildState
from trainwright.pipeline.follow import again
from trainwright.push.documents import PushDocument, PushedImage

# What the steps of templates/pipeline/upload.yml.j2 print, in their order.
STEPS = ("plan", "build", "smoke", "push")
_MOST_FILES, _MOST_BYTES = 10_000, 1_000_000_000
_STATUS = re.compile(r"exit status (\d{1,3})\b")  # in the context of a phase that a command has failed
# The failures that the program can end with there. Not a conflict, whose reasons would have come out here.
_KINDS = {
    each.exit_code: each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, Failure) and each not in (Failure, errors.Conflict)
}


class RemotePhase(Document):
    """A phase of a build in CodeBuild."""

    name: str
    status: str
    seconds: int


class RemoteBuildDocument(Document):
    """``build --on codebuild --json``: a build that ended well, what it pushed, and where its record is here.

    ``sent`` counts the user's files that were sent, ``sent_bytes`` the whole upload; both are 0 with ``--follow``.
    ``uri`` names the image by digest; ``tags`` are those in the registry. ``record`` is the folder of the record, with
    ``build.log``.
    """

    schema: Literal["trainwright/remote-build/1"]
    build: str
    project: str
    region: str
    plan: str
    image_id: str
    uri: str
    digest: str
    tags: tuple[str, ...]
    seconds: float
    phases: tuple[RemotePhase, ...]
    sent: int
    sent_bytes: int
    record: str
    push: PushDocument


def folder_of(build: str) -> Path:
    """The folder of a build's record; its name is the part of the build's id that is unique."""
    return state_dir() / "remote" / build.rpartition(":")[2]


def unpack(content: bytes, folder: Path, build: str) -> None:
    """Put the files of a ``record.zip`` into a folder.

    Raises:
        RegistryRefused: the content is not a zip file, or holds what no record has.
    """
    try:
        with zipfile.ZipFile(BytesIO(content)) as packed:
            rows = [row for row in packed.infolist() if not row.is_dir()]
            if len(rows) > _MOST_FILES or sum(row.file_size for row in rows) > _MOST_BYTES:
                raise zipfile.BadZipFile("more than any record")
            if wrong := next((row.filename for row in rows if not _fits(row.filename)), ""):
                raise zipfile.BadZipFile(f"the name {wrong!r}")
            for row in rows:
                path = folder / row.filename
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(packed.read(row))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as wrong:
        raise RegistryRefused(
            f"{build}: what came back is not the record of a build: {wrong}",
            remedy="The image may be there: aws ecr describe-images --repository-name NAME shows what was pushed.",
            build=build,
        ) from None


def _fits(name: str) -> bool:
    path = PurePosixPath(name)
    return (
        bool(path.parts) and not path.is_absolute() and ".." not in path.parts and not hidden(name) and "\\" not in name
    )


def failure_of(state: BuildState, folder: Path, lines: list[str], region: str) -> Failure:
    """The failure of a build of which a phase has failed: the phase, what the program said in it, its exit code."""
    document = _failed_document(folder)
    failed = next((phase for phase in state.phases if phase.status not in ("", "SUCCEEDED")), None)
    says = failed.says if failed is not None else ""
    found = _STATUS.search(says)
    code = int(document.get("exit_code") or (found[1] if found else 0))
    kind = _KINDS.get(code, BuildFailed)
    name = failed.name if failed is not None else "(none)"
    head = f"the build {state.id} failed in its phase {name}" + (f", exit code {code}" if code else "")
    last = [str(line) for line in document.get("last_lines") or lines]
    return kind(
        "\n".join([head, *([f"  {says}"] if says else []), *([f"  {document['message']}"] if document else [])]),
        remedy="\n".join(filter(None, [str(document.get("remedy", "")), f"The record and the log: {folder}"])),
        build=state.id,
        region=region,
        phase=name,
        inside=document or None,
        last_lines=last,
        record=str(folder),
    )


def _failed_document(folder: Path) -> dict[str, Any]:
    """What the program said of its failure, if it came back."""
    for step in STEPS:
        data = _json(folder / f"{step}.json")
        if isinstance(data, dict) and isinstance(data.get("exit_code"), int) and data.get("message"):
            return data
    return {}


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text()) if path.is_file() else None
    except (ValueError, RecursionError):
        return None


def document_of(state: BuildState, folder: Path, region: str, *, sent: int, sent_bytes: int) -> RemoteBuildDocument:
    """The document of a build that ended well: its record is of the plan that was asked for, and of what was pushed.

    Args:
        state: as the build ended.
        folder: of its record.
        region: of the build.
        sent, sent_bytes: how many files of the user's, and how much in all.

    Raises:
        ProofFailed: the record is missing, is of another plan, or disagrees with what the build says it pushed.
    """
    pushed = _pushed(folder, state.id, region)
    image = pushed.images[0]
    record = _record(folder, image, state.id, region)
    said = state.exported.get("IMAGE_DIGEST", "")
    pairs = [
        ("plan", state.variables.get("PLAN", ""), record.plan.id),
        ("plan of the pushed image", record.plan.id, image.plan),
        ("digest", said, image.digest),
        ("smoke tests that failed", "0", str((record.smoke or {}).get("failed", "none were run"))),
    ]
    wrong = [f"  {what}: {found}, expected {wanted}" for what, wanted, found in pairs if wanted != found]
    if wrong:
        raise ProofFailed(
            "\n".join([f"{state.id}: what came back is not what was asked for", *wrong]),
            remedy=f"The record and the log: {folder}. If a file of yours changed while it was sent, build again.",
            build=state.id,
            record=str(folder),
        )
    return RemoteBuildDocument(
        schema="trainwright/remote-build/1",
        build=state.id,
        project=state.id.partition(":")[0],
        region=region,
        plan=record.plan.id,
        image_id=record.image_id,
        uri=image.uri,
        digest=image.digest,
        tags=tuple(each.tag for each in image.tags),
        seconds=state.seconds,
        phases=tuple(RemotePhase(name=p.name, status=p.status, seconds=p.seconds) for p in state.phases),
        sent=sent,
        sent_bytes=sent_bytes,
        record=str(folder),
        push=pushed,
    )


def _pushed(folder: Path, build: str, region: str) -> PushDocument:
    try:
        found = read_record(PushDocument, parse_json((folder / "push.json").read_text(), "push.json"))
    except (OSError, MisfitError, errors.RequestError) as wrong:
        raise _no_record(build, region, f"push.json: {wrong}") from None
    if len(found.images) != 1:
        raise _no_record(build, region, f"push.json: {len(found.images)} images")
    return found


def _record(folder: Path, image: PushedImage, build: str, region: str) -> BuildRecord:
    path = folder / "images" / image.image_id.removeprefix("sha256:")[:16] / "record.json"
    try:
        return read_record(BuildRecord, parse_json(path.read_text(), path.name))
    except (OSError, MisfitError, errors.RequestError) as wrong:
        raise _no_record(build, region, f"{path.name}: {wrong}") from None


def _no_record(build: str, region: str, why: str) -> Failure:
    return ProofFailed(
        f"{build}: the build ended well, but its record did not come back ({why})",
        remedy=f"{again(build, region)}   # fetches it again",
        build=build,
    )
