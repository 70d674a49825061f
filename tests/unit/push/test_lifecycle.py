"""Which images the lifecycle policy of a repository archives and removes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.lifecycle import Kept, applied, faults
from trainwright.core.errors import RequestError
from trainwright.push.repository import load_policy

TEXT = load_policy().lifecycle_text()
OWN = "pytorch-2.0.0-cpu-py311-debian12-20261121-0123456789ab"
NIGHTLY = (OWN, "nightly-7")


def test_ecr_takes_the_shipped_policy() -> None:
    assert faults(TEXT) == []


@pytest.mark.parametrize(
    ("image", "what"),
    [
        (Kept((OWN,), pushed=0, pulled=900), None),  # a job took it 100 days ago
        (Kept((OWN,), pushed=0, pulled=700), "transition"),
        (Kept((OWN,), pushed=0), "transition"),  # never pulled
        (Kept((OWN,), pushed=900), None),
        (Kept((OWN,), pushed=0, archived=1), None),  # what is no nightly image stays in the archive
        (Kept(NIGHTLY, pushed=0, pulled=980), None),
        (Kept(NIGHTLY, pushed=0, pulled=960), "transition"),
        (Kept(NIGHTLY, pushed=0, archived=950), None),
        (Kept(NIGHTLY, pushed=0, archived=900), "expire"),
        (Kept((*NIGHTLY, "release-2.0"), pushed=0), None),
        (Kept((OWN, "release-2.0"), pushed=0), None),
        (Kept(("sha256-" + "0" * 64 + ".record.01234567",), pushed=0), None),  # the proof of an image
        (Kept(("history-pytorch-2.0-cpu",), pushed=0), None),  # the log of a moving tag
        (Kept((), pushed=0), "expire"),
        (Kept((), pushed=990), None),
    ],
)
def test_what_becomes_of_an_image_on_day_1000(image: Kept, what: str | None) -> None:
    assert applied(TEXT, {"it": image}, 1000).get("it") == what


def test_no_number_of_other_images_takes_one_that_is_used() -> None:
    images = {f"{line} of night {n}": Kept((f"{OWN}-{n}-{line}",), n, n + 1.0) for n in range(900) for line in range(3)}
    images["named by a job"] = Kept((OWN,), pushed=0, pulled=899)
    assert "named by a job" not in applied(TEXT, images, 900)
    assert "expire" not in applied(TEXT, images, 900).values()


@pytest.mark.parametrize("tag", ["release-{}", "sha256-{:064}.record.01234567", "history-pytorch-2.0-cpu.{}"])
def test_neither_many_nor_old_ones_of_what_is_protected_go(tag: str) -> None:
    images = {f"{n}": Kept((tag.format(n),), pushed=n / 1000) for n in range(12_000)}
    assert applied(TEXT, images, 50 * 365) == {}
    # Its neighbour, which no rule protects.
    assert applied(TEXT, {"it": Kept((OWN,), pushed=0)}, 50 * 365) == {"it": "transition"}


@given(*(st.integers(0, 1000) for _ in range(4)))
def test_ecr_takes_every_policy_of_ones_own(untagged: int, unpulled: int, nightly: int, archived: int) -> None:
    days = {
        "expire_untagged_days": untagged,
        "archive_unpulled_days": unpulled,
        "archive_nightly_days": nightly,
        "expire_archived_nightly_days": archived if archived >= 90 else 0,
    }
    text = load_policy().replace(**days).lifecycle_text()
    assert faults(text) == [] if any(days.values()) else text == ""


def test_what_ecr_does_not_take(tmp_path) -> None:
    path = tmp_path / "policy.yaml"
    words = "{tag_mutability: MUTABLE, scan_on_push: true, encryption: {type: AES256}, expire_untagged_days: 1, "
    path.write_text(words + "expire_archived_nightly_days: 30}")
    with pytest.raises(RequestError, match="90 days"):
        load_policy(path)
    path.write_text(words + "keep_images: 100}")
    with pytest.raises(RequestError, match="keep_images"):
        load_policy(path)
