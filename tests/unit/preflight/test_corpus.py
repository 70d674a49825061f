"""Preflight holds its figures on the corpus: good scripts without findings, planted mistakes found."""

from __future__ import annotations

import pytest

from tests.support.corpus import load

CORPUS = list(load())


def test_corpus_is_large_enough():
    assert len(CORPUS) >= 20
    assert sum(len(wrong) for _, wrong in CORPUS) >= 150


@pytest.mark.parametrize(("good", "wrong"), CORPUS, ids=[good.base for good, _ in CORPUS])
def test_mistakes_are_found_and_good_scripts_are_not_blamed(good, wrong):
    """Each planted mistake gives its code, which the good script does not give."""
    blamed = good.findings()
    assert not blamed, [(f.code, f.line, f.message) for f in blamed]
    missed = {p.name: p.codes for p in wrong if not {f.code for f in p.findings()} & set(p.codes)}
    assert not missed
