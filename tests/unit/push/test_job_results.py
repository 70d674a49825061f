"""What results of jobs mean for the image that they are attached to: the newest counts, in whatever order they are."""

from __future__ import annotations

import itertools
from typing import Any, cast

import pytest

from tests.support.tag_race import Repository, image
from trainwright.push.attest import Attestation
from trainwright.push.ecr import ImageManifest
from trainwright.push.job_results import JobResult, job_lacks, job_statement

IMAGE, _ = image("2.6.0", 1)
OTHER, _ = image("2.6.0", 2)


class Documents(Repository):
    """A repository whose attached documents can be read."""

    def __init__(self) -> None:
        super().__init__()
        self.contents: dict[str, bytes] = {}

    def take(self, subject: ImageManifest, document: Attestation) -> str:
        digest = self.attach(subject, document.content, document.kind, dict(document.notes))
        self.contents[digest] = document.content
        return digest

    def document(self, digest: str) -> bytes:
        return self.contents[digest]


def result(hour: int, *failed: str, gpus: int = 0) -> Attestation:
    made = JobResult(
        schema="trainwright/job-result/1",
        image=IMAGE.digest,
        plan="1" * 64,
        request="2" * 64,
        content="3" * 64,
        gpus=gpus,
        finished=f"2026-11-01T{hour:02}:00:00Z",
        passed=("57 facts are as planned",),
        failed=failed,
        digest="4" * 64,
    )
    return job_statement(made, IMAGE.digest)


def lacks(here: Documents, among: tuple[str, ...] | None = None) -> str:
    return job_lacks(cast(Any, here), cast(Any, here), IMAGE, among)


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_the_newest_result_counts(order: tuple[int, ...]) -> None:
    here = Documents()
    results = [result(1), result(2, "no nccl"), result(3)]
    for number in order:
        here.take(IMAGE, results[number])
    assert lacks(here) == ""
    here.take(IMAGE, result(4, "metis: version", gpus=2))
    assert lacks(here) == "a job with GPUs failed in it on 2026-11-01: metis: version"
    here.take(IMAGE, result(5))
    assert "with GPUs" in lacks(here), "a job without GPUs says nothing of them"
    here.take(IMAGE, result(6, gpus=1))
    assert lacks(here) == ""


@pytest.mark.parametrize("failed_first", [True, False])
def test_of_two_results_of_one_second_the_failure_counts(failed_first: bool) -> None:
    here = Documents()
    both = (result(2, "no nccl"), result(2))
    for each in both if failed_first else both[::-1]:
        here.take(IMAGE, each)
    assert "no nccl" in lacks(here)
    here.take(IMAGE, result(3))
    assert lacks(here) == ""


def test_what_is_about_another_image_or_of_another_kind_does_not_count() -> None:
    here = Documents()
    assert lacks(here) == ""
    here.take(OTHER, result(1, "no nccl"))
    # Moved to this image, its subject is another one; and not the result of a job.
    moved = result(2, "no nccl")
    here.take(
        IMAGE,
        Attestation(moved.name, moved.kind, moved.content.replace(IMAGE.digest[7:].encode(), b"0" * 64), moved.notes),
    )
    here.take(IMAGE, Attestation(moved.name, moved.kind, moved.content.replace(b'"job"', b'"smoke"'), moved.notes))
    here.take(IMAGE, Attestation(moved.name, moved.kind, b"{}", moved.notes))
    assert lacks(here) == ""


def test_where_images_are_signed_a_pass_has_to_be_and_a_failure_counts_anyway() -> None:
    here = Documents()
    here.take(IMAGE, result(1, "no nccl"))
    unsigned = here.take(IMAGE, result(2))
    assert lacks(here, among=()) and not lacks(here, among=(unsigned,)) and not lacks(here)
