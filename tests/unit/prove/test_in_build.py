"""Proofs that a builder makes: the step itself, on this machine, and what is read of the results that it sends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from trainwright.catalog import image_line
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import ProofFailed
from trainwright.core.paths import templates_dir
from trainwright.plan import destination
from trainwright.plan.plan import Expectation, Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.prove import differences, image_testing, in_build, probe, smoke

pytestmark = pytest.mark.usefixtures("own_places")

CATALOG = load_catalog()
CONTRACT = """
import sys
import pytest

def test_commands_have_the_image_s_variables(host):
    assert host.check_output("echo $OF_THE_IMAGE-$PROVE-$https_proxy-$PYTHONPATH; pwd") == "yes---\\n/"

def test_nothing_else_of_trainwright_is_there(plan, probe):
    assert plan["id"] and "image" not in probe
    assert not [name for name in sys.modules if name.startswith(("trainwright.core", "trainwright.plan"))]

@pytest.mark.outside("it needs a second host")
@pytest.mark.parametrize("word", ["a", "b"])
def test_left(word):
    raise AssertionError("must not run in a build step")

@pytest.mark.usefixtures("requires_gpu")
def test_gpu():
    raise AssertionError("must not run")
"""
METIS = """
def test_reads_what_the_probe_found(probe):
    assert probe["facts"]["metis"]["version"] == "5"
"""
# Prints what the real one would, of an image that has METIS.
PROBE = """
import json, os, sys
assert json.loads(sys.argv[1])["secrets"]["secret"]
print(json.dumps({"facts": {"metis": {"version": "5"}}, "environment": dict(os.environ)}))
"""


@pytest.fixture
def templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return templates_in(tmp_path, monkeypatch)


def templates_in(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = place / "templates"
    shutil.copytree(templates_dir() / "proof", folder / "proof")
    texts = {"contract/test_it.py": CONTRACT, "components/metis/test_metis.py": METIS, "probe/probe.py": PROBE}
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
    for module in (in_build, probe):
        monkeypatch.setattr(module, "templates_dir", lambda: folder)
    return folder


def plan_of(value: str = "5") -> Plan:
    """A plan of METIS alone, that expects its version."""
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), CATALOG)
    metis = [c.replace(sources=(), packages=()) for c in plan.components if c.name == "metis"]
    expected = Expectation(component="metis", fact="version", value=value)
    return plan.replace(components=tuple(metis), expect=(expected,), environment={"OF_THE_IMAGE": "yes"})


Prove = Callable[..., Path]


@pytest.fixture
def prove(tmp_path: Path, templates: Path) -> Prove:
    """``prove(plan)``: what a builder sends, made by the program of the build step on this machine."""

    return partial(prove_in, tmp_path)


def prove_in(place: Path, plan: Plan, asked: str = "all", python: tuple[int, int] | None = None) -> Path:
    context = place / "context"
    for name, content in in_build.proof_files(plan, {}).items():
        path = context / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.read_bytes() if isinstance(content, Path) else content.encode())
    folder = context / "proof"
    request = json.loads((folder / "request.json").read_text())
    if python is not None:
        (folder / "request.json").write_text(json.dumps({**request, "python": python}))
    (folder / "results").mkdir()
    found = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"PATH": found, "HOME": "/root", "OF_THE_IMAGE": "yes", "PROVE": asked, "HTTPS_PROXY": "http://a:b@c"}
    argv = [sys.executable, str(folder / "prove.py"), str(folder)]
    done = subprocess.run(argv, env=own, capture_output=True, text=True, check=False)
    # As the script `prove` does.
    (folder / "results" / "said").write_text(done.stdout + done.stderr)
    if done.returncode == 0:
        (folder / "results" / "passed").touch()
    return folder / "results"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A context with results that are right."""
    place = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWRIGHT_CACHE", str(place / "cache"))
        templates_in(place, patch)
        return prove_in(place, plan_of()).parents[1]


def read(results: Path, asked: str = "all") -> smoke.BuiltProof:
    return in_build.read(results, results.parents[1], asked=asked)


def test_a_proof(prove: Prove) -> None:
    proof = read(prove(plan_of()))
    assert {f"{row.component}::{row.check}": row.outcome for row in proof.rows} == {
        "contract::test_commands_have_the_image_s_variables": "passed",
        "contract::test_nothing_else_of_trainwright_is_there": "passed",
        "contract::test_gpu": "skipped",
        "metis::test_reads_what_the_probe_found": "passed",
    }
    assert proof.left == {f"contract::test_left[{word}]": "it needs a second host" for word in "ab"}
    assert proof.tested
    assert proof.found["facts"] == {"metis": {"version": "5"}}
    # A proxy's password is of the build, not of the image.
    assert set(proof.found["environment"]) & {"OF_THE_IMAGE", "PROVE", "HTTPS_PROXY"} == {"OF_THE_IMAGE"}


def test_a_builder_reads_the_same_bytes_each_time(templates: Path) -> None:
    first, second = in_build.proof_files(plan_of(), {}), in_build.proof_files(plan_of(), {})
    assert first == second
    made = in_build.runner_archive()
    data = made.read_bytes()
    made.unlink()
    assert in_build.runner_archive().read_bytes() == data
    other = in_build.proof_files(plan_of("6"), {})
    digests = [json.loads(str(files["proof/request.json"]))["digest"] for files in (first, other)]
    assert digests[0] != digests[1]


def test_no_path_of_this_machine_is_sent(templates: Path, tmp_path: Path) -> None:
    plan = plan_of()
    user = plan.user.replace(code=tmp_path / "code", requirements=tmp_path / "r.txt", run=tmp_path / "script")
    texts = [text for text in in_build.proof_files(plan.replace(user=user), {}).values() if isinstance(text, str)]
    assert not [text for text in texts if str(tmp_path) in text]


def test_an_image_that_differs_is_refused_and_its_results_are_kept(prove: Prove) -> None:
    results = prove(plan_of("6"))
    with pytest.raises(ProofFailed, match="metis: version should be 6, the image has 5") as failed:
        read(results)
    assert str(results) in failed.value.remedy
    assert json.loads((results / "probe.json").read_text())["facts"]
    assert not (results / "smoke.xml").exists(), "an image of another content needs no tests"


def test_a_failing_test_is_refused_with_its_row(prove: Prove, templates: Path) -> None:
    path = templates / "components/metis/test_metis.py"
    path.write_text(f"{METIS}\ndef test_fails(host):\n    assert host.run('exit 3').rc == 0, 'it said no'\n")
    results = prove(plan_of())
    with pytest.raises(ProofFailed, match="metis: test_fails: AssertionError: it said no") as failed:
        read(results)
    (row,) = failed.value.details["failed"]
    assert (row["component"], row["check"], row["outcome"]) == ("metis", "test_fails", "failed")
    assert "test_fails" in (results / "smoke.xml").read_text()


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("components/metis/test_metis.py", "import no_such_module", "not completed"),
        ("probe/probe.py", "raise SystemExit('no disk')", "the probe failed: exit status 1: no disk"),
        ("probe/probe.py", "print('not json')", "the probe failed: exit status 0: not json"),
    ],
)
def test_what_cannot_be_run_is_refused(prove: Prove, templates: Path, path: str, text: str, said: str) -> None:
    (templates / path).write_text(text)
    with pytest.raises(ProofFailed, match=said):
        read(prove(plan_of()))


def test_the_probe_alone(prove: Prove) -> None:
    results = prove(plan_of(), asked="probe 2026-11-25")
    proof = read(results, asked="probe")
    assert (proof.tested, proof.rows) == (False, ())
    assert proof.found["facts"]
    with pytest.raises(ProofFailed, match="another build"):
        read(results, asked="all")


def test_an_older_python_is_probed_and_tested_later(prove: Prove) -> None:
    proof = read(prove(plan_of("6"), python=(99, 0)))
    assert (proof.tested, proof.rows, proof.left) == (False, (), {})
    assert proof.found["facts"], "what it means is said where the results are read"


def test_what_a_container_of_aws_s_brings_is_no_fault_of_the_image_s(prove: Prove) -> None:
    plan = plan_of("6")
    proof = read(prove(plan.replace(base=plan.base.replace(kind="dlc"))))
    assert (proof.tested, proof.found["facts"]) == (False, {"metis": {"version": "5"}})


def drop(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def put(name: str, change: Callable[[str], str]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(change((folder / name).read_text()))


def change(**fields: object) -> Callable[[Path], object]:
    return put("results.json", lambda text: json.dumps(json.loads(text) | fields))


def forget_tests(folder: Path) -> None:
    said = json.loads((folder / "results.json").read_text())
    del said["files"]["smoke.xml"]
    (folder / "results.json").write_text(json.dumps(said))


@pytest.mark.parametrize(
    ("tamper", "why"),
    [
        (drop("results.json"), "incomplete"),
        (drop("probe.json"), "incomplete"),
        (drop("smoke.xml"), "incomplete"),
        (drop("passed"), "contradict"),
        (put("probe.json", lambda text: text.replace('"5"', '"6"')), "checksums"),
        (put("smoke.xml", lambda text: text.replace("test_gpu", "test_cpu")), "checksums"),
        (put("smoke.xml", lambda text: text[:200]), "incomplete"),
        (put("results.json", lambda text: text[:-9]), "incomplete"),
        (change(plan="f" * 64), "another build"),
        (change(request="f" * 64), "another build"),
        (change(schema="trainwright/built-proof/2"), "another build"),
        (change(wrong=["metis: no"]), "contradict"),
        (change(left="none"), "incomplete"),
        (forget_tests, "nothing is said of metis"),
    ],
)
def test_results_that_were_changed_are_refused(
    whole: Path, tmp_path: Path, tamper: Callable[[Path], object], why: str
) -> None:
    results = shutil.copytree(whole, tmp_path / "context") / "proof/results"
    assert read(results).rows
    tamper(results)
    with pytest.raises(ProofFailed, match=f"not accepted.*({why})"):
        read(results)


def test_results_without_the_failure_that_they_show_are_refused(prove: Prove, templates: Path) -> None:
    (templates / "components/metis/test_metis.py").write_text("def test_fails(): assert False")
    results = prove(plan_of())
    change(wrong=[])(results)
    (results / "passed").touch()
    with pytest.raises(ProofFailed, match="contradict"):
        read(results)


def test_words_that_a_build_step_cannot_import_are_the_same() -> None:
    assert differences.BASE == image_line.BASE
    assert image_testing.SAGEMAKER == destination.SAGEMAKER
    assert image_testing.REST == smoke.REST


def test_labels_are_nothing_that_a_step_could_see() -> None:
    plan = {"labels": {"a": "b"}, "environment": {"C": "d"}}
    assert [d.fact for d in differences.differences(plan, {})] == ["C", "a"]
    assert [d.fact for d in differences.differences(plan, {}, in_build=True)] == ["C"]
