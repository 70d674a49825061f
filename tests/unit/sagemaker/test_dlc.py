"""AWS Deep Learning Containers: the shipped table, looking images up. No network."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devtools import dlc_claims, refresh_dlc
from trainwright.core.errors import RequestError
from trainwright.sagemaker.dlc import (
    FRAMEWORKS,
    PATH,
    Snapshot,
    load_dlc,
    registry_of,
)
from trainwright.sagemaker.dlc_lookup import dlc_image, neighbours

TABLE = load_dlc()
WEST = "us-west-2"
# ECR's API: repositoryName's pattern; a tag's grammar is that of the OCI distribution specification. CreateTrainingJob
# takes up to 255 characters of TrainingImage.
PRIVATE = re.compile(
    r"\d{12}\.dkr\.ecr\.[a-z]{2,4}(-[a-z]+)+-\d\."
    r"(amazonaws\.com|amazonaws\.com\.cn|amazonaws\.eu|c2s\.ic\.gov|sc2s\.sgov\.gov|cloud\.adc-e\.uk|csp\.hci\.ic\.gov)/"
    r"(?:[a-z0-9]+(?:[._-][a-z0-9]+)*/)*[a-z0-9]+(?:[._-][a-z0-9]+)*:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
)


# --- the shipped table ----------------------------------------------------------------------------------------------


def test_the_seed_set_has_its_documented_tag() -> None:
    image = dlc_image(framework="pytorch", version="1.10.2", cuda="cu113", python="py38", region=WEST)
    assert image.uri == (
        "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:1.10.2-gpu-py38-cu113-ubuntu20.04-sagemaker"
    )
    assert (image.account, image.os, image.cuda, image.python) == ("763104351884", "ubuntu20.04", "cu113", "py38")
    assert any("66c35afb746c" in each for each in image.evidence)


@pytest.mark.parametrize("region", ["cn-north-1", "cn-northwest-1"])
def test_china_has_its_own_domain_and_account(region: str) -> None:
    image = dlc_image(framework="pytorch", version="2.5.1", cuda="cu124", region=region)
    assert image.uri.startswith(f"727897471807.dkr.ecr.{region}.amazonaws.com.cn/pytorch-training:2.5.1-gpu-")


@pytest.mark.parametrize(
    ("framework", "version", "cuda", "uri"),
    [
        ("pytorch", "2.8", "12.9", "pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker"),
        ("pytorch", "2.8", "cpu", "pytorch-training:2.8.0-cpu-py312-ubuntu22.04-sagemaker"),
        ("pytorch", "2.12", None, "pytorch:2.12.1-cu130-amzn2023-sagemaker"),
        ("pytorch", "1.10", "11.3", "pytorch-training:1.10.2-gpu-py38-cu113-ubuntu20.04-sagemaker"),  # not 1.10.0
        ("pytorch", "1.7.1", "cu110", "pytorch-training:1.7.1-gpu-py36"),
        ("tensorflow", "2.16.2", "cpu", "tensorflow-training:2.16.2-cpu-py310"),
        ("tensorflow", "2.18", "cu125", "tensorflow-training:2.18.0-gpu-py310-cu125-ubuntu22.04-sagemaker"),
        ("pytorch-trcomp", "1.13.1", "cu117", "pytorch-trcomp-training:1.13.1-gpu-py39-cu117-ubuntu20.04-sagemaker"),
        ("pytorch-smp", "2.4.1", "cu121", "smdistributed-modelparallel:2.4.1-gpu-py311-cu121"),
        (
            "huggingface-pytorch",
            "2.1.0",
            None,
            "huggingface-pytorch-training:2.1.0-transformers4.36.0-gpu-py310-cu121-ubuntu20.04",
        ),
        (
            "huggingface-tensorflow-trcomp",
            "2.6.3",
            None,
            "huggingface-tensorflow-trcomp-training:2.6.3-transformers4.17.0-gpu-py38-cu112-ubuntu20.04",
        ),
    ],
)
def test_known_images(framework: str, version: str, cuda: str | None, uri: str) -> None:
    image = dlc_image(framework=framework, version=version, cuda=cuda, region=WEST)
    account = "658645717510" if framework == "pytorch-smp" else "763104351884"
    assert image.uri == f"{account}.dkr.ecr.us-west-2.amazonaws.com/{uri}"


def test_every_row_is_found_and_can_be_pulled_wherever_it_is_listed() -> None:
    for row in TABLE.images:
        accounts = TABLE.accounts[registry_of(row.repository)]
        for region in accounts if row.regions is None else TABLE.region_sets[row.regions]:
            image = dlc_image(
                framework=row.framework,
                version=row.version,
                cuda="cpu" if row.device == "cpu" else row.cuda,
                python=row.python,
                transformers=row.transformers,
                region=region,
            )
            assert image.tag == row.tag
            assert PRIVATE.fullmatch(image.uri), image.uri
            assert len(image.uri) <= 255
            assert image.evidence


def test_no_tag_says_otherwise_than_its_row() -> None:
    for row in TABLE.images:
        said = dlc_claims.read_tag(row.tag)
        for field, value in said.items():
            known = getattr(row, field)
            assert known == value or f"{known}.".startswith(f"{value}."), f"{row.tag}: {field} {known}"


def test_all_is_there() -> None:
    assert {each.framework for each in TABLE.images} == set(FRAMEWORKS.values())
    assert len(TABLE.images) == len({(each.repository, each.tag) for each in TABLE.images}) == 232
    assert sum(each.gallery for each in TABLE.images) == 22
    assert len(TABLE.domains) == 45
    for registry, accounts in TABLE.accounts.items():
        assert set(accounts) <= set(TABLE.domains), registry
        assert all(re.fullmatch(r"\d{12}", account) for account in accounts.values())
    for row in TABLE.images:
        assert row.cuda is None or row.device == "gpu"
        assert (row.released is None) == (row.end_of_patch is None)


def test_the_file_is_small_and_written_by_the_refresh() -> None:
    assert PATH.stat().st_size < refresh_dlc.MAX_BYTES
    assert refresh_dlc.table_text(TABLE) == PATH.read_text()


def test_provenance() -> None:
    provenance = TABLE.provenance
    assert [each.package for each in provenance.accounts] == ["sagemaker-core"]
    assert [each.package for each in provenance.domains] == ["botocore"]
    states = [each for each in provenance.images if isinstance(each, Snapshot)]
    assert {each.branch for each in states if each.commit} == {"master", "main", None}  # None: of all releases
    assert all(each.repository.endswith("aws/deep-learning-containers") for each in states)


# --- looking an image up --------------------------------------------------------------------------------------------


def test_the_gallery_needs_no_account() -> None:
    image = dlc_image(framework="pytorch", version="2.12.1", cuda="cu130", gallery=True)
    assert image.uri == "public.ecr.aws/deep-learning-containers/pytorch:2.12.1-cu130-amzn2023-sagemaker"
    assert image.account is image.region is None


def test_what_is_not_in_the_gallery() -> None:
    with pytest.raises(RequestError, match=r"public gallery.*The nearest there: 2\.6\.0") as caught:
        dlc_image(framework="pytorch", version="2.5.1", gallery=True)
    assert caught.value.details["nearest"] == ["2.6.0"]
    with pytest.raises(RequestError, match="has no pytorch-smp image"):
        dlc_image(framework="pytorch-smp", version="2.5.1", gallery=True)
    with pytest.raises(RequestError, match="no regions"):
        dlc_image(framework="pytorch", version="2.12.1", gallery=True, region=WEST)


@pytest.mark.parametrize(
    ("version", "near"),
    [("1.10.3", ["1.10.2", "1.11.0"]), ("0.4", ["1.2.0"]), ("9", ["2.14.0"]), ("2.5.0", ["2.4.0", "2.5.1"])],
)
def test_an_unknown_version_names_its_neighbours(version: str, near: list[str]) -> None:
    with pytest.raises(RequestError, match=re.escape(f"The nearest: {', '.join(near)}.")) as caught:
        dlc_image(framework="pytorch", version=version, region=WEST)
    assert caught.value.details["nearest"] == near


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ({"framework": "pytroch"}, "pytorch"),
        ({"region": "us-west-22"}, "us-west-2"),
        ({"cuda": "cu124"}, "cu129"),
        ({"python": "3.11"}, "py312"),
        ({"transformers": "4.1"}, ""),
    ],
)
def test_an_unknown_word_names_what_is_near(wrong: dict[str, str], near: str) -> None:
    asked: dict[str, Any] = {"framework": "pytorch", "version": "2.8.0", "region": WEST, **wrong}
    with pytest.raises(RequestError) as caught:
        dlc_image(**asked)
    assert near in [*caught.value.details["nearest"], ""]
    assert near in caught.value.message


def test_a_region_that_lacks_this_very_image() -> None:
    with pytest.raises(RequestError, match=r"smdistributed-modelparallel:.* is not published in cn-north-1"):
        dlc_image(framework="pytorch-smp", version="2.5.1", region="cn-north-1")
    with pytest.raises(RequestError, match="region is missing"):
        dlc_image(framework="pytorch", version="2.8.0")


def test_cuda_that_no_source_knows() -> None:
    with pytest.raises(
        RequestError,
        match=r"1\.15\.2 is published as 1\.15\.2-gpu-py2 and 1\.15\.2-gpu-py37, but its CUDA version is unknown",
    ):
        dlc_image(framework="tensorflow", version="1.15.2", cuda="cu100", python="py37", region=WEST)
    assert dlc_image(framework="tensorflow", version="1.15.2", python="py37", region=WEST).cuda is None


# What AWS's release_images.yml or release_images_training.yml releases, at v1.2-pt-sagemaker-1.12.0-tr-py38,
# v1.2-pt-sagemaker-2.0.0-tr-py310, v1.0-tf-2.5.0-tr-py37, v1.0-tf-sagemaker-2.11.0-tr-py39, ea263ef9 and 7fa9fadb.
@pytest.mark.parametrize(
    ("framework", "version", "cuda", "os"),
    [
        ("pytorch", "1.12.0", "cu113", "ubuntu20.04"),
        ("pytorch", "2.0.0", "cu118", "ubuntu20.04"),
        ("tensorflow", "2.5.0", "cu112", "ubuntu18.04"),
        ("tensorflow", "2.11.0", "cu112", "ubuntu20.04"),
        ("tensorflow", "2.2.1", "cu101", "ubuntu18.04"),
        ("tensorflow", "2.2.1", "cu102", "ubuntu18.04"),
    ],
)
def test_cuda_of_a_release(framework: str, version: str, cuda: str, os: str) -> None:
    image = dlc_image(framework=framework, version=version, cuda=cuda, region=WEST)
    assert (image.cuda, image.os) == (cuda, os)


def test_a_dockerfile_that_was_never_published() -> None:
    with pytest.raises(RequestError, match=r"has a Dockerfile for pytorch 1\.11\.0 with cu115.*@1bd45be77856.*cu113"):
        dlc_image(framework="pytorch", version="1.11.0", cuda="cu115", region=WEST)


@pytest.mark.parametrize(
    ("framework", "version", "differ"),
    [
        ("pytorch", "2.0.1", r"cuda \(cu118, cu121\)"),
        ("tensorflow", "2.3.1", r"cuda \(cu102, cu110\)"),
        ("huggingface-pytorch", "2.3.0", r"transformers \(4\.46\.1, 4\.48\.0\)"),
    ],
)
def test_what_is_ambiguous_is_asked(framework: str, version: str, differ: str) -> None:
    with pytest.raises(RequestError, match=f"2 images of {framework} {version} fit; they differ in {differ}"):
        dlc_image(framework=framework, version=version, region=WEST)


def test_words_that_cannot_be_read() -> None:
    wrongs: list[dict[str, Any]] = [{"cuda": "yes"}, {"python": "snake"}]
    for wrong in wrongs:
        with pytest.raises(RequestError, match="is invalid"):
            dlc_image(framework="pytorch", version="2.8.0", region=WEST, **wrong)


def test_the_status_follows_the_day() -> None:
    def status(version: str, day: date) -> str:
        return dlc_image(framework="pytorch", version=version, region=WEST, today=day).status

    assert status("2.8.0", date(2026, 8, 6)) == "supported"
    assert status("2.8.0", date(2026, 8, 7)) == "end-of-support"
    assert status("1.10.2", date(2022, 1, 1)) == "unknown"


def test_an_image_whose_regions_nobody_lists_says_so() -> None:
    image = dlc_image(framework="tensorflow", version="2.11.1", region=WEST)
    assert "the regions of this image are unknown" in image.evidence[-1]
    assert (
        "the regions of this image are unknown"
        not in dlc_image(framework="pytorch", version="2.8.0", region=WEST).evidence[-1]
    )


@given(st.text(max_size=12), st.text(max_size=12), st.text(max_size=8), st.text(max_size=8), st.text(max_size=14))
def test_no_words_break_the_lookup(framework: str, version: str, cuda: str, python: str, region: str) -> None:
    for name in (framework, "pytorch"):
        for number in (version, "2.8.0"):
            with pytest.raises(RequestError) as caught:
                dlc_image(framework=name, version=number, cuda=cuda, python=python, region=f"x{region}")
            assert "nearest" in caught.value.details or "region" in caught.value.message


@given(
    st.sampled_from(sorted(set(FRAMEWORKS.values()))),
    st.sampled_from(sorted({each.version for each in TABLE.images})),
    st.sampled_from([None, "cpu", *sorted({each.cuda for each in TABLE.images if each.cuda})]),
    st.sampled_from(sorted(TABLE.domains)),
    st.booleans(),
)
def test_a_lookup_gives_what_was_asked_for_or_an_error(
    framework: str, version: str, cuda: str | None, region: str, gallery: bool
) -> None:
    where: dict[str, Any] = {"gallery": True} if gallery else {"region": region}
    try:
        image = dlc_image(framework=framework, version=version, cuda=cuda, **where)
    except RequestError:
        return
    assert FRAMEWORKS[image.repository] == framework
    assert image.version == version or image.version.startswith(f"{version}.")
    assert cuda in (None, image.cuda or "cpu")
    assert image.uri.endswith(f"/{image.repository}:{image.tag}")
    assert gallery == image.uri.startswith("public.ecr.aws/") == (image.account is None)
    assert gallery or f".dkr.ecr.{region}.{TABLE.domains[region]}/" in image.uri


@given(st.from_regex(r"[0-9]{1,2}\.[0-9]{1,2}\.[0-9]", fullmatch=True))
def test_neighbours_lie_on_both_sides(version: str) -> None:
    known = ["1.2.0", "1.10.0", "2.0.1"]
    near = neighbours(version, known)
    assert near == sorted(near, key=known.index)
    assert 1 <= len(near) <= 2
