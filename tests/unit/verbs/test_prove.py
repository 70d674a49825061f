"""``prove``: its steps are those of the other verbs, a failure ends one line only, and a killed run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.documents import validated
from tests.support.in_process import call
from tests.support.proofs import IMAGE, proof_of, recorded, rehearsed
from trainwright.build import store
from trainwright.core.errors import ProofFailed, RehearsalFailed, RequestError
from trainwright.core.owned import write_atomically
from trainwright.engine.engine import Client, Engine
from trainwright.proofs.home import save
from trainwright.proofs.proof import read
from trainwright.sources.survey import LineSources, SourcesDocument, Unavailable
from trainwright.verbs import prove as verb
from trainwright.verbs.state import State, known

pytestmark = pytest.mark.usefixtures("own_places")
ENGINE = Engine(Client("/bin/false", "builtin", "20.10", "plain"), "20.10")
BUILD = ["gather", "check", "fetch", "render", "look", "prove_there", "build", "weigh", "probe", "keep_wheels"]
BUILD += ["tag_and_record"]


class House:
    """The verbs' own steps, which note that they ran, and fail where a test says so."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.wrong: dict[str, Exception] = {}
        self.missing: tuple[Unavailable, ...] = ()
        self.here = True

    def note(self, name: str) -> None:
        self.ran.append(name)
        if (wrong := self.wrong.get(name)) is not None:
            raise wrong

    def survey(self, entries: Any, *_: Any, **__: Any) -> SourcesDocument:
        self.note("sources")
        ((entry,), none) = entries, ()
        line = entry.line
        row = LineSources(
            framework=line.framework, version=line.version, variant="", cuda="", python="", base="", asked=1, local=0,
            unavailable=self.missing, unpinned=none,
        )  # fmt: skip
        return SourcesDocument(schema="trainwright/sources/1", base_images_asked=True, lines=(row,))

    def lock_plan(self, *_: Any, **told: Any) -> None:
        assert not told["check"] and not told["upgrade"]
        self.note("lock")

    def run(self, steps: Any, state: State) -> State:
        names = [step.__name__ for step in steps]
        if names == ["smoke"]:
            self.note("smoke")
            return state
        assert names == BUILD and state.locked and state.smoke
        self.note("build")
        record = recorded(known(state.plan))
        store.save(record)
        return replace(state, record=record)

    def built_record(self, image: str, _: Engine) -> store.BuildRecord:
        if not self.here:
            raise RequestError("the engine has no such image")
        return known(store.load(image))

    def rehearse(self, job: Any, *_: Any, output: Path, **__: Any) -> None:
        assert (job.image, job.hosts, job.entry_point) == (IMAGE, 2, "train.py")
        outcome = "failed" if "rehearsal" in self.wrong else "passed"
        write_atomically(output / "report.json", json.dumps(rehearsed(outcome=outcome).as_json()))
        self.note("rehearsal")


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    made = House()
    monkeypatch.setattr("trainwright.engine.engine.connect", lambda **_: ENGINE)
    monkeypatch.setattr("trainwright.sources.survey.survey", made.survey)
    monkeypatch.setattr("trainwright.verbs.lock.lock_plan", made.lock_plan)
    monkeypatch.setattr("trainwright.build.store.built_record", made.built_record)
    monkeypatch.setattr("trainwright.rehearse.rehearsal.rehearse", made.rehearse)
    monkeypatch.setattr(verb, "run", made.run)
    return made


@pytest.fixture
def prove(tmp_path: Path, house: House) -> Callable[..., Any]:
    """Call the verb: its exit code, and its rows or its failure."""

    def run(*words: str) -> tuple[int, Any]:
        done = call("prove", *words, "--output", str(tmp_path / "proofs"), "--json", cwd=tmp_path)
        document = validated(done.stdout)
        return done.returncode, document.get("lines", document)

    return run


ALL = ["sources", "lock", "build", "smoke", "rehearsal"]


def test_a_line_goes_through_all_steps_and_gets_its_proof(prove, house, tmp_path):
    code, (row,) = prove("pytorch/cpu")
    assert (code, row["outcome"], row["new"]) == (0, "proven", True)
    assert house.ran == ALL == [step["step"] for step in row["steps"]]
    proof = read(tmp_path / "proofs/pytorch/cpu.json")
    assert (proof.outcome, proof.image, proof.plan) == ("proven", IMAGE, row["plan"])
    assert proof.plan == proof_of().plan


def test_a_proven_line_is_not_proven_again_unless_asked(prove, house):
    prove("pytorch/cpu")
    house.ran.clear()
    code, (row,) = prove("pytorch/cpu")
    assert (code, row["outcome"], row["new"], house.ran) == (0, "proven", False, [])
    code, (row,) = prove("pytorch/cpu", "--again")
    assert (row["new"], house.ran) == (True, ALL)


@pytest.mark.parametrize("step", ALL)
def test_a_failure_ends_its_line_and_the_next_goes_on(prove, house, tmp_path, step):
    wrong = RehearsalFailed if step == "rehearsal" else ProofFailed
    house.wrong[step] = wrong("no such thing", remedy="do another")
    once = house.note

    def first_only(name: str) -> None:
        try:
            once(name)
        except Exception:
            house.wrong.clear()
            raise

    house.note = first_only  # type: ignore[method-assign]
    code, (first, second) = prove("pytorch/cpu", "tensorflow/cpu")
    assert code == 6
    assert (first["outcome"], second["outcome"]) == ("failed", "proven")
    assert house.ran == [*ALL[: ALL.index(step) + 1], *ALL]
    failed = first["steps"][-1]
    assert (failed["step"], failed["outcome"], failed["says"]) == (step, "failed", "no such thing")
    assert failed["remedy"] == "do another"
    proof = read(tmp_path / "proofs/pytorch/cpu.json")
    assert (proof.outcome, proof.failed_step, proof.plan) == ("failed", step, proof_of().plan)
    assert (proof.image is None) is (step in ("sources", "lock", "build"))


@pytest.mark.parametrize("step", ["build", "rehearsal"])
def test_a_failure_does_not_replace_a_proof_of_the_same_plan(prove, house, tmp_path, step):
    path = tmp_path / "proofs/pytorch/cpu.json"
    _, (row,) = prove("pytorch/cpu")
    text = path.read_text()
    house.wrong[step] = RehearsalFailed("no")
    code, (row,) = prove("pytorch/cpu", "--again")
    assert (code, row["outcome"], row["proof"], path.read_text()) == (6, "failed", None, text)
    save(proof_of().replace(plan="0" * 64), tmp_path / "proofs")
    _, (row,) = prove("pytorch/cpu", "--again")
    assert read(Path(row["proof"])).failed_step == step


def test_a_proof_replaces_the_failure_before_it(prove, house, tmp_path):
    house.wrong["build"] = ProofFailed("no")
    prove("pytorch/cpu")
    house.wrong.clear()
    prove("pytorch/cpu")
    assert read(tmp_path / "proofs/pytorch/cpu.json").outcome == "proven"


def test_the_next_command_goes_on_after_what_had_passed(prove, house):
    house.wrong["smoke"] = KeyboardInterrupt()  # type: ignore[assignment]
    done = call("prove", "pytorch/cpu", "--json")
    assert done.returncode == 130
    assert house.ran == ["sources", "lock", "build", "smoke"]
    house.wrong.clear()
    house.ran.clear()
    code, (row,) = prove("pytorch/cpu")
    assert (code, row["outcome"], house.ran) == (0, "proven", ["smoke", "rehearsal"])


def test_an_image_that_is_gone_is_built_again(prove, house):
    house.wrong["rehearsal"] = RehearsalFailed("no")
    prove("pytorch/cpu")
    house.wrong.clear()
    house.ran.clear()
    house.here = False
    prove("pytorch/cpu")
    assert house.ran == ["build", "smoke", "rehearsal"]


def test_a_fault_of_ours_ends_its_line_alone(prove, house, tmp_path):
    house.wrong["lock"] = ZeroDivisionError("planted")
    code, rows = prove("pytorch/cpu", "tensorflow/cpu")
    assert code == 6
    assert [row["outcome"] for row in rows] == ["failed", "failed"]
    assert "planted" in rows[0]["steps"][-1]["says"]
    assert len(list((tmp_path / "state").glob("crash-*.log"))) == 2  # in one second, and neither is left elsewhere


def test_a_source_that_is_missing_is_named(prove, house, tmp_path):
    house.missing = (Unavailable(kind="archive", name="a.tar.gz", needed_by="efa", places={"https://x": "404"}),)
    code, (row,) = prove("pytorch/cpu")
    assert (code, house.ran) == (6, ["sources"])
    assert "archive a.tar.gz" in row["steps"][0]["says"]
    assert read(Path(row["proof"])).failed_step == "sources"
    for text in ("https://x", "a.tar.gz", str(tmp_path)):  # a mirror of the site, what it lacks, a folder
        assert text not in Path(row["proof"]).read_text()


def test_a_base_of_the_site_would_prove_another_image(prove, house, tmp_path):
    (tmp_path / "trainwright.toml").write_text("[registries]\n")
    (tmp_path / "site.toml").write_text('base_image = "registry.example/debian:12"\n')
    code, (row,) = prove("pytorch/cpu", "--site", str(tmp_path / "site.toml"))
    assert (code, house.ran) == (6, [])
    assert "base_image replaces the base" in row["steps"][0]["says"]
    assert row["proof"] is None, "there is no plan that failed"


def test_a_twin_stands_for_the_shipped_line(prove, house, tmp_path):
    own = tmp_path / "twin/images/pytorch/cpu"
    own.mkdir(parents=True)
    shipped = Path("images/pytorch/cpu").absolute()
    text = (shipped / "line.yaml").read_text()
    assert "  metis: " in text
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("  metis: ")]
    (own / "line.yaml").write_text("".join(lines))
    (own / "lock.json").write_text((shipped / "lock.json").read_text())
    code, (row,) = prove("pytorch/cpu", "--twin", "--catalog", str(tmp_path / "twin"))
    assert code == 0, row
    proof = read(tmp_path / "proofs/pytorch/cpu.json")
    assert proof.stands_for == proof_of().plan != proof.plan
    code, (row,) = prove("tensorflow/cpu", "--twin", "--catalog", str(tmp_path / "twin"))
    assert "is the shipped line" in row["steps"][0]["says"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "prove takes image lines, or --import"),
        (["pytorch/cpu", "--import", "x"], "prove takes image lines, or --import"),
        (["pytorch/cpu", "--twin"], "--twin needs --catalog"),
        (["pytorch/cpus"], "no image line matches. Did you mean pytorch/cpu"),
        (["--import", "nowhere.json"], "no such file"),
    ],
)
def test_what_makes_no_sense_is_refused(prove, house, words, said):
    code, failure = prove(*words)
    assert code == 2
    assert said in failure["message"]


def test_people_read_which_step_failed_and_why(house, tmp_path):
    house.wrong["smoke"] = ProofFailed("one check failed\n  metis: no", remedy="look")
    done = call("prove", "pytorch/cpu", "--output", str(tmp_path / "p"))
    head, row, *rest = done.stdout.splitlines()
    assert head.split() == ["line", *ALL]
    assert row.split()[-4:] == ["s", "failed", "-", "failed"]
    assert [line.strip() for line in rest[:3]] == ["one check failed", "metis: no", "look"]
