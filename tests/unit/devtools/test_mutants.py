"""Planted faults: which there are, that each changes its module, and which tests have to see it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from devtools import mutant_scores, mutants
from devtools.mutant_worker import _noted
from trainwright.core.data_files import read_yaml
from trainwright.core.errors import RequestError

ROOT = Path(mutants.ROOT)
TEXT = '''\
"""A module."""
LIMIT = 3


def of(values: list[int], *, all_of: bool = False) -> int | None:
    """The first that is large enough."""
    if not values:
        raise ValueError("no values")
    return next((each for each in values if each > LIMIT and each != 5), None)
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    (tmp_path / "trainwright" / "core").mkdir(parents=True)
    (tmp_path / "trainwright" / "core" / "some.py").write_text(TEXT)
    return "core/some"


def test_each_fault_is_one_change(module: str) -> None:
    found = mutants.mutants_of(module)
    changes = {(each.was, each.now) for each in found}
    assert ("each > LIMIT", "each >= LIMIT") in changes
    assert ("each != 5", "each == 5") in changes
    assert ("each > LIMIT and each != 5", "each > LIMIT or each != 5") in changes
    assert ("not values", "values") in changes
    assert ("False", "True") in changes
    assert ("5", "6") in changes
    assert ("raise …", "pass") in changes
    # Texts for people, and what is no function, are left alone.
    assert not [each for each in found if "no values" in each.was or "large" in each.was or each.was == "3"]
    plain = ast.unparse(ast.parse(TEXT))
    texts = [mutants.text_of(TEXT, each.number) for each in found]
    assert len(set(texts)) == len(texts)
    assert plain not in texts
    for text in texts:
        assert len(set(text.splitlines()) - set(plain.splitlines())) == 1


def test_functions_note_that_they_were_called() -> None:
    import builtins

    space: dict[str, object] = {}
    exec(compile(_noted("core/some", TEXT), "noted", "exec"), space)
    called = builtins.__dict__.setdefault("_functions_called", set())
    try:
        called.clear()
        assert space["of"]([4]) == 4  # type: ignore[operator]
        assert called == {"core/some:of"}
    finally:
        del builtins.__dict__["_functions_called"]


@pytest.mark.parametrize("name", mutants.MODULES)
def test_every_named_module_has_faults_and_tests(name: str) -> None:
    assert mutants.mutants_of(name)
    files = mutants.tests_of(name)
    assert files
    assert [each for each in files if not (ROOT / each).exists()] == []


@pytest.mark.parametrize(
    ("module", "files"),
    [
        ("push/proof", ["push/test_proof.py", "push/test_gate.py"]),
        ("sagemaker/distribution", ["sagemaker/test_distribution.py"]),
        ("script/gathered", ["preflight/test_gathered_shares.py", "preflight/test_gathered_states.py"]),
        ("script/nothing_like_it", ["script"]),
    ],
)
def test_the_tests_of_a_module(module: str, files: list[str]) -> None:
    assert mutants.tests_of(module) == [f"tests/unit/{each}" for each in files]


def test_every_fault_that_is_called_equivalent_exists_and_has_its_reason() -> None:
    rows = read_yaml(ROOT / mutants.EQUIVALENT)["mutants"]
    assert rows
    assert [row for row in rows if not row["why"]] == []
    planted = {each.key for name in {row["module"] for row in rows} for each in mutants.mutants_of(name)}
    assert mutants._equivalent() - planted == set()


def test_a_module_that_does_not_exist() -> None:
    with pytest.raises(RequestError, match="Did you mean plan/conflict"):
        mutants.mutants_of("plan/conflicts")


def test_too_few_that_are_seen_are_a_failure(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = mutants.mutants_of(module)
    monkeypatch.setattr(mutants, "_equivalent", lambda: {known[0].key})
    monkeypatch.setattr(mutants, "_tried", lambda drawn: ((each, each.number != 1) for each in drawn))
    said: list[str] = []
    kept: list[tuple[Any, int]] = []
    mutants.run_mutants(module, seed=1, sample=0, floor=0.5, say=said.append, keep=lambda *scores: kept.append(scores))
    ((scores, seed),) = kept
    assert (sorted(scores[module]), seed) == ([False, *[True] * (len(known) - 2)], 1)
    assert said[0] == f"not seen: {known[1]}"
    assert said[-1].split()[:4] == ["all", str(len(known) - 2), "of", str(len(known) - 1)]
    with pytest.raises(mutants.MutantsSurvived):
        mutants.run_mutants(module, seed=1, sample=0, floor=1.0, say=said.append)


def test_the_table_of_scores_has_one_row_for_each_module(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{mutant_scores.BEGIN}\n{mutant_scores.END}\nafter\n")
    mutant_scores.keep({"push/moving": [True, False], "plan/lock": []}, 1, page)
    mutant_scores.keep({"build/context": [True] * 3}, 2, page)
    mutant_scores.keep({"push/moving": [True] * 4}, 3, page)
    before, _, rest = page.read_text().partition(mutant_scores.BEGIN)
    table, _, after = rest.partition(mutant_scores.END)
    rows = [line.rpartition(" | ")[0] for line in table.split("\n") if "/" in line]
    assert rows == ["| build/context | 3 of 3 | 100% | 2", "| push/moving | 4 of 4 | 100% | 3"]
    assert (before, after) == ("before\n\n", "\nafter\n")


def test_every_module_of_the_table_exists() -> None:
    page = mutant_scores.PAGE.read_text()
    found = re.findall(r"^\| (\w+/\w+) \| \d+ of \d+ ", page.partition(mutant_scores.BEGIN)[2], re.MULTILINE)
    assert len(found) > 10
    assert [module for module in found if not mutants.path_of(module).is_file()] == []
