"""A build by a builder that proves its image: what it is asked for, when it is asked again, what counts as proven."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from trainwright.build import proved
from trainwright.build.build import Built
from trainwright.build.options import BuildOptions
from trainwright.build.proved import is_proven, keep_asked, prove_where_built, proves
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import ProofFailed, RequestError
from trainwright.engine.builders import Builder
from trainwright.engine.buildkit_log import BuildProgress, Vertex
from trainwright.engine.engine import Client, Engine
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.prove.smoke import BuiltProof
from trainwright.site.site import Site
from trainwright.sources.gather import gather
from trainwright.verbs import way
from trainwright.verbs.state import State, known, run

CATALOG = load_catalog()
PLAN = resolve(make_request(framework="pytorch", cuda="cpu"), CATALOG)
FARM = Builder("farm", "remote")
ENGINE = Engine(Client("/bin/false", "buildx", "25", "plain"), "25")
PROOF = BuiltProof({"facts": {}}, (), {}, tested=True)
SAID: list[str] = []

pytestmark = pytest.mark.usefixtures("own_places")


def progress(*, image: bool, proof: bool) -> BuildProgress:
    """A build that had steps of the image, and its proof, in the cache."""
    made = BuildProgress("plain")
    steps = [("os", "RUN apt", "os", image), ("pytorch-layer", "RUN uv", "pytorch", True)]
    steps += [("final", "COPY --from=pytorch-layer /out/ /", "pytorch", image), ("proving", "RUN sh", None, proof)]
    for number, (stage, text, component, cached) in enumerate(steps):
        made.vertices[str(number)] = Vertex(
            str(number), stage=stage, step=1, total=1, text=text, component=component, cached=cached, completed=1.0
        )
    return made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the builder was asked for; the test says how it went."""
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(proved, "read", lambda *_, **__: PROOF)
    return calls


def runs(calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, *ways: BuildProgress) -> None:
    def run(*_: object, **words: Any) -> Built:
        calls.append(words)
        return Built("", ways[len(calls) - 1])

    monkeypatch.setattr(proved, "run_build", run)


def prove(*, smoke: bool = True, **options: Any) -> proved.ProofRun:
    inputs = gather(PLAN, CATALOG, Site())
    how = {"options": BuildOptions(**options), "builder": FARM, "arguments": {}, "smoke": smoke, "say": SAID.append}
    return prove_where_built(inputs, Path("/context"), ENGINE, **how)


@pytest.mark.parametrize(("driver", "own"), [("docker", True), ("builtin", True), ("remote", False)])
def test_the_engine_s_own_builder_has_the_image_here(driver: str, own: bool) -> None:
    assert proves(Builder("", driver), PLAN) is not own
    of_aws = PLAN.replace(base=PLAN.base.replace(kind="dlc"))
    assert not proves(FARM, of_aws)
    assert proves(FARM, PLAN, stay=True)
    with pytest.raises(RequestError, match="--stay"):
        proves(FARM, of_aws, stay=True)


def test_what_a_builder_was_asked_is_kept_with_what_it_found(tmp_path: Path, own_places: None) -> None:
    (tmp_path / "proof").mkdir()
    for name in ("plan.json", "request.json"):
        (tmp_path / "proof" / name).write_text(name)
    folder = keep_asked(PLAN, tmp_path, FARM, 61.04)
    assert (folder / "asked/proof/plan.json").read_text() == "plan.json"
    assert json.loads((folder / "build.json").read_text())["seconds"] == 61.0


@pytest.mark.parametrize(("smoke", "word"), [(True, "all"), (False, "probe")])
def test_a_builder_sends_the_results_and_not_the_image(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, smoke: bool, word: str
) -> None:
    runs(asked, monkeypatch, progress(image=False, proof=False))
    proven = prove(smoke=smoke)
    (call,) = asked
    words = call["proof"].words()
    assert words[:2] == ["--target", "proof"]
    assert f"PROVE={word}" in words
    assert words[-1].startswith("type=local,dest=")
    assert proven.proof is PROOF


def test_a_proof_from_the_cache_counts_for_an_image_from_the_cache_alone(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs(asked, monkeypatch, progress(image=True, proof=True))
    prove()
    assert len(asked) == 1
    asked.clear()
    runs(asked, monkeypatch, progress(image=False, proof=True), progress(image=True, proof=False))
    first, again = (prove(no_cache=True), asked)[1]
    # Another word after the first makes the step another one; the image is not built a third time.
    assert first["proof"].asked == "all"
    assert again["proof"].asked.startswith("all ")
    assert (first["options"].no_cache, again["options"].no_cache) == (True, False)


def test_only_an_image_out_of_the_cache_is_the_one_that_was_proven() -> None:
    assert is_proven(progress(image=True, proof=False))
    assert not is_proven(progress(image=False, proof=True))


@pytest.mark.parametrize("kept", [True, False])
def test_an_image_that_was_made_again_is_proven_here(monkeypatch: pytest.MonkeyPatch, kept: bool) -> None:
    first, second = progress(image=False, proof=False), progress(image=kept, proof=False)
    told: list[dict[str, Any]] = []

    def run(*_: object, **words: Any) -> Built:
        told.append(words)
        return Built("sha256:1", second)

    monkeypatch.setattr("trainwright.build.build.run_build", run)
    state = State(say=SAID.append, site=Site(), catalog=CATALOG, options=BuildOptions(no_cache=True))
    state = replace(state, inputs=gather(PLAN, CATALOG, Site()), folder=Path("/context"), engine=ENGINE, builder=FARM)
    done = way.build(replace(state, proven=proved.ProofRun(PROOF, first)))
    assert told[0]["options"].no_cache is False, "it was built a moment ago"
    assert (done.proven is not None) is kept
    stays = replace(state, options=BuildOptions(registry="a.b/c", stay=True), proven=proved.ProofRun(PROOF, first))
    if kept:
        assert way.build(stays).proven is not None
    else:
        with pytest.raises(ProofFailed, match="pushed another"):
            way.build(stays)
    # The steps that took time are those of the first build.
    assert known(done.built).progress is (first if kept else second)


def test_an_image_that_is_not_proven_goes_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ProofFailed("no")

    def leave(state: State) -> State:
        pytest.fail("the image was asked for")

    monkeypatch.setattr("trainwright.build.proved.prove_where_built", refuse)
    state = State(say=SAID.append, site=Site(), catalog=CATALOG, options=BuildOptions())
    state = replace(state, inputs=gather(PLAN, CATALOG, Site()), folder=Path("/context"), engine=ENGINE, builder=FARM)
    with pytest.raises(ProofFailed):
        run([way.prove_there, leave], state)
