"""An image proven as a step of its own build: it says what a container says, and what is wrong in it comes home."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from trainwright.build.build import ProofWanted, run_build
from trainwright.build.context import write_context
from trainwright.build.options import BuildOptions
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import ProofFailed
from trainwright.core.runner import Completed, run
from trainwright.engine.buildkit import command
from trainwright.engine.engine import connect
from trainwright.plan.plan import Plan
from trainwright.plan.request import make_request
from trainwright.prove import in_build, smoke
from trainwright.site.site import load_site
from trainwright.verbs import way
from trainwright.verbs.state import State, known
from trainwright.verbs.state import run as run_steps

# What the engine or the builder brings into a container or a build step.
OF_THE_PLACE = {"HOSTNAME", "HOME", "TERM"}
MTAB = len("/proc/mounts")  # /etc/mtab, a link that the engine makes in a container
# Half of the time, and nothing in them depends on the place.
LONG = ("pytorch", "sagemaker-toolkit")


@pytest.fixture
def ready(proven: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    """The CPU line, which is in the builder's cache, ready to be built."""
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    request = make_request(framework="pytorch", cuda="cpu")
    first = State(say=print, site=load_site(), catalog=load_catalog(), request=request)
    first = replace(first, options=BuildOptions(progress="none", skip_source_check=True))
    return run_steps(way.upto("fetch"), first)


def prove(state: State, folder: Path, asked: str = in_build.ALL, plan: Plan | None = None) -> smoke.BuiltProof:
    """What a build step of the image says; the plan may be another one of the same image."""
    inputs = known(state.inputs)
    inputs = inputs if plan is None else type(inputs)(**{**vars(inputs), "plan": plan})
    write_context(inputs, folder / "context", say=print)
    path = folder / "context/proof/request.json"
    request = json.loads(path.read_text())
    request["tests"] = [name for name in request["tests"] if Path(name).parent.name not in LONG]
    path.write_text(json.dumps(request))
    run_build(
        inputs,
        folder / "context",
        known(state.engine),
        options=known(state.options),
        builder=known(state.builder),
        arguments=state.arguments,
        proof=ProofWanted(folder / "results", asked),
        say=print,
    )
    return in_build.read(folder / "results", folder / "context", asked=asked)


def test_it_finds_what_containers_find(ready, proven, tmp_path):
    proof = prove(ready, tmp_path)
    record = json.loads(Path(proven["build"]["record"]).read_text())
    there, here = dict(record["probe"]), dict(proof.found)
    del there["image"]
    assert there.pop("bytes") - here.pop("bytes") == MTAB
    variables = [found.pop("environment") for found in (there, here)]
    one, other = ({k: v for k, v in found.items() if k not in OF_THE_PLACE} for found in variables)
    assert one == other
    assert here == there
    # The same tests with the same outcome; those that were left are known by their reasons.
    rows = {f"{row['component']}::{row['check']}": row for row in proven["smoke"]["rows"]}
    compared = {name for name in rows if name.partition("::")[0] not in LONG}
    ran = {f"{row.component}::{row.check}": row for row in proof.rows}
    assert ran.keys() | proof.left.keys() == compared
    assert ran.keys().isdisjoint(proof.left)
    assert {name: (row.outcome, row.reason) for name, row in ran.items()} == {
        name: (rows[name]["outcome"], rows[name]["reason"]) for name in ran
    }
    assert len(ran) > 60 and 10 < len(proof.left) < 20
    assert sum(path.stat().st_size for path in (tmp_path / "results").iterdir()) < 500_000, "kilobytes come back"
    # A container runs the rest, and the report is that of all.
    image, client = proven["build"]["image_id"], known(ready.engine).client.path
    report = smoke.smoke(
        client, image, known(ready.plan).as_json(), record["probe"], tmp_path / "report", bar=False, before=proof
    )
    whole = {f"{row.component}::{row.check}": row.outcome for row in report.rows}
    assert compared <= whole.keys()
    assert whole == {name: rows[name]["outcome"] for name in whole}


def test_a_planted_fault_comes_home_and_fails_the_stage(ready, proven, tmp_path):
    plan, wrong = known(ready.plan), ("metis", "version")
    expect = tuple(e.replace(value="9.9.9") if (e.component, e.fact) == wrong else e for e in plan.expect)
    with pytest.raises(ProofFailed, match=r"metis: version should be 9\.9\.9, the image has 5\.") as failed:
        prove(ready, tmp_path, in_build.PROBE, plan.replace(expect=expect))
    assert failed.value.exit_code == 6
    assert json.loads((tmp_path / "results/probe.json").read_text())["facts"]["metis"]
    # With nothing but a builder and the context, as somebody without this program has them.
    refused = plain(tmp_path / "context", "--target", "proved", "--build-arg", "PROVE=probe")
    assert not refused.ok
    assert "metis: version should be 9.9.9" in refused.stdout + refused.stderr
    made = plain(tmp_path / "context", "--iidfile", str(tmp_path / "id"))
    assert made.ok, made.tail(5)
    try:
        layers = [layers_of(image) for image in ((tmp_path / "id").read_text(), proven["build"]["image_id"])]
        assert layers[0] == layers[1], "without a target it is the image, and nothing of its proof"
    finally:
        run([connect(setup=False).client.path, "rmi", (tmp_path / "id").read_text()])


def plain(context: Path, *words: str) -> Completed:
    engine = connect(setup=False)
    argv = command(engine, load_site(), {}, {})
    return run([*argv, *words, str(context)], env={**os.environ, **engine.cli_env}, timeout=600)


def layers_of(image: str) -> list[str]:
    shown = run([connect(setup=False).client.path, "image", "inspect", image])
    return list(json.loads(shown.stdout)[0]["RootFS"]["Layers"])
