"""The build progress of real engines (samples in buildkit/), whole, cut into pieces, and spoilt."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import some
from trainwright.engine.buildkit_log import BuildProgress, LogFormat

DATA = Path(__file__).parent / "buildkit"
FORMATS: list[LogFormat] = ["plain", "rawjson"]


def sample(name: str, kind: str) -> str:
    return (DATA / f"{'raw' if kind == 'rawjson' else 'plain'}-{name}.txt").read_text()


def read(text: str, format: LogFormat = "auto") -> BuildProgress:
    progress = BuildProgress(format, clock=lambda: 100.0)
    for line in text.splitlines():
        progress.feed(line)
    progress.close()
    return progress


def facts(progress: BuildProgress) -> object:
    return [repr(vertex) for vertex in progress.vertices.values()], list(progress.text), progress.failed


def compact(text: str) -> str:
    """The same rawjson stream with one object per line, as newer buildx prints it."""
    lines, rest, decoder = [], text, json.JSONDecoder()
    while rest.strip():
        rest = rest.lstrip()
        if rest.startswith("{"):
            document, end = decoder.raw_decode(rest)
            lines.append(json.dumps(document))
            rest = rest[end:]
        else:
            line, _, rest = rest.partition("\n")
            lines.append(line)
    return "\n".join(lines)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_cold_build_names_stages_steps_seconds_and_output(kind: LogFormat) -> None:
    progress = read(sample("cold", kind))
    metis = [vertex for vertex in progress.steps if vertex.stage == "metis" and vertex.text.startswith("RUN")]
    assert [(vertex.step, vertex.total, vertex.state) for vertex in metis] == [(2, 3, "done"), (3, 3, "done")]
    assert {line.lower().replace(": w", " ") for line in metis[0].log} == {
        "configuring",
        *(f"{what} {i}" for i in (1, 2, 3) for what in ("compile", "warning")),
    }
    assert 0.6 <= (metis[0].seconds or 0) <= 1.5
    assert progress.failed is None
    assert progress.problem == ""
    assert all(vertex.state in {"done", "cached"} for vertex in progress.vertices.values())
    names = [vertex.name for vertex in progress.vertices.values() if vertex.step is None]
    assert "[internal] load build context" in names and "exporting to image" in names
    assert progress.seconds["exporting to image"] >= 0


@pytest.mark.parametrize("kind", FORMATS)
def test_output_without_a_line_end_does_not_hide_the_end_of_its_step(kind: LogFormat) -> None:
    # 20.10 prints "#8 0.482 two without end#8 DONE 0.6s" on one line.
    step = next(vertex for vertex in read(sample("cold", kind)).steps if "two without end" in vertex.text)
    assert step.state == "done"
    assert list(step.log) == ["one", "two without end"]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_warm_build_is_counted_as_cached(kind: LogFormat) -> None:
    counts = read(sample("warm", kind)).counts
    assert counts.failed == 0
    assert counts.done == counts.total >= 9
    assert counts.cached >= counts.total - 1  # FROM is "done" at once


@pytest.mark.parametrize("kind", FORMATS)
def test_a_failed_step_has_its_stage_exit_code_and_last_lines(kind: LogFormat) -> None:
    progress = read(sample("fail", kind))
    failed = progress.failed
    assert failed is not None
    assert (failed.stage, failed.step, failed.exit_code) == ("final", 5, 7)
    assert failed.name.startswith("[final 5/5] RUN echo about to fail")
    assert failed.log == tuple(f"line {i}" for i in range(11, 31))
    assert "exit code: 7" in progress.problem
    assert progress.counts.failed == 1


@pytest.mark.parametrize("kind", FORMATS)
def test_a_broken_dockerfile_is_a_problem_without_a_step(kind: LogFormat) -> None:
    progress = read(sample("bad", kind))
    assert progress.failed is None
    assert "parse error line 2: unknown instruction: RUNN" in progress.problem


@pytest.mark.parametrize("name", ["cold", "warm", "fail", "bad"])
def test_one_object_per_line_reads_as_pretty_printed_ones(name: str) -> None:
    text = sample(name, "rawjson")
    assert facts(read(compact(text))) == facts(read(text))


@settings(max_examples=some(100), deadline=None)
@given(st.sampled_from(FORMATS), st.sampled_from(["cold", "fail"]), st.lists(st.integers(1, 4000), max_size=30))
def test_any_chunking_gives_the_same_build(kind: LogFormat, name: str, cuts: list[int]) -> None:
    text = sample(name, kind)
    progress, at = BuildProgress(clock=lambda: 100.0), 0
    for size in cuts:
        progress.write(text[at : at + size])
        at += size
    progress.write(text[at:])
    progress.close()
    assert facts(progress) == facts(read(text))


_WORDS = [
    "#",
    "1",
    " ",
    "DONE 0.1s",
    "CACHED",
    "ERROR: x",
    "[a 2/3] RUN",
    "{",
    "}",
    '"',
    '{"vertexes":[',
    "\n",
    "0.1 ",
    "\r",
]


@settings(max_examples=some(300), deadline=None)
@given(
    st.sampled_from(["auto", "plain", "rawjson"]),
    st.one_of(st.text(), st.lists(st.one_of(st.sampled_from(_WORDS), st.text(max_size=5))).map("".join)),
)
def test_garbage_never_raises(format: LogFormat, text: str) -> None:
    progress = BuildProgress(format)
    progress.write(text)
    progress.close()
    assert progress.counts.failed == sum(vertex.state == "failed" for vertex in progress.steps)
    assert progress.failed is None or progress.failed.error
    assert isinstance(progress.problem, str) and isinstance(progress.seconds, dict)


_JSON = st.recursive(st.one_of(st.none(), st.booleans(), st.floats(), st.text()), lambda v: st.lists(v, max_size=3))
_ROW = st.dictionaries(
    st.sampled_from(["digest", "vertex", "name", "started", "completed", "cached", "error", "data", "id", "short"]),
    _JSON,
)


@settings(max_examples=some(200), deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["vertexes", "statuses", "logs", "warnings"]), st.one_of(_JSON, st.lists(_ROW, max_size=3))
    )
)
def test_json_of_another_shape_never_raises(document: dict[str, object]) -> None:
    read(json.dumps(document), "rawjson")


def test_text_that_looks_like_json_does_not_swallow_what_follows() -> None:
    text = sample("fail", "rawjson")
    progress = read('{not json\n{"a": [1, 2\n' + text, "rawjson")
    assert progress.failed is not None and progress.failed.exit_code == 7
    assert "{not json" in progress.text


def test_very_deep_json_is_text() -> None:
    read('{"a":' * 100_000 + "}", "rawjson")


def test_log_pieces_are_joined_redrawn_and_free_of_escapes() -> None:
    progress = BuildProgress("rawjson")
    for piece in (b"abc", b"def\n", b"10%\r90%\r100%\r\n", b"\x1b[31mred\x1b[0m\xff\n"):
        data = base64.b64encode(piece).decode()
        progress.feed(json.dumps({"logs": [{"vertex": "v", "data": data}]}))
    assert list(progress.vertices["v"].log) == ["abcdef", "100%", "red\ufffd"]
    assert progress.vertices["v"].last_line == "red\ufffd"


def test_names_are_taken_apart() -> None:
    lines = [
        "#1 [2/3] RUN a",
        "#2 [final  4/12] COPY --from=x [a] /b",
        "#3 [internal] load build context",
        "#4 [linux/amd64 os 1/2] FROM x",
    ]
    one, two, three, four = read("\n".join(lines)).vertices.values()
    assert (one.stage, one.step, one.total, one.text) == ("", 2, 3, "RUN a")
    assert (two.stage, two.step, two.total, two.text) == ("final", 4, 12, "COPY --from=x [a] /b")
    assert (three.stage, three.step, three.text) == (None, None, "[internal] load build context")
    assert four.stage == "linux/amd64 os"


def test_interleaved_steps_keep_apart_and_cancelled_ones_did_not_fail() -> None:
    progress = read(
        "#5 [a 1/2] RUN x\n#5 0.1 from a\n#5 ...\n\n#6 [b 1/2] RUN y\n#6 0.1 from b\n#5 [a 1/2] RUN x\n"
        "#5 CANCELED\n#6 extracting sha256:00 0.1s done\n#6 ERROR: process did not complete: exit code: 137\n"
    )
    five, six = progress.vertices["5"], progress.vertices["6"]
    assert (five.state, list(five.log)) == ("canceled", ["from a"])
    assert (six.state, list(six.log), six.status) == ("failed", ["from b"], "extracting sha256:00 0.1s done")
    assert progress.failed is not None and progress.failed.stage == "b" and progress.failed.exit_code == 137


def test_a_taken_up_step_runs_again_and_changes_are_counted() -> None:
    progress = BuildProgress("rawjson")
    for row in (
        {"name": "[a 1/1] RUN x"},
        {"started": "2026-01-01T00:00:00.123456789Z"},
        {"started": "2026-01-01T00:00:00Z", "completed": "2026-01-01T00:00:01Z"},
        {"started": "2026-01-01T00:00:02Z"},
        {"started": "2026-01-01T00:00:02Z", "completed": "2026-01-01T00:00:04.5Z"},
    ):
        progress.feed(json.dumps({"vertexes": [{"digest": "d", **row}]}))
    assert progress.vertices["d"].seconds == pytest.approx(2.5)
    assert progress.changes == 4
