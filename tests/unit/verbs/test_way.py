"""The one way: which steps there are, in which order, and that none runs after one that failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.build_records import record_of
from trainwright.build.options import BuildOptions
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import RequestError, SourceError
from trainwright.engine.engine import Client, Engine
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.push.references import PushTarget
from trainwright.site.site import Site
from trainwright.verbs import way
from trainwright.verbs.build import stage_names
from trainwright.verbs.build_flags import BuildFlags
from trainwright.verbs.request import begin
from trainwright.verbs.state import State, run

ENGINE = Engine(Client("/bin/false", "builtin", "20.10", "plain"), "20.10")

pytestmark = pytest.mark.usefixtures("own_places")


def start(**asked: object) -> State:
    request = make_request(framework="pytorch", cuda="cu113", version="1.10.2")
    state = State(say=lambda _: None, site=Site(), catalog=load_catalog(), request=request)
    return replace(state, options=BuildOptions(), engine=ENGINE, **asked)


def test_the_way_reads_as_the_readme_says_it():
    names = [step.__name__ for step in way.STEPS]
    assert names[:5] == ["resolve", "gather", "check", "fetch", "render"]
    assert names[5:10] == ["look", "prove_there", "build", "weigh", "probe"]
    assert names[10:] == ["keep_wheels", "tag_and_record", "smoke", "push"]
    assert all(step.__doc__ for step in way.STEPS)
    assert way.upto("gather") == way.STEPS[:2]


def test_each_step_adds_to_the_state_and_changes_none():
    first = start()
    second = run(way.upto("resolve"), first)
    third = run([way.gather], second)
    assert (first.plan, second.inputs) == (None, None)
    assert third.plan == second.plan
    assert third.inputs is not None and third.inputs.resolved == third.plan


def test_sources_are_asked_before_anything_is_fetched(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def dead(*_: object, **__: object) -> None:
        raise SourceError("nothing answers")

    def fetch(*_: object, **__: object) -> None:
        pytest.fail("fetched before the sources were asked")

    monkeypatch.setattr("trainwright.sources.reachability.check_sources", dead)
    monkeypatch.setattr("trainwright.sources.fetch.fetch", fetch)
    gathered = run(way.upto("gather"), start())
    assert gathered.inputs is not None
    assert any(archive.sha256 is None for archive in gathered.inputs.archives), "there is something to fetch"
    with pytest.raises(SourceError, match="nothing answers"):
        run(way.STEPS[2:], gathered)


def test_nothing_is_asked_for_stages_or_where_it_is_not_wanted(monkeypatch):
    monkeypatch.setattr(
        "trainwright.sources.reachability.check_sources", lambda *_, **__: pytest.fail("the sources were asked")
    )
    gathered = run(way.upto("gather"), start())
    run([way.check], replace(gathered, stages=("tools",)))
    run([way.check], replace(gathered, options=BuildOptions(skip_source_check=True)))


def test_no_step_runs_after_one_that_failed():
    ran: list[State] = []

    def fails(state: State) -> State:
        raise RequestError("no")

    def runs(state: State) -> State:
        ran.append(state)
        return state

    with pytest.raises(RequestError):
        run([runs, fails, runs], start())
    assert len(ran) == 1


def test_what_a_step_holds_is_let_go_of_at_the_end():
    gone: list[str] = []

    def holds(state: State) -> State:
        state.held.callback(gone.append, "the context")
        return state

    def fails(state: State) -> State:
        assert not gone
        raise RequestError("no")

    with pytest.raises(RequestError):
        run([holds, fails], start())
    assert gone == ["the context"]


def test_an_image_is_pushed_nowhere_unless_it_is_asked_for():
    state = start()
    assert way.push(state) is state


@pytest.mark.parametrize(("soci", "leave"), [(True, False), (False, True)])
def test_a_build_is_pushed_as_the_project_file_and_its_flags_say(monkeypatch, tmp_path, soci, leave):
    asked = []
    monkeypatch.setattr("trainwright.push.push.push_images", lambda *words, **_: asked.append(words[3]))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trainwright.toml").write_text(f'[image]\nframework = "pytorch"\nsoci = {str(soci).lower()}\n')
    begun = begin(BuildFlags(), options=BuildOptions())
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), load_catalog())
    target = PushTarget("team/x", ("us-west-2",), "1" * 12)
    way.push(replace(begun, target=target, leave_tags=leave, record=record_of(plan, f"sha256:{'1' * 64}")))
    assert [(options.soci, options.leave_tags) for options in asked] == [(soci, leave)]


@pytest.mark.parametrize(("text", "names"), [("a, b,a", ("a", "b")), (" ,", None), ("", None)])
def test_names_of_stages(text, names):
    if names is None:
        with pytest.raises(RequestError, match="no stage is named"):
            stage_names(text)
    else:
        assert stage_names(text) == names


def test_the_list_is_read_without_an_engine_or_templates():
    program = "import sys; import trainwright.verbs.way; print(*{m.split('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"docker", "jinja2", "boto3", "yaml"}
    assert Path(way.__file__).name == "way.py"


@pytest.mark.parametrize("region", ["mars-1", "eu-north-9", "Mars!"])
def test_a_region_that_does_not_exist_is_refused(monkeypatch, region):
    monkeypatch.setenv("AWS_REGION", region)
    request = make_request(framework="pytorch", version="2.8.0", base="dlc")
    with pytest.raises(RequestError, match="no Deep Learning Containers in a region"):
        run(way.upto("resolve"), replace(start(), request=request))


def test_only_a_container_is_looked_at():
    gathered = run(way.upto("gather"), start())
    assert way.look(gathered) is gathered
