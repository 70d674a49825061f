"""How the table of AWS Deep Learning Containers is made: merging claims, reading the sources. No network."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from devtools import dlc_claims, dlc_merge, refresh_dlc
from trainwright.core.errors import RequestError, SourceError
from trainwright.core.runner import Completed
from trainwright.sagemaker.dlc import (
    Claim,
    DlcCorrection,
    DlcTable,
    Recorded,
    Snapshot,
    Support,
    load_dlc,
    read_table,
)
from trainwright.sagemaker.dlc_lookup import dlc_image

TABLE = load_dlc()
WEST = "us-west-2"


# --- how the table is made ------------------------------------------------------------------------------------------


def claim(source: str, tag: str | None, **facts: Any) -> Claim:
    said = dlc_claims.read_tag(tag) if tag else {}
    return Claim(
        **{"source": source, "repository": "pytorch-training", "tag": tag, "evidence": source, **said, **facts}
    )


def listed(tag: str, accounts: Mapping[str, str] | None = None, **facts: Any) -> dlc_claims.Listed:
    return dlc_claims.Listed(claim("sagemaker-core", tag, **facts), accounts or {WEST: "1" * 12})


def dated(version: str) -> Support:
    return Support(
        repository="pytorch-training",
        version=version,
        released=date(2020, 1, 1),
        end_of_patch=date(2021, 1, 1),
        evidence="policy",
    )


LONG = "1.0.0-gpu-py38-cu113-ubuntu20.04-sagemaker"


def test_sources_are_folded_into_one_image() -> None:
    images, unpublished, sets = dlc_merge.merge([claim("facts", LONG)], [listed("1.0.0-gpu-py38")], [dated("1.0")])
    assert not unpublished
    assert sets == {"r1": (WEST,)}
    (image,) = images
    assert (image.tag, image.cuda, image.os, image.regions) == (LONG, "cu113", "ubuntu20.04", "r1")
    assert image.end_of_patch == date(2021, 1, 1)
    assert image.evidence == ("facts", "sagemaker-core", "policy")


def test_the_dates_of_1_1_are_not_those_of_1_10() -> None:
    images, _, _ = dlc_merge.merge([claim("facts", "1.10.0-gpu-py38-cu113")], [], [dated("1.1")])
    assert images[0].end_of_patch is None


def test_a_short_tag_never_stands_for_one_of_two_cuda_versions() -> None:
    facts = [claim("facts", LONG), claim("facts", None, version="1.0.0", device="gpu", python="py38", cuda="cu115")]
    images, unpublished, _ = dlc_merge.merge(facts, [listed("1.0.0-gpu-py38")], [])
    assert [each.tag for each in images] == [LONG]
    assert [(each.cuda, each.evidence) for each in unpublished] == [("cu115", ("facts",))]


def test_a_minor_version_is_the_only_full_one() -> None:
    facts = [claim("documents", "2.12.1-cu130-amzn2023-sagemaker", python="py312")]
    images, _, _ = dlc_merge.merge(facts, [listed("2.12-cu130-amzn2023-sagemaker")], [])
    assert [(each.version, each.python, each.regions) for each in images] == [("2.12.1", "py312", "r1")]


@pytest.mark.parametrize(
    ("claims", "fault"),
    [
        (
            [("facts", LONG, {}), ("documents", LONG.replace("cu113", "cu117"), {})],
            r"cuda is cu117 \(documents\), cu113",
        ),
        ([("facts", LONG, {}), ("documents", LONG.replace("py38", "py39"), {})], r"python is py39 \(documents\), py38"),
        ([("facts", LONG, {}), ("documents", LONG.replace("20.04", "22.04"), {})], r"os is ubuntu22\.04 \(documents\)"),
        (
            [("facts", LONG, {"gallery": False}), ("documents", LONG, {"gallery": True})],
            r"gallery is True \(documents\), False \(facts\)",
        ),
    ],
)
def test_a_contradiction_stops_the_refresh(claims: list[tuple[str, str, dict[str, Any]]], fault: str) -> None:
    with pytest.raises(RequestError, match=fault):
        dlc_merge.merge([claim(source, tag, **facts) for source, tag, facts in claims], [], [])


def test_dates_that_contradict_the_policy() -> None:
    day = date(2021, 1, 1)
    policy = Support(repository="pytorch-training", version="1.0", released=day, end_of_patch=day, evidence="policy")
    with pytest.raises(RequestError, match="end_of_patch is 2022-01-01, by the policy 2021-01-01"):
        dlc_merge.merge([claim("documents", LONG, released=day, end_of_patch=date(2022, 1, 1))], [], [policy])


def correction(**changes: Any) -> DlcCorrection:
    said = {"source": "sagemaker-core", "repository": "pytorch-training", "tag": LONG.replace("cu113", "cu110")}
    return DlcCorrection(**{**said, "field": "cuda", "says": "cu110", "taken": "cu113", "why": "seen", **changes})


def test_a_correction_settles_a_contradiction_and_keeps_the_regions() -> None:
    claims, sdk = [claim("facts", LONG)], [listed(LONG.replace("cu113", "cu110"))]
    with pytest.raises(RequestError, match="cuda is cu113"):
        dlc_merge.merge(claims, sdk, [])
    images, _, _ = dlc_merge.merge(claims, sdk, [], [correction()])
    assert [(each.tag, each.regions) for each in images] == [(LONG, "r1")]


def test_a_tag_can_be_taken_away() -> None:
    away = correction(source="facts", tag=LONG, field="tag", says=LONG, taken=None)
    images, unpublished, _ = dlc_merge.merge([claim("facts", LONG)], [], [], [away])
    assert not images
    assert [each.cuda for each in unpublished] == ["cu113"]


def test_a_correction_that_is_out_of_date() -> None:
    with pytest.raises(RequestError, match="nothing to correct") as caught:
        dlc_merge.merge([claim("facts", LONG)], [], [], [correction()])
    assert len(caught.value.details["faults"]) == 1


def test_two_accounts_in_one_region() -> None:
    sdk = [listed("1.0.0-gpu-py38"), listed("1.1.0-gpu-py38", {WEST: "2" * 12})]
    with pytest.raises(RequestError, match=r"us-west-2 has account 2+, other images 1+"):
        dlc_merge.accounts_of(sdk)
    assert dlc_merge.accounts_of(sdk[:1]) == {"dlc": {WEST: "1" * 12}}


# --- what the sources say -------------------------------------------------------------------------------------------


def core(**files: Any) -> list[dlc_claims.Listed]:
    return dlc_claims.claims_of_core({name: json.dumps(content).encode() for name, content in files.items()})


def entry(**more: Any) -> dict[str, Any]:
    return {"registries": {WEST: "1" * 12}, "repository": "pytorch-training", "py_versions": ["py3", "py36"], **more}


def test_what_the_sdk_lists() -> None:
    versions = {"1.6.0": entry(), "1.0.0": entry(repository="sagemaker-pytorch")}
    found = core(pytorch={"training": {"processors": ["cpu", "gpu"], "versions": versions}})
    assert [each.claim.tag for each in found] == ["1.6.0-cpu-py36", "1.6.0-gpu-py36"]


def test_what_the_sdk_lists_of_hugging_face() -> None:
    images = {
        "version_aliases": {"pytorch1.6": "pytorch1.6.0"},
        "pytorch1.6.0": entry(repository="huggingface-pytorch-training", py_versions=["py36"]),
        "pytorch1.9.0": entry(
            repository="huggingface-pytorch-training",
            py_versions=["py38"],
            container_version={"gpu": "cu111-ubuntu20.04"},
        ),
    }
    found = core(huggingface={"training": {"processors": ["gpu"], "versions": {"4.5.0": images}}})
    assert [each.claim.tag for each in found] == [
        "1.6.0-transformers4.5.0-gpu-py36-cu110-ubuntu18.04",
        "1.9.0-transformers4.5.0-gpu-py38-cu111-ubuntu20.04",
    ]


def test_the_sdk_counts_smp_by_its_own_versions() -> None:
    smp = entry(repository="smdistributed-modelparallel", py_versions=["py311"])
    config = {
        "processors": ["gpu"],
        "version_aliases": {"2.0": "2.0.1", "2.4.1": "2.7.0"},
        "versions": {"2.0.1": smp, "2.2.0": smp, "2.7.0": smp},
    }
    found = core(smp={"training": config})
    assert [(each.claim.version, each.claim.tag) for each in found] == [("2.0.1", None), ("2.4.1", None)]


def facts_entry(**more: Any) -> dict[str, Any]:
    source = {"branch": "master", "commit": "abc123", "path": "Dockerfile", "date": "2022-03-04"}
    return {"framework": "pytorch", "framework_version": "1.0.0", "source": source, "image_tag": LONG, **more}


def test_what_the_facts_say() -> None:
    entries = [facts_entry(python="3.8.10", cuda_tag="cu113", os="ubuntu20.04"), facts_entry(image_tag=None)]
    (found,) = dlc_claims.claims_of_facts({"pytorch_sagemaker_gpu": entries})
    assert (found.python, found.cuda, found.tag) == ("py38", "cu113", LONG)
    with pytest.raises(RequestError, match="has cuda 'cu117' beside it"):
        dlc_claims.claims_of_facts({"pytorch_sagemaker_gpu": [facts_entry(cuda_tag="cu117")]})
    with pytest.raises(RequestError, match="not the tag of a training image"):
        dlc_claims.read_tag("latest")


def test_facts_are_taken_once_and_carried_over(tmp_path: Path) -> None:
    file = tmp_path / "facts.yml"
    row = "accelerator: gpu, python: py38, cuda: cu113, os: ubuntu20.04, public_registry: true"
    file.write_text(
        'meta: {snapshot: {repository: "dlc", branch_main: {commit: abc, date: "2026-01-02"}}}\n'
        f"published_images: [{{source: {{path: data/pytorch-training/1.yml, commit: abc}}, {row}, tags: [{LONG}]}}]\n"
    )
    snapshots, recorded = refresh_dlc.read_facts([file], None)
    assert [(each.branch, each.date) for each in snapshots] == [("main", date(2026, 1, 2))]
    assert [(each.repository, each.gallery) for each in recorded.claims] == [("pytorch-training", True)]
    with pytest.raises(RequestError, match="recorded newer ones"):
        refresh_dlc.read_facts([file], TABLE)
    assert refresh_dlc.read_facts([], TABLE)[1] == TABLE.recorded
    with pytest.raises(RequestError, match="carry over"):
        refresh_dlc.read_facts([], None)
    file.write_text("published_images: []\n")
    with pytest.raises(RequestError, match=r"meta\.snapshot"):
        refresh_dlc.read_facts([file], None)


def test_a_region_without_partition() -> None:
    partitions = json.dumps({"partitions": [{"outputs": {"dnsSuffix": "a.example"}, "regions": {"r-1": {}}}]}).encode()
    assert refresh_dlc.domains_of(partitions, ["r-1"]) == {"r-1": "a.example"}
    with pytest.raises(RequestError, match="no partition for r-2"):
        refresh_dlc.domains_of(partitions, ["r-1", "r-2"])


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A package index of two made-up wheels, behind pip's command line."""
    config = {"processors": ["gpu"], "versions": {"1.0.0": entry(py_versions=["py38"])}}
    nothing = json.dumps({"processors": [], "versions": {}})
    configs = {f"{refresh_dlc.CONFIGS}{name}": nothing for name in refresh_dlc.CONFIG_FILES}
    configs[f"{refresh_dlc.CONFIGS}pytorch.json"] = json.dumps({"training": config})
    partitions = {"partitions": [{"outputs": {"dnsSuffix": "amazonaws.com"}, "regions": {WEST: {}}}]}
    wheels = {
        "sagemaker_core-9.0-py3-none-any.whl": wheel(configs),
        "botocore-9.0-py3-none-any.whl": wheel({refresh_dlc.PARTITIONS: json.dumps(partitions)}),
    }

    def pip(argv: Sequence[str], **_: Any) -> Completed:
        assert "--no-deps" in argv
        package = argv[-1].partition("==")[0].replace("-", "_")
        name = next(each for each in wheels if each.startswith(package))
        (Path(argv[argv.index("-d") + 1]) / name).write_bytes(wheels[name])
        return Completed(tuple(argv), 0, "", "", 0.0)

    monkeypatch.setattr("devtools.refresh_instances.run", pip)
    monkeypatch.setattr(refresh_dlc, "CORRECTIONS", ())
    return wheels


def wheel(files: Mapping[str, str]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return held.getvalue()


def made(pinned: DlcTable | None = None) -> str:
    recorded = Recorded(claims=(claim("facts", LONG),), support=())
    return refresh_dlc.make_table([Snapshot(repository="dlc", date=date(2026, 1, 2))], recorded, pinned)


def test_a_refresh_and_its_check(index: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "dlc.json"
    path.write_text(made())
    monkeypatch.setattr(refresh_dlc, "PATH", path)
    image = dlc_image(framework="pytorch", version="1.0.0", region=WEST, table=read_table(path))
    assert image.uri == f"{'1' * 12}.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:{LONG}"
    refresh_dlc.refresh_dlc(check=True)
    path.write_text(path.read_text().replace('"released": null', '"released": "2020-01-01"'))
    with pytest.raises(RequestError, match="is stale"):
        refresh_dlc.refresh_dlc(check=True)
    refresh_dlc.refresh_dlc()
    refresh_dlc.refresh_dlc(check=True)


def test_a_package_with_another_checksum(index: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "dlc.json"
    path.write_text(made())
    pinned = read_table(path)
    index["botocore-9.0-py3-none-any.whl"] = wheel({refresh_dlc.PARTITIONS: "{}"})
    with pytest.raises(SourceError, match="the sha256 is"):
        made(pinned)


def test_a_package_that_lost_a_file(index: dict[str, bytes]) -> None:
    index["botocore-9.0-py3-none-any.whl"] = wheel({"other": ""})
    with pytest.raises(SourceError, match=r"has no botocore/data/partitions\.json any more"):
        made()


def test_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "dlc.json"
    with pytest.raises(RequestError, match="no such file"):
        read_table(path)
    for content, fault in (("{", "dlc.json:1: not readable"), ("[]", "dlc.json"), ('{"schema": "other"}', "schema")):
        path.write_text(content)
        with pytest.raises(RequestError, match=fault):
            read_table(path)
