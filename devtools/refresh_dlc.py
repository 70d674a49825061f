"""Makes ``trainwright/dlc.json``: which AWS Deep Learning Container exists where.

Three kinds of sources make claims about images, the most exact first:

- ``documents``: AWS's own list of published images (``docs/src/data`` of the DLC repository) and SMP's release notes;
- ``facts``: its Dockerfiles and buildspecs;
- ``sagemaker-core``: the URIs that the SageMaker SDK composes, and the account of every region.

The first two are in no package. They come from YAML files that are given by path, and are kept in the JSON file
(``recorded``): a refresh without YAML carries them over and renews what packages say. Where two sources contradict each
other, the refresh stops and lists them, until a person has looked and written a correction here.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.utils import parse_wheel_filename

from devtools.dlc_claims import claims_of_core, claims_of_documents, claims_of_facts, snapshots_of, support_of
from devtools.dlc_contents import contents_of_facts, contents_text, filled, merged
from devtools.dlc_dockerfiles import Dockerfiles
from devtools.dlc_merge import accounts_of, merge
from devtools.refresh_instances import download
from trainwright.cli.output import say
from trainwright.core.data_files import read_yaml
from trainwright.core.errors import RequestError, SourceError
from trainwright.core.owned import write_atomically
from trainwright.core.records import Record, parse_record
from trainwright.sagemaker.dlc import (
    PATH,
    Claim,
    DlcCorrection,
    DlcProvenance,
    DlcTable,
    Recorded,
    Snapshot,
    read_table,
)
from trainwright.sagemaker.dlc_contents import PATH as CONTENTS_PATH
from trainwright.sagemaker.dlc_contents import load_contents
from trainwright.sagemaker.instances import PublishedFile

MAX_BYTES = 300_000
CONFIGS = "sagemaker/core/image_uri_config/"
CONFIG_FILES = (
    "huggingface-training-compiler.json",
    "huggingface.json",
    "pytorch-amzn2023.json",
    "pytorch-smp.json",
    "pytorch-training-compiler.json",
    "pytorch.json",
    "tensorflow.json",
)
PARTITIONS = "botocore/data/partitions.json"

CORRECTIONS = (
    DlcCorrection(
        source="facts",
        repository="pytorch-training",
        tag="1.13.0-gpu-py38-cu113-ubuntu20.04-sagemaker-lite",
        field="tag",
        says="1.13.0-gpu-py38-cu113-ubuntu20.04-sagemaker-lite",
        taken=None,
        why="an experimental nightly image, removed; no release of it is known",
    ),
    DlcCorrection(
        source="sagemaker-core",
        repository="huggingface-pytorch-training",
        tag="1.8.1-transformers4.10.2-gpu-py36-cu110-ubuntu18.04",
        field="cuda",
        says="cu110",
        taken="cu111",
        why="its buildspec (3b0dc6e0e362) says cu111, and so does the pytorch-training image it is from",
    ),
)


def table_text(table: DlcTable) -> str:
    """The content of ``dlc.json``: a line per record, so that a change reads well in a review."""
    recorded = {"claims": table.recorded.claims, "support": table.recorded.support}
    provenance = table.provenance
    known = {name: getattr(provenance, name) for name in ("accounts", "domains", "images", "corrections")}
    parts = [
        f'"schema": {json.dumps(table.schema)}',
        f'"provenance": {{"made_by": {json.dumps(provenance.made_by)},\n{_lists(known)}}}',
        f'"domains": {json.dumps(dict(table.domains))}',
        '"accounts": {\n' + _entries(table.accounts) + "\n}",
        '"region_sets": {\n' + _entries(table.region_sets) + "\n}",
        _lists({"images": table.images, "unpublished": table.unpublished}),
        f'"recorded": {{\n{_lists(recorded)}}}',
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _entries(mapping: Mapping[str, Any]) -> str:
    return ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in mapping.items())


def _lists(lists: Mapping[str, Sequence[Record]]) -> str:
    return ",\n".join(f"{json.dumps(key)}: [\n" + ",\n".join(map(_row, rows)) + "\n]" for key, rows in lists.items())


def _row(each: Record) -> str:
    # A claim leaves out what it does not say; an image says null, so that a reader sees what is not known.
    sparse = isinstance(each, Claim | Snapshot)
    return json.dumps({key: value for key, value in each.as_json().items() if not (sparse and value is None)})


def refresh_dlc(facts: Sequence[Path] = (), *, clone: Path | None = None, check: bool = False) -> None:
    """Make ``dlc.json`` anew from the newest packages and the facts.

    Args:
        facts: YAML files with facts of the DLC repository; none: those that the file has recorded.
        clone: of the DLC repository, whose Dockerfiles say what is in images that the facts do not have.
        check: change nothing: download the very versions that the file names, and fail where they, their checksums or
            what is made of them differ from it.

    Raises:
        SourceError: a package cannot be downloaded, or its checksum differs from the one in the file.
        RequestError: the sources contradict each other, facts are older than the recorded ones, or (``check``) the
            file is stale.
    """
    old = read_table(PATH) if PATH.is_file() else None
    snapshots, recorded = read_facts(facts, old)
    text = make_table(snapshots, recorded, old if check else None)
    current = PATH.read_text() if PATH.is_file() else ""
    rows = [row for path in facts for row in contents_of_facts(read_yaml(path))]
    if (rows or clone) and not check:
        rows = merged(rows, load_contents().images if CONTENTS_PATH.is_file() else ())
        if clone:
            rows = filled(rows, read_table(PATH).images, Dockerfiles(clone))
        write_atomically(CONTENTS_PATH, contents_text(rows))
    if text == current:
        say(f"{PATH.name}: fresh")
    elif check:
        change = list(difflib.unified_diff(current.splitlines(), text.splitlines(), lineterm="", n=0))
        raise RequestError(f"{PATH.name} is stale:\n" + "\n".join(change[:20]), remedy="./invoke refresh-dlc")
    else:
        write_atomically(PATH, text)
        say(f"{PATH.name}: written, {len(text) / 1000:.0f} kB")


def read_facts(paths: Sequence[Path], old: DlcTable | None) -> tuple[tuple[Snapshot, ...], Recorded]:
    """The facts in YAML files, or those that the old table has recorded where there is no file.

    Raises:
        RequestError: a file has other content, there is neither file nor table, or the files are older than the table.
    """
    known = () if old is None else tuple(each for each in old.provenance.images if isinstance(each, Snapshot))
    if not paths:
        if old is None:
            raise RequestError(f"there is no {PATH.name} to carry over", remedy="Give YAML files with the facts.")
        return known, old.recorded
    contents = [read_yaml(path) for path in paths]
    try:
        snapshots = tuple(each for content in contents for each in snapshots_of(content))
        recorded = Recorded(
            claims=tuple(claim for content in contents for claim in _claims(content)),
            support=tuple(each for content in contents for each in support_of(content)),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as strange:
        files = ", ".join(path.name for path in paths)
        raise RequestError(f"{files}: not the facts that were expected: {strange!r}") from strange
    newest, recorded_on = max(each.date for each in snapshots), max((each.date for each in known), default=None)
    if recorded_on is not None and newest < recorded_on:
        raise RequestError(f"the facts are of {newest}; {PATH.name} has recorded newer ones, of {recorded_on}")
    return snapshots, recorded


def _claims(content: Mapping[str, Any]) -> Iterable[Claim]:
    return [*claims_of_documents(content), *claims_of_facts(content)]


def make_table(snapshots: Sequence[Snapshot], recorded: Recorded, pinned: DlcTable | None) -> str:
    """Download and read the packages and return the file's content.

    Args:
        pinned: use the versions and checksums of this table; ``None``: the newest.
    """
    known = {each.package: each for each in (*pinned.provenance.accounts, *pinned.provenance.domains)} if pinned else {}
    core, configs = _read("sagemaker-core", [CONFIGS + name for name in CONFIG_FILES], known)
    botocore, partitions = _read("botocore", [PARTITIONS], known)
    listed = claims_of_core({name.removeprefix(CONFIGS): content for name, content in configs.items()})
    accounts = accounts_of(listed)
    images, unpublished, region_sets = merge(recorded.claims, listed, recorded.support, CORRECTIONS)
    sdk = core.replace(gives=("regions", "version", "python", "tag"))
    data = {
        "schema": "trainwright/dlc/1",
        "provenance": DlcProvenance(
            made_by="devtools/refresh_dlc.py",
            accounts=(core.replace(gives=("accounts", "region_sets")),),
            domains=(botocore.replace(gives=("domains",)),),
            images=(sdk, *snapshots),
            corrections=CORRECTIONS,
        ),
        "domains": domains_of(partitions[PARTITIONS], {region for each in accounts.values() for region in each}),
        "accounts": accounts,
        "region_sets": region_sets,
        "images": images,
        "unpublished": unpublished,
        "recorded": recorded,
    }
    text = table_text(parse_record(DlcTable, data, PATH.name))
    if len(text) >= MAX_BYTES:
        raise RequestError(f"{PATH.name} would have {len(text)} bytes; {MAX_BYTES} is the limit")
    say(f"{len(images)} images, {len(unpublished)} unpublished, {sum(each.gallery for each in images)} in the gallery")
    return text


def domains_of(partitions: bytes, regions: Iterable[str]) -> dict[str, str]:
    """Region → DNS suffix, from botocore's ``partitions.json``.

    Raises:
        RequestError: a region is in none of its partitions.
    """
    known = {
        region: partition["outputs"]["dnsSuffix"]
        for partition in json.loads(partitions)["partitions"]
        for region in partition["regions"]
    }
    missing = sorted(set(regions) - set(known))
    if missing:
        raise RequestError(f"botocore has no partition for {', '.join(missing)}", faults=missing)
    return {region: known[region] for region in sorted(regions)}


def _read(
    package: str, members: Sequence[str], known: Mapping[str, PublishedFile]
) -> tuple[PublishedFile, dict[str, bytes]]:
    """A wheel's provenance and files; in the version, and with the checksum, of ``known`` where that has it."""
    pin = known.get(package)
    with tempfile.TemporaryDirectory(prefix="trainwright-") as folder:
        wheel = download(package, pin.version if pin else None, Path(folder))
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if pin is not None and digest != pin.sha256:
            raise SourceError(f"{wheel.name}: the sha256 is {digest}, not {pin.sha256}")
        say(f"{package}: {wheel.name}")
        with zipfile.ZipFile(wheel) as archive:
            absent = set(members) - set(archive.namelist())
            if absent:
                raise SourceError(f"{wheel.name} has no {min(absent)} any more", remedy="Look where its content went.")
            contents = {member: archive.read(member) for member in members}
    member = members[0] if len(members) == 1 else CONFIGS + "*.json"
    version = str(parse_wheel_filename(wheel.name)[1])
    return PublishedFile(
        package=package, version=version, file=wheel.name, sha256=digest, member=member, gives=()
    ), contents
