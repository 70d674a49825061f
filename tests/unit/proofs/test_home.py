"""Proofs brought home: whole or not at all, of lines that there are, and never in place of a newer one."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.proofs_table import with_proofs
from tests.support.proofs import proof_of
from trainwright.catalog.catalog import open_catalog
from trainwright.core.errors import RequestError
from trainwright.proofs.home import save, take
from trainwright.proofs.proof import Outcomes, read

pytestmark = pytest.mark.usefixtures("own_places")
OLD, NEW = "2026-11-22T10:00:00+00:00", "2026-11-23T10:00:00+00:00"
PAGE = "before\n<!-- proofs -->\nold\n<!-- end -->\nafter\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of proofs of this test."""
    for module in ("places", "home"):
        monkeypatch.setattr(f"trainwright.proofs.{module}.roots", lambda: [tmp_path / "proofs"])
    return tmp_path / "proofs"


def test_a_batch_s_folder_is_taken(tmp_path, folder):
    for name in ("pytorch/cpu", "tensorflow/cpu"):
        save(proof_of(name), tmp_path / "home" / name.replace("/", "-"))
    taken = take([str(tmp_path / "home")], open_catalog())
    assert [f"{proof.framework}/{proof.line}" for proof, _, new in taken if new] == ["pytorch/cpu", "tensorflow/cpu"]
    assert read(folder / "tensorflow" / "cpu.json") == proof_of("tensorflow/cpu").replace(
        date=read(folder / "tensorflow" / "cpu.json").date
    )


def test_a_folder_that_is_named_takes_them(tmp_path, folder):
    path = save(proof_of().replace(date=NEW), tmp_path / "home")
    root = tmp_path / "elsewhere"
    take([str(path)], open_catalog(), root)
    assert read(root / "pytorch" / "cpu.json").date == NEW
    assert not folder.exists()
    ((_, _, again),) = take([str(path)], open_catalog(), root)
    assert not again


def test_an_address_is_no_file_of_this_machine():
    with pytest.raises(RequestError, match="files and folders on this machine") as refused:
        take(["s3://bucket/builds"], open_catalog())
    assert "aws s3 cp --recursive s3://bucket/builds" in refused.value.remedy


@pytest.mark.parametrize(("first", "second"), [(OLD, NEW), (NEW, OLD)])
def test_the_newer_proof_stays(tmp_path, folder, first, second):
    save(proof_of().replace(date=first))
    path = save(proof_of().replace(date=second), tmp_path / "home")
    ((_, _, new),) = take([str(path)], open_catalog())
    assert read(folder / "pytorch" / "cpu.json").date == NEW
    assert new is (second == NEW)


PROVEN, FAILED = {"outcome": "proven"}, {"outcome": "failed", "failed_step": "build", "image": None, "size_bytes": None}
OTHER, TWIN = {"plan": "0" * 64}, {"plan": "1" * 64, "stands_for": proof_of().plan}


@pytest.mark.parametrize(
    ("there", "other", "stays"),
    [
        (PROVEN, FAILED, "proven"),
        (TWIN, FAILED, "proven"),
        ({**PROVEN, **OTHER}, FAILED, "failed"),  # a proof of an earlier plan says nothing of this one
        (FAILED, FAILED, "failed"),
        (FAILED, PROVEN, "proven"),
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_a_failure_never_replaces_a_proof_of_the_same_plan(tmp_path, folder, there, other, stays, at_once):
    first, second = proof_of().replace(date=OLD, **there), proof_of().replace(date=NEW, **other)
    home = tmp_path / "home"
    save(second, home / "b")
    save(first, home / "a" if at_once else None)
    *_, (_, _, new) = take([str(home)], open_catalog())
    assert read(folder / "pytorch" / "cpu.json").outcome == stays
    assert new is (other["outcome"] == stays)


def test_a_proof_replaces_a_newer_failure_of_the_same_plan(tmp_path, folder):
    save(proof_of().replace(date=NEW, **FAILED))
    path = save(proof_of().replace(date=OLD), tmp_path / "home")
    ((_, _, new),) = take([str(path)], open_catalog())
    assert new
    assert read(folder / "pytorch" / "cpu.json").outcome == "proven"


@pytest.mark.parametrize("wrong", ["edited", "unknown line", "another file", "missing", "empty"])
def test_nothing_is_taken_if_one_is_wrong(tmp_path, folder, wrong):
    home = tmp_path / "home"
    path = save(proof_of("tensorflow/cpu"), home)
    save(proof_of(), home)
    if wrong == "edited":
        path.write_text(path.read_text().replace("proven", "failed"))
    elif wrong == "unknown line":
        save(proof_of().replace(line="cpus"), home)
    elif wrong == "another file":
        (home / "zz.json").write_text("{}")
    elif wrong == "missing":
        home = home / "nowhere.json"
    else:
        home = tmp_path / "bare"
        home.mkdir()
    with pytest.raises(RequestError) as refused:
        take([str(home)], open_catalog())
    said = {
        "edited": "was edited",
        "unknown line": "pytorch/cpus, which is not an image line here. Did you mean pytorch/cpu",
        "another file": "not a proof",
        "missing": "no such file",
        "empty": "no proofs",
    }
    assert said[wrong] in refused.value.message
    assert not folder.exists()


def test_the_table_of_the_readme_is_made_of_the_proofs():
    catalog = open_catalog()
    count = len(catalog.lines)
    assert (
        with_proofs(PAGE, catalog) == f"before\n<!-- proofs -->\n0 of {count} lines are proven.\n<!-- end -->\nafter\n"
    )
    save(proof_of().replace(date=NEW))
    save(proof_of("tensorflow/cpu").replace(plan="0" * 64, date=OLD))
    blank = {"tests": Outcomes(), "rehearsal": None}
    save(proof_of("pytorch/cu124").replace(date=OLD, **FAILED, **blank))
    page = with_proofs(PAGE, catalog)
    assert f"1 of {count} lines are proven, 1 failed, 1 changed since their proof." in page
    assert "| `pytorch/cu124` | failed 2026-11-22 (build) | - | - | - |" in page
    assert "| `pytorch/cpu` | 2026-11-23 | 1.29 GB | 6 passed, 4 skipped | 2 hosts, torchrun |" in page
    assert "| `tensorflow/cpu` | stale 2026-11-22 |" in page


def test_the_table_refuses_a_proof_in_the_place_of_another(folder):
    path = save(proof_of())
    path.rename(path.with_name("cu124.json"))
    with pytest.raises(RequestError, match="not of the line of this place"):
        with_proofs(PAGE, open_catalog())
    path.with_name("cu124.json").rename(path.with_name("nowhere.json"))
    with pytest.raises(RequestError, match="there is no line of this place"):
        with_proofs(PAGE, open_catalog())
