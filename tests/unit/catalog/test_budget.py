"""A size budget: how it is written, what else is refused with the nearest size, and where 3 % over it begins."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.catalog.budget import TOLERANCE, Budget, read_size
from trainwright.catalog.catalog import _read_line, open_catalog
from trainwright.core.errors import RequestError
from trainwright.core.layout import size
from trainwright.core.paths import images_dir
from trainwright.proofs.expected import proven_sizes
from trainwright.proofs.standing import of_lines

# The prefixes of the International System of Units.
SI = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        *(("5.0 GB", 5_000_000_000), ("5GB", 5_000_000_000), ("900 MB", 900_000_000), ("0.9 GB", 900_000_000)),
        *(("897 MB", 897_000_000), ("1.000000001 GB", 1_000_000_001), ("1000000 B", 1_000_000), ("1000 kB", 1_000_000)),
        *((897_123_456, 897_123_456), (1_000_000, 1_000_000), ("1000000 GB", 10**15)),
    ],
)
def test_a_size_is_a_number_of_bytes(text: object, wanted: int) -> None:
    assert read_size(text) == wanted


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        *(
            ("5 gigs", "5 GB"),
            ("5G", "5 GB"),
            ("5 gb", "5 GB"),
            ("5,5 GB", "5.5 GB"),
            ("5  GB", "5 GB"),
            (" 5 GB", "5 GB"),
        ),
        *(("5 GiB", "5.369 GB"), ("900 MiB", "943.718 MB"), ("900 mb", "900 MB"), ("2 TB", "2000 GB"), (5, "5 GB")),
        *((5.5, "5.5 GB"), (900, "900 MB"), ("5", "5 GB"), ("5000000000", "")),
        *(("-5 GB", ""), (-5, ""), (0, ""), ("0 GB", ""), (True, ""), (False, ""), ("", ""), ("big", ""), ("1e9", "")),
        *(
            ("1.5 B", ""),
            ("2000000 GB", ""),
            (10**30, ""),
            ("GB", ""),
            ([5], ""),
            ("\u0665 GB", ""),
            ("5 GB\n", "5 GB"),
        ),
        *((999_999, ""), ("999 kB", ""), (float("nan"), ""), (float("inf"), "")),
    ],
)
def test_anything_else_is_refused_with_the_nearest_size(text: object, nearest: str) -> None:
    with pytest.raises(ValueError, match="must be a") as refused:
        read_size(text)
    if nearest:
        assert f"Did you mean {nearest}?" in str(refused.value)
        read_size(nearest)


@given(st.integers(0, 10**15), st.integers(0, 12), st.sampled_from([*SI]), st.sampled_from(["", " "]))
def test_every_number_with_a_unit_is_what_it_says_or_refused(digits: int, places: int, unit: str, gap: str) -> None:
    number = f"{Decimal(digits).scaleb(-places):f}"
    exact = Decimal(digits) * SI[unit] / 10**places
    try:
        found = read_size(f"{number}{gap}{unit}")
    except ValueError:
        whole, _, fraction = number.partition(".")
        assert exact != int(exact) or not 10**6 <= exact <= 10**15 or len(whole) > 15 or len(fraction) > 12
    else:
        assert found == exact


@given(st.integers(10**6, 10**14))
def test_what_the_program_prints_can_be_read(count: int) -> None:
    assert abs(read_size(size(count)) - count) <= count * 0.051, "0.1 of 1 MB is the coarsest that it rounds to"


@given(st.one_of(st.text(max_size=30), st.integers(), st.floats(), st.booleans(), st.none()))
def test_whatever_is_written_is_read_or_refused(value: object) -> None:
    try:
        assert 10**6 <= read_size(value) <= 10**15
    except ValueError as refused:
        assert str(refused)


@pytest.mark.parametrize(
    ("budget", "image", "broken"),
    [
        *((5_000_000_000, 5_000_000_000, False), (5_000_000_000, 5_149_999_999, False)),
        *((5_000_000_000, 5_150_000_000, False), (5_000_000_000, 5_150_000_001, True)),
        *((5_000_000_000, 4_000_000_000, False), (900_000_000, 1_031_419_059, True), (900_000_000, 897_000_000, False)),
    ],
)
def test_an_image_may_be_three_percent_over_its_budget(budget: int, image: int, broken: bool) -> None:
    assert Budget(bytes=budget, file="line.yaml").broken_by(image) is broken


def line_with(folder: Path, budget: str) -> Path:
    text = (images_dir() / "pytorch" / "cpu" / "line.yaml").read_text().replace("budget: 900 MB", budget)
    path = folder / "pytorch" / "cpu" / "line.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        ("budget: 9 gigs", "Did you mean 9 GB?"),
        ("budget: yes", "must be a size"),
        ("budget: -900000000", "must be a whole number of bytes"),
        ("budget: [1 GB]", "must be a size"),
        ("bugdet: 900 MB", "Did you mean budget?"),
    ],
)
def test_a_wrong_budget_is_an_error_with_file_and_line(tmp_path: Path, budget: str, says: str) -> None:
    path = line_with(tmp_path, budget)
    number = path.read_text().splitlines().index(budget) + 1
    with pytest.raises(RequestError) as refused:
        _read_line(path)
    assert refused.value.message.startswith(f"{path}:{number}: "), refused.value.message
    assert says in refused.value.message


def test_a_line_may_have_no_budget_or_one_in_bytes(tmp_path: Path) -> None:
    assert _read_line(line_with(tmp_path, "budget: 897000001")).line.budget == 897_000_001
    assert _read_line(line_with(tmp_path, "# no budget")).line.budget is None


@pytest.mark.usefixtures("own_places")
def test_every_proven_line_has_a_budget_that_its_proven_image_keeps() -> None:
    catalog = open_catalog()
    sizes = proven_sizes(catalog.lines)
    standing = of_lines([entry for entry in catalog.lines if entry.path in sizes], catalog)
    proven = [entry for entry in catalog.lines if entry.path in standing and standing[entry.path].state == "proven"]
    assert "pytorch/cu132" in [f"{entry.line.framework}/{entry.name}" for entry in proven], "the default"
    for entry in proven:
        assert entry.line.budget is not None, entry.path
        budget = Budget(bytes=entry.line.budget, file=str(entry.path))
        assert -TOLERANCE < budget.percent_over(sizes[entry.path]) < TOLERANCE, entry.path
