"""Reading requests: every word is understood or refused with a remedy, never guessed."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.errors import Failure, RequestError
from trainwright.plan.request import make_request, parse_cuda


@pytest.mark.parametrize(
    ("text", "cuda"),
    [("cu124", "12.4"), ("12.4", "12.4"), ("124", "12.4"), ("12.4.1", "12.4"), ("CU117", "11.7"), ("cuda-12.4", "12.4"),
     ("cpu", "cpu"), (" CPU ", "cpu"), ("cu92", "9.2"), ("cu999", "99.9")],
)  # fmt: skip
def test_cuda_spellings(text, cuda):
    assert parse_cuda(text) == cuda


@pytest.mark.parametrize("text", ["", "banana", "cu", "12", "gpu", "cu12.4.1.1", "-cu124", "cu1244"])
def test_cuda_that_is_none(text):
    with pytest.raises(RequestError) as refused:
        parse_cuda(text)
    assert refused.value.remedy


@given(st.integers(0, 99), st.integers(0, 9))
def test_cuda_spellings_agree(major, minor):
    assert parse_cuda(f"cu{major}{minor}") == parse_cuda(f"{major}.{minor}") == f"{major}.{minor}"


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_any_text_gives_a_request_or_a_refusal(cuda, version, names):
    try:
        request = make_request(framework="pytorch", cuda=cuda, version=version, with_=names)
    except Failure as refused:
        assert refused.exit_code == 2
    else:
        assert request.cuda == "cpu" or "." in str(request.cuda)


def test_framework_is_needed():
    with pytest.raises(RequestError, match="--framework"):
        make_request(framework=None)


def test_code_and_entry_point_go_together(tmp_path):
    (tmp_path / "train.py").write_text("")
    with pytest.raises(RequestError, match="must be used together"):
        make_request(framework="pytorch", code=str(tmp_path))
    made = make_request(framework="pytorch", code=str(tmp_path), entry_point="train.py")
    assert made.user.entry_point == "train.py"


@pytest.mark.parametrize("entry", ["/train.py", "../train.py", "-train.py", "a b.py", "missing.py"])
def test_entry_points_that_the_toolkit_would_refuse(tmp_path, entry):
    (tmp_path / "train.py").write_text("")
    (tmp_path / "a b.py").write_text("")
    with pytest.raises(RequestError):
        make_request(framework="pytorch", code=str(tmp_path), entry_point=entry)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(RequestError, match=r"nothing\.txt"):
        make_request(framework="pytorch", requirements=str(tmp_path / "nothing.txt"))


@pytest.mark.parametrize(
    ("short", "flags"),
    [
        ("pytorch", "--framework pytorch"),
        ("pytorch:cu124", "--framework pytorch --cuda cu124"),
        ("pytorch-2.6.0-cu124", "--framework pytorch --cuda cu124 --version 2.6.0"),
        ("pytorch:2.6.0-cu124-py311", "--framework pytorch --cuda cu124 --version 2.6.0 --python 3.11"),
        ("huggingface-pytorch:cpu", "--framework huggingface-pytorch --cuda cpu"),
        ("pytorch-2.6.0-cu124-debian", "--framework pytorch --cuda cu124 --version 2.6.0 --base debian"),
        ("PyTorch:py310", "--framework pytorch --python 3.10"),
    ],
)
def test_a_request_in_one_word(short: str, flags: str) -> None:
    assert make_request(short=short).flags() == flags


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"short": "pytorch:cu124-what"}, "what is 'what'?"),
        ({"short": "pytorch:cu124-cpu"}, "cu124 and cpu: which one?"),
        ({"short": "pytorch:cu124", "cuda": "cpu"}, "pytorch:cu124 and --cuda cpu: which one?"),
        ({"short": "pytorch:cu124", "framework": "tensorflow"}, "pytorch:cu124 and --framework tensorflow"),
    ],
)
def test_a_request_in_one_word_is_said_once(words: dict[str, str], said: str) -> None:
    with pytest.raises(RequestError, match=re.escape(said)):
        make_request(**words)
