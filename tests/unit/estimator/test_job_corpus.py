"""Each rule of ``estimator`` on the corpus of jobs: the wrong one is given its code, the right one is in order."""

from __future__ import annotations

import pytest

from tests.support.job_corpus import findings, pairs
from trainwright.estimator.check import CODES

# Rules that no job file shows.
WITHOUT = {
    "TW219": "nothing is known that rehearse refuses and no other rule finds",
    "TW244": "every framework of the catalog has its module; an image with another one tells so by its labels alone",
}


def test_every_rule_is_in_the_corpus():
    assert set(pairs()) | set(WITHOUT) == set(CODES)
    assert not set(pairs()) & set(WITHOUT)


@pytest.mark.parametrize("code", pairs())
def test_the_wrong_job_is_given_the_code_and_the_right_one_is_in_order(tmp_path, code):
    pair = pairs()[code]
    for name in ("wrong", "right"):
        (tmp_path / name).mkdir()
    wrong = findings(pair.wrong, pair.flags, tmp_path / "wrong")
    right = findings(pair.right, pair.flags, tmp_path / "right")
    of_right = {each.code for each in right}
    assert code in {each.code for each in wrong}, wrong
    assert {each.code for each in wrong} - of_right == {code} | pair.also, wrong
    assert code not in of_right, right
    assert not [each for each in right if each.severity == "error"], right
