"""``trainwright.api``: what programs call, as docs/api.md shows it; it answers with records and prints nothing."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.report_records import IMAGE, full_record
from trainwright import api
from trainwright.build import smoke as smoking
from trainwright.build import store
from trainwright.core.errors import EngineError, RequestError
from trainwright.core.paths import data_root
from trainwright.engine.engine import Client, Engine
from trainwright.prove.smoke import SmokeDocument

ENGINE = Engine(Client("/bin/false", "builtin", "20.10", "plain"), "20.10")
ANSWERS, BUILDS = re.findall(r"^```python\n(.*?)^```", (data_root() / "docs" / "api.md").read_text(), re.M | re.S)


@pytest.fixture
def quiet(capfd, monkeypatch, tmp_path, own_places):
    """A working folder of its own, in which nothing is printed."""
    monkeypatch.chdir(tmp_path)
    yield capfd
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def built(monkeypatch):
    """What the engine was asked for: builds and smoke runs end at once, with a full record."""
    asked: list[object] = []

    def build(inputs, folder, engine, *, options, **_):
        assert "FROM" in (folder / "Dockerfile").read_text()
        asked.append(options)
        return SimpleNamespace(image_id=IMAGE)

    def smoke(record, image, engine, *, bar, **_):
        asked.append((image, bar))
        return record, SmokeDocument(**{**full_record().smoke, "rows": ()})

    def keep(*_, **__):
        store.save(full_record())
        return full_record()

    def connect(*, setup, **_):
        asked.append(setup)
        return ENGINE

    monkeypatch.setattr("trainwright.engine.engine.connect", connect)
    monkeypatch.setattr("trainwright.sources.fetch.fetch", lambda inputs, **_: inputs)
    monkeypatch.setattr("trainwright.sources.reachability.check_sources", lambda *_: None)
    monkeypatch.setattr("trainwright.engine.setup.ensure_tool", lambda *_, **__: None)
    monkeypatch.setattr("trainwright.build.context.write_context", _dockerfile)
    monkeypatch.setattr("trainwright.build.build.run_build", build)
    monkeypatch.setattr("trainwright.build.weigh.layers_in_engine", lambda *_: [])
    monkeypatch.setattr("trainwright.build.build.probe_image", lambda *_, **__: {})
    monkeypatch.setattr("trainwright.build.build.record_image", keep)
    monkeypatch.setattr(smoking, "smoke_record", smoke)  # loaded before: it binds connect
    monkeypatch.setattr("trainwright.build.store.built_record", lambda image, _: store.find_record(image))
    return asked


def _dockerfile(inputs, folder, **_):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Dockerfile").write_text("FROM scratch\n")


def test_the_example_of_answers_runs(capsys, own_places):
    exec(compile(ANSWERS, "docs/api.md", "exec"), {})
    out, err = capsys.readouterr()
    assert "trainwright/pytorch:" in out and "FROM " in out and "./invoke build --framework pytorch" in out
    assert err == ""


def test_the_example_of_a_build_runs(capsys, built, own_places):
    exec(compile(BUILDS, "docs/api.md", "exec"), {})
    setup, options, again, smoke = built
    assert (setup, again) == (False, False), "an engine is never set up"
    assert (options.progress, options.tags) == ("none", ("team/trainer:nightly",))
    assert smoke == (IMAGE, False)
    assert "trainwright/pytorch:" in capsys.readouterr().out


def test_a_smoke_run_of_a_build_shows_no_bar(quiet, built, monkeypatch):
    monkeypatch.setattr("trainwright.build.build.record_image", lambda *_, **__: full_record().replace(smoke=None))
    api.build("pytorch:cpu", smoke=True)
    assert built[2:] == [(full_record().tags[0], False)]


def test_without_an_engine_a_build_fails_and_sets_none_up(quiet, monkeypatch):
    def none(*, setup: bool, say: object) -> Engine:
        raise EngineError(f"set up: {setup}")

    monkeypatch.setattr("trainwright.engine.engine.connect", none)
    with pytest.raises(api.Failure, match="set up: False"):
        api.build("pytorch:cpu")


def test_a_context_is_written_where_it_is_asked_for(quiet, monkeypatch, tmp_path):
    said: list[str] = []
    monkeypatch.setattr("trainwright.sources.fetch.fetch_base", lambda inputs, *, say: say("base") or inputs)
    monkeypatch.setattr("trainwright.build.context.write_context", _dockerfile)
    rendered = api.render("pytorch:cpu", folder=Path("image"), say=said.append)
    assert rendered.folder == tmp_path / "image"
    assert (rendered.folder / "Dockerfile").is_file()
    assert said == ["base"]
    assert rendered.plan == api.plan("pytorch:cpu")


@pytest.mark.parametrize("ask", [lambda: api.plan("pytorch:cu12x"), api.request])
def test_a_request_that_cannot_be_read_is_refused(quiet, ask):
    with pytest.raises(RequestError) as refused:
        ask()
    assert refused.value.exit_code == 2 and refused.value.remedy


def test_a_request_is_what_the_flags_are(quiet, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").touch()
    (tmp_path / "r.txt").touch()
    made = api.request(
        **{"framework": "pytorch", "cuda": "cu124", "version": "2.6.0", "python": "3.11", "base": "debian"},
        **{"with_": ["metis", "rmm"], "without": ["nccl"], "set_": {"nccl": "2.21.5"}, "allow_unproven": True},
        **{"requirements": Path("r.txt"), "code": Path("src"), "entry_point": "train.py"},
    )
    flags = "--framework pytorch --cuda cu124 --version 2.6.0 --python 3.11 --base debian --with metis,rmm"
    assert made.flags().startswith(f"{flags} --without nccl --set nccl=2.21.5 --with-requirements ")
    assert made.flags().endswith("/src --entry-point train.py --allow-unproven")
    assert api.request("pytorch:2.6.0-cu124").flags() == "--framework pytorch --cuda cu124 --version 2.6.0"


def test_a_report_of_an_image_that_was_not_built_is_refused(quiet):
    with pytest.raises(api.Failure, match="no image that was built here"):
        api.report("team/trainer:1")


def test_the_types_travel_with_the_package():
    assert (Path(api.__file__).parent / "py.typed").is_file()
