"""A whole smoke run, where the engine is a shell script and the container this machine; and one on a real image."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from trainwright.core.errors import EngineError, ProofFailed, RequestError
from trainwright.core.paths import templates_dir
from trainwright.prove import smoke, smoke_view
from trainwright.prove.smoke import BuiltProof
from trainwright.prove.smoke_view import read

CONTRACT = """
import pytest

def test_passes(host):
    assert host.check_output("echo here") == "here"

def test_fails(host):
    assert host.run("echo no; false").rc == 0, "it said no"

@pytest.mark.parametrize("word", ["a", "b"])
def test_words(host, plan, probe, word):
    assert plan["id"] == "p" and probe["found"] == 1
"""
METIS = """
import pytest

@pytest.mark.usefixtures("requires_gpu")
def test_gpu():
    raise AssertionError("must not run")

@pytest.fixture
def broken():
    raise RuntimeError("set-up failed")

def test_broken(broken):
    pass

def test_time(within):
    within(0.2, "sleep 5")

def test_python(python):
    python("import no_such_module")
"""
PLAN = {"id": "p", "components": [{"name": "metis"}, {"name": "rmm"}]}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))


@pytest.fixture
def templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "outside" / "templates"
    for path, text in {"contract/test_it.py": CONTRACT, "components/metis/test_metis.py": METIS}.items():
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_text(text)
    (folder / "components" / "rmm").mkdir()
    (folder / "components" / "other").mkdir()
    (folder / "components" / "other" / "test_other.py").write_text("def test_other(): assert False")
    monkeypatch.setattr(smoke, "templates_dir", lambda: folder)
    return folder


@pytest.fixture
def client(tmp_path: Path) -> str:
    path = tmp_path / "docker"
    path.write_text(
        f"""#!/bin/sh
echo "$@" >> {tmp_path}/calls
case $1 in
run) echo 0123456789abcdef ;;
exec) shift 3; exec "$@" ;;
esac
"""
    )
    path.chmod(0o755)
    return str(path)


def outcomes(report: smoke.SmokeReport) -> dict[str, str]:
    return {f"{row.component}:{row.check}": row.outcome for row in report.rows}


def test_a_run(client: str, templates: Path, tmp_path: Path) -> None:
    report = smoke.smoke(client, "img", PLAN, {"found": 1}, tmp_path / "report")
    assert outcomes(report) == {
        "contract:test_passes": "passed",
        "contract:test_fails": "failed",
        "contract:test_words[a]": "passed",
        "contract:test_words[b]": "passed",
        "metis:test_gpu": "skipped",
        "metis:test_broken": "failed",
        "metis:test_time": "failed",
        "metis:test_python": "failed",
        "rmm:no tests": "failed",
    }
    reasons = {row.check: row.reason for row in report.rows}
    assert reasons["test_gpu"] == "not run: no GPU"
    assert "it said no" in reasons["test_fails"]
    assert "set-up failed" in reasons["test_broken"]
    assert reasons["test_time"].startswith("Failed: not finished after 0.2 s: sleep 5")
    assert "ModuleNotFoundError" in reasons["test_python"].splitlines()[0]
    document = report.document(image="tag", image_id="img", plan="p")
    assert (document.image, document.image_id, document.plan) == ("tag", "img", "p")
    assert (document.passed, document.failed, document.skipped) == (3, 5, 1)
    assert document.rows == report.rows
    with pytest.raises(ProofFailed) as failure:
        report.raise_for_failures()
    assert failure.value.exit_code == 6
    assert "contract: test_fails: AssertionError: it said no" in failure.value.message
    assert (tmp_path / "report" / "smoke.xml").is_file()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_run_is_shown_on_a_terminal(
    client: str, templates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(smoke_view, "PAUSE", 0.01)
    monkeypatch.setattr(smoke_view, "read", lambda path: seen.append(read(path)) or seen[-1])
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    smoke.smoke(client, "img", PLAN, {"found": 1}, tmp_path / "report")
    totals, counts = {total for total, _ in seen}, [len(names) for _, names in seen]
    assert totals <= {0, 8}
    assert 8 in totals
    assert counts == sorted(counts)
    assert max(counts) > 1
    assert "test_" in terminal.getvalue()


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_nothing_is_drawn_where_nobody_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    monkeypatch.setenv("TERM", term)
    out = Terminal() if term == "dumb" else io.StringIO()
    with smoke_view.shown(tmp_path / "progress", out):
        pass
    assert out.getvalue() == ""


@pytest.mark.parametrize(("text", "found"), [(None, (0, [])), ("", (0, [])), ("3\n", (3, [])), ("x\na\n", (0, ["a"]))])
def test_how_far_a_run_is(tmp_path: Path, text: str | None, found: tuple[int, list[str]]) -> None:
    if text is not None:
        (tmp_path / "progress").write_text(text)
    assert read(tmp_path / "progress") == found


ELSEWHERE = """
import pytest

@pytest.mark.outside("it needs another host")
@pytest.mark.parametrize("word", ["a", "b"])
def test_two_hosts(host, word):
    assert host.check_output(f"echo {word}") == "a"

def test_of_the_builder():
    raise AssertionError("the builder ran it")

@pytest.mark.usefixtures("requires_gpu")
def test_gpu(host):
    assert host.run("true").rc == 0
"""
PASSED = {"outcome": "passed", "reason": "", "seconds": 1.0}


def of_the_builder(*left: str) -> BuiltProof:
    rows = [smoke.SmokeRow(component="contract", check="test_of_the_builder", **PASSED)]
    skipped = {"outcome": "skipped", "reason": "not run: no GPU", "seconds": 0.0}
    rows += [smoke.SmokeRow(component="contract", check="test_gpu", **skipped)]
    return BuiltProof({}, tuple(rows), dict.fromkeys(left, "it needs another host"), tested=True)


@pytest.mark.parametrize("gpus", [False, True])
def test_a_container_runs_what_a_builder_has_left(client: str, templates: Path, tmp_path: Path, gpus: bool) -> None:
    (templates / "contract/test_it.py").write_text(ELSEWHERE)
    before = of_the_builder("contract::test_two_hosts[a]", "contract::test_two_hosts[b]")
    plan = {"id": "p", "components": []}
    report = smoke.smoke(client, "img", plan, {}, tmp_path / "report", gpus=gpus, before=before)
    assert outcomes(report) == {
        "contract:test_of_the_builder": "passed",
        "contract:test_gpu": "passed" if gpus else "skipped",
        "contract:test_two_hosts[a]": "passed",
        "contract:test_two_hosts[b]": "failed",
    }
    assert len(report.rows) == 4


def test_a_builder_that_left_another_test_is_refused(client: str, templates: Path, tmp_path: Path) -> None:
    (templates / "contract/test_it.py").write_text(ELSEWHERE)
    before = of_the_builder("contract::test_of_another_version")
    with pytest.raises(ProofFailed, match="test_of_another_version"):
        smoke.smoke(client, "img", {"id": "p", "components": []}, {}, tmp_path / "report", before=before)


def test_all_tests_run_where_a_builder_has_run_none(client: str, templates: Path, tmp_path: Path) -> None:
    before = BuiltProof({}, (), {}, tested=False)
    report = smoke.smoke(client, "img", PLAN, {"found": 1}, tmp_path / "report", before=before)
    assert len(report.rows) == 9


def test_the_container_is_removed(client: str, templates: Path, tmp_path: Path) -> None:
    smoke.smoke(client, "img", PLAN, {"found": 1}, tmp_path / "report")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[0].startswith("run -d --init --name trainwright-smoke-")
    assert "--label io.trainwright.session=" in calls[0]
    assert calls[0].endswith("--shm-size 1g --entrypoint sleep img infinity")
    assert "--gpus" not in calls[0]
    assert calls[-1].startswith("rm -f trainwright-smoke-")


def test_a_container_with_gpus(client: str, templates: Path, tmp_path: Path) -> None:
    report = smoke.smoke(client, "img", PLAN, {"found": 1}, tmp_path / "report", gpus=True, select="test_gpu")
    assert "--gpus all" in (tmp_path / "calls").read_text()
    assert outcomes(report) == {"metis:test_gpu": "failed"}


def test_selection(client: str, templates: Path, tmp_path: Path) -> None:
    report = smoke.smoke(client, "img", PLAN, {"found": 1}, tmp_path / "report", select="contract")
    assert {row.component for row in report.rows} == {"contract"}
    with pytest.raises(RequestError, match="nonsense"):
        smoke.smoke(client, "img", PLAN, {"found": 1}, tmp_path / "report", select="nonsense")


def test_a_component_of_a_folder_of_ones_own_can_be_selected(client: str, templates: Path, tmp_path: Path) -> None:
    own = tmp_path / "own" / "components" / "rmm"
    own.mkdir(parents=True)
    (own / "test_rmm.py").write_text("def test_mine():\n    pass\n")
    plan = {**PLAN, "components": [*PLAN["components"], {"name": "rmm"}]}
    report = smoke.smoke(client, "img", plan, {"found": 1}, tmp_path / "r", select="rmm/", folders={"rmm": own})
    assert outcomes(report) == {"rmm:test_mine": "passed"}


def test_nothing_of_the_user_s_pytest_leaks_in(
    client: str, templates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")
    monkeypatch.setenv("PYTEST_PLUGINS", "no_such_plugin")
    (templates.parent / "conftest.py").write_text("raise RuntimeError('a conftest above the templates')")
    (templates.parent / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    (templates / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    report = smoke.smoke(client, "img", PLAN, {"found": 1}, tmp_path / "report", select="test_passes")
    assert outcomes(report) == {"contract:test_passes": "passed"}
    report.raise_for_failures()
    assert [p for p in templates.rglob("*") if p.name in ("__pycache__", ".pytest_cache")] == []


def test_a_broken_test_file_fails(client: str, templates: Path, tmp_path: Path) -> None:
    (templates / "components" / "rmm" / "test_rmm.py").write_text("import no_such_module\n")
    with pytest.raises(ProofFailed, match="were not completed"):
        smoke.smoke(client, "img", PLAN, {"found": 1}, tmp_path / "report")


def test_an_engine_that_refuses(templates: Path, tmp_path: Path) -> None:
    refusing = tmp_path / "docker"
    refusing.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\necho "no such image" >&2\nexit 125\n')
    refusing.chmod(0o755)
    with pytest.raises(EngineError, match="no such image"):
        smoke.smoke(str(refusing), "img", PLAN, {}, tmp_path / "report")
    assert "rm -f" in (tmp_path / "calls").read_text()


def test_a_container_that_dies(client: str, templates: Path, tmp_path: Path) -> None:
    # The fake container's shell is the parent of `timeout`, which is the parent of the command's shell.
    (templates / "contract" / "test_it.py").write_text(
        "def test_kills(host):\n    host.run('kill -9 $(ps -o ppid= -p $PPID)')\n"
        "def test_after(host):\n    assert host.run('true').rc == 0\n"
    )
    report = smoke.smoke(client, "img", PLAN, {"found": 1}, tmp_path / "report", select="contract")
    assert outcomes(report) == {"contract:test_kills": "failed", "contract:test_after": "failed"}
    assert all("exited during the tests" in row.reason for row in report.rows)


@pytest.mark.parametrize(("place", "checks"), [(None, 2), ("sagemaker", 2), ("ec2", 1), ("hyperpod", 1)])
def test_an_image_for_another_place_is_not_held_to_sagemaker_s_contract(
    client: str, templates: Path, tmp_path: Path, place: str | None, checks: int
) -> None:
    (templates / "contract" / "test_it.py").write_text(
        "import pytest\n@pytest.mark.sagemaker\ndef test_train(): pass\ndef test_image(): pass\n"
    )
    plan = PLAN if place is None else {**PLAN, "destination": place}
    report = smoke.smoke(client, "img", plan, {"found": 1}, tmp_path / "report", select="contract")
    assert {row.check for row in report.rows} == {"test_image", "test_train" if checks == 2 else "test_image"}


def test_every_shipped_component_has_tests() -> None:
    names = [path.name for path in (templates_dir() / "components").iterdir() if path.is_dir()]
    files, untested = smoke.collect(templates_dir(), names)
    assert untested == []
    assert all(
        file.name == f"test_{file.parent.name.replace('-', '_')}.py" for file in files if "components" in file.parts
    )


def test_shipped_tests_import_nothing_of_trainwright() -> None:
    for file in [*(templates_dir() / "contract").glob("*.py"), *templates_dir().glob("components/*/test_*.py")]:
        assert "trainwright" not in "".join(line for line in file.read_text().splitlines() if "import" in line), file


def test_a_check_that_the_base_fails_as_well_is_the_base_s() -> None:
    def rows(*outcomes: tuple[str, str]) -> smoke.SmokeReport:
        made = (
            smoke.SmokeRow(component="contract", check=check, outcome=outcome, reason="no", seconds=0)  # type: ignore[arg-type]
            for check, outcome in outcomes
        )
        return smoke.SmokeReport(image="i", rows=tuple(made), seconds=1)

    ours = rows(("entrypoint", "failed"), ("train", "failed"), ("bash", "passed"))
    found = smoke.excused(ours, rows(("entrypoint", "failed"), ("train", "passed"), ("bash", "failed")))
    assert [row.outcome for row in found.rows] == ["skipped", "failed", "passed"]
    assert found.rows[0].reason == "of the base image, where it fails, too: no"
    assert found.seconds == 2
