"""The table of goals: what was measured and what it says of a goal; and what a layer weighs when it is compressed."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
from pathlib import Path

import pytest

from bench import goals, measured, sizes
from trainwright.core.errors import RequestError
from trainwright.proofs.proof import read


def goal(beginning: str) -> goals.Goal:
    (found,) = (each for each in goals.GOALS if each.what.startswith(beginning))
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of measurements of this test, and no proofs."""
    monkeypatch.setattr(measured, "FOLDER", tmp_path / "measured")
    monkeypatch.setattr(goals, "PROOFS", tmp_path / "proofs")
    return tmp_path / "measured"


CHANGED = {"metis": {"new": 700, "own": 688}, "pytorch": {"new": 546, "own": 546}}


@pytest.mark.parametrize(
    ("what", "values", "says", "met"),
    [
        ("`cu124`", {"unpacked": 5_000_000_000, "compressed": 2_700_000_000}, "5.00 GB / 2.70 GB", True),
        ("`cu124`", {"unpacked": 5_000_000_001, "compressed": 1}, "5.00 GB / 1 B", False),
        ("`cu124`", {"unpacked": 1, "compressed": 2_700_000_001}, "1 B / 2.70 GB", False),
        ("`cu124`", {"unpacked": 5_000_000_000}, "5.00 GB / not measured", None),
        ("`cu124`", {"unpacked": 5_410_728_911}, "5.41 GB / not measured", False),
        ("the default", {"unpacked": 5_500_000_000, "compressed": 3_000_000_000}, "5.50 GB / 3.00 GB", True),
        ("`cpu`", {"unpacked": 897_000_000}, "897.0 MB", True),
        ("`cpu`", {"unpacked": 901_000_000}, "901.0 MB", False),
        ("from a bare", {"seconds": 100}, "100 s", True),
        ("from a bare", {"seconds": 154.2}, "154.2 s", False),
        ("cold", {"seconds": 35, "recipe_seconds": 100, "line": "x"}, "0.35 (35 s, recipe 100 s; x)", True),
        ("cold", {"seconds": 75, "recipe_seconds": 144, "line": "x"}, "0.52 (75 s, recipe 144 s; x)", False),
        ("pull", {"seconds": 6, "recipe_seconds": 10, "line": "x"}, "0.60 (6 s, recipe 10 s; x)", True),
        ("pull", {"seconds": 6.1, "recipe_seconds": 10, "line": "x"}, "0.61 (6.1 s, recipe 10 s; x)", False),
        ("security", {"new": 50, "own": 50, "image": 1000, "line": "x"}, "1.00, 5.0% (50 B; x)", True),
        ("security", {"new": 50, "own": 45, "image": 1000, "line": "x"}, "1.11, 5.0% (50 B; x)", False),
        ("security", {"new": 51, "own": 51, "image": 1000, "line": "x"}, "1.00, 5.1% (51 B; x)", False),
        ("one component", {"components": CHANGED}, "metis 1.02, pytorch 1.00", True),
        ("one component", {"components": {**CHANGED, "a": {"new": 12, "own": 10}}}, "a 1.20", False),
        ("the user's", {"requirements_seconds": 2.9, "code_seconds": 1.2}, "2.9 s, 1.2 s", True),
        ("the user's", {"requirements_seconds": 1.9, "code_seconds": 3.1}, "1.9 s, 3.1 s", False),
        ("a second", {"second": {"new": 110, "own": 100}}, "110 B; its own: 100 B", True),
        ("a second", {"second": {"new": 111, "own": 100}}, "111 B; its own: 100 B", False),
        ("two builds", {"layers": 10, "same_layers": 10}, "10 of 10 layers", True),
        ("two builds", {"layers": 10, "same_layers": 9}, "9 of 10 layers", False),
        ("`build`", {"seconds": 0.5}, "0.5 s", True),
        ("`build`", {"seconds": 0.75}, "0.75 s", False),
        ("start", {"first_line": 0.4, "import_torch": 1.3}, "0.4 s / 1.3 s", True),
        ("start", {"first_line": 0.4, "import_torch": 1.4}, "0.4 s / 1.4 s", False),
        ("`plan`", {"plan_ms": 1.0, "render_ms": 1.0}, "2.0 ms (1 + 1)", True),
        ("`plan`", {"plan_ms": 3.1, "render_ms": 3.3}, "6.4 ms (3.1 + 3.3)", False),
    ],
)
def test_a_goal_is_met_by_figures_within_its_limit(what, values, says, met):
    text, found = goal(what).judge(values)
    assert says in text
    assert found is met


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_what_was_never_measured_says_so(folder):
    found = [cells(row) for row in goals.rows()]
    assert len(found) == len(goals.GOALS) == 16
    assert {tuple(row[2:5]) for row in found} == {("not measured", "", "")}


def test_what_the_plugin_for_efa_adds_is_shown_and_not_judged(folder):
    sizes = {"with": (4_712_502_358, 2_809_876_981, 457.5), "without": (4_709_761_295, 2_808_667_762, 489.1)}
    names = ("unpacked", "compressed", "seconds")
    measured.keep("efa", {name: dict(zip(names, each, strict=True)) for name, each in sizes.items()})
    (row,) = [cells(row) for row in goals.rows() if "without aws-ofi-nccl" in row]
    assert row[2:4] == ["2.7 MB / 1.2 MB more; 0.94 of its seconds (457.5 s, 489.1 s)", ""]


def test_a_row_says_when_and_on_what_it_was_measured(folder):
    measured.keep("again", {"request": "pytorch:cpu", "seconds": 0.4})
    measured.keep("sizes", {"pytorch:cpu": {"unpacked": 897_000_000}})
    again, cpu, cuda = (
        next(cells(row) for row in goals.rows() if row.startswith(f"| {goal(what).what} "))
        for what in ("`build`", "`cpu`", "`cu124`")
    )
    kept = measured.measured("again")
    assert kept is not None and again[2:5] == ["0.4 s", "yes", f"{kept.date}, {kept.machine}"]
    assert (cpu[2], cpu[3], cuda[2]) == ("897.0 MB", "yes", "not measured")
    assert cpu[4] == f"{kept.date}, {kept.machine}"


def test_a_size_keeps_the_day_on_which_it_was_weighed(folder):
    of_another_day = {"unpacked": 897_000_000, "date": "2026-11-26", "machine": "2 cores"}
    measured.keep("sizes", {"pytorch:cpu": of_another_day})
    (row,) = [cells(row) for row in goals.rows() if row.startswith("| `cpu`")]
    assert row[4] == "2026-11-26, 2 cores"


def test_a_line_that_no_bench_has_weighed_has_the_size_in_its_proof(folder, monkeypatch):
    monkeypatch.setattr(goals, "PROOFS", goals.ROOT / "proofs")
    proof = read(goals.ROOT / "proofs" / "pytorch" / "cpu.json")
    row = next(cells(row) for row in goals.rows() if row.startswith("| `cpu`"))
    assert row[2] == f"{proof.size_bytes / 1e9:.2f} GB" or row[2] == f"{proof.size_bytes / 1e6:.1f} MB"
    assert row[4].startswith(proof.date[:10]) and "proofs/pytorch/cpu.json" in row[4]


def test_a_file_that_is_no_measurement_is_refused(folder):
    folder.mkdir()
    (folder / "again.json").write_text('{"seconds": 1}')
    with pytest.raises(RequestError, match=r"again\.json"):
        list(goals.rows())


def test_the_page_has_the_table_of_the_measurements_that_are_kept():
    """A new measurement is a new table: bench/goals.py --write."""
    page = measured.PAGE.read_text()
    between = page.partition(goals.BEGIN)[2].partition(goals.END)[0]
    assert between.strip().splitlines() == [*goals.HEAD, *goals.rows()]


def saved(layers: list[bytes]) -> bytes:
    """What `docker save` streams of an image with these layers, of files that are named by their place."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, body in [("manifest.json", b"[]"), *((f"{n}/layer.tar", body) for n, body in enumerate(layers))]:
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body))
    return made.getvalue()


def layer(body: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        entry = tarfile.TarInfo("file")
        entry.size = len(body)
        archive.addfile(entry, io.BytesIO(body))
    return made.getvalue()


def test_a_layer_weighs_what_gzip_makes_of_it():
    """Python's gzip is the other implementation: its header is as long, as neither names a file."""
    zeros, noise = layer(bytes(3_000_000)), layer(random.Random(1).randbytes(2_500_000))
    packed = gzip.compress(noise, compresslevel=6, mtime=0)
    found = list(sizes.layers_of(io.BytesIO(saved([zeros, noise, packed]))))
    assert [unpacked for unpacked, _ in found] == [len(zeros), len(noise), len(noise)]
    assert [compressed for _, compressed in found] == [
        pytest.approx(len(gzip.compress(zeros, compresslevel=6)), abs=100),
        pytest.approx(len(packed), abs=1000),
        len(packed),
    ]
