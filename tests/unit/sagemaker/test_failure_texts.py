"""Texts of real failures from public threads: the right cause comes first, and texts that look alike show none."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.core.data_files import read_yaml
from trainwright.sagemaker.causes import load_causes
from trainwright.sagemaker.diagnosis import diagnose

KNOWN = read_yaml(Path(__file__).with_name("failures.yaml"))
CAUSES = {cause.id: cause for cause in load_causes()}


def first(text: str) -> str:
    """The cause that is named first for a text."""
    return next((cause.id for cause in diagnose(text.splitlines()).causes), "none")


@pytest.mark.parametrize("known", KNOWN["texts"], ids=lambda known: f"{known['cause']}: {known['source']}")
def test_the_right_cause_comes_first(known):
    found = diagnose(known["text"].splitlines())
    assert not found.unknown
    assert [cause.id for cause in found.causes][:1] == [known["cause"]]


def test_a_broadcast_that_times_out_may_be_the_plugin_s():
    # aws/deep-learning-containers #6551: 1.18.0 "hangs indefinitely on NCCL broadcast during multinode training"
    text = (
        "[rank8]:[E821 11:02:31.1 ProcessGroupNCCL.cpp:685] [Rank 8] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=3, OpType=BROADCAST, NumelIn=536870912, NumelOut=536870912, Timeout(ms)=600000) ran for "
        "600021 milliseconds before timing out."
    )
    (cause,) = diagnose([text]).causes
    assert "aws-ofi-nccl 1.18.0" in cause.remedy


@pytest.mark.parametrize("known", KNOWN["consequences"], ids=lambda known: known["source"])
def test_of_a_consequence_no_cause_is_invented(known):
    found = diagnose(known["text"].splitlines())
    assert found.unknown
    assert [cause.id for cause in found.causes] == [known["cause"]]


@pytest.mark.parametrize(("cause", "text"), KNOWN["near"].items())
def test_what_only_looks_like_it_is_not_it(cause, text):
    lines = [text] * CAUSES[cause].at_least
    assert cause not in [each.id for each in diagnose(lines).causes]


@pytest.mark.parametrize("near", KNOWN["also_near"], ids=lambda near: f"{near['cause']}: {near['text'][:60]}")
def test_neighbours_of_its_other_patterns_are_not_it(near):
    assert near["cause"] not in [each.id for each in diagnose([near["text"]] * CAUSES[near["cause"]].at_least).causes]


def test_every_cause_has_something_that_only_looks_like_it():
    assert set(KNOWN["near"]) == set(CAUSES)


# Nobody has quoted these in a public thread that was found; a new cause has a text.
NOT_QUOTED = {
    *("code-archive", "host-unreachable", "log-level", "max-runtime", "no-tcp-network"),
    *("smdistributed-launcher", "ssh-no-key", "ssh-refused", "waits-for-hosts"),
}


def test_every_cause_has_the_text_of_a_real_failure():
    quoted = {known["cause"] for known in KNOWN["texts"] + KNOWN["consequences"]}
    assert quoted - set(CAUSES) == set()
    assert set(CAUSES) - quoted == NOT_QUOTED


def test_the_texts_are_many_and_name_where_they_are_from():
    texts = KNOWN["texts"] + KNOWN["consequences"]
    assert len({known["cause"] for known in texts}) >= 60
    assert len(texts) == len({known["text"] for known in texts})
    assert all(" #" in known["source"] for known in texts)


NOT_LAST = [known for known in KNOWN["texts"] if not CAUSES[known["cause"]].at_the_end]


@pytest.mark.parametrize("known", NOT_LAST, ids=lambda known: f"{known['cause']}: {known['source']}")
def test_the_launchers_words_after_it_do_not_hide_the_cause(known):
    """What torchrun, mpirun and the toolkit print of any failure, as threads of the texts show it."""
    after = """
ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 2599952) of binary: python
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Primary job  terminated normally, but 1 process returned
NCCL WARN socketProgress: Connection closed by remote peer node2<42830>
sagemaker-training-toolkit ERROR    ExecuteUserScriptError:
"""
    assert first(known["text"] + after) == known["cause"]
