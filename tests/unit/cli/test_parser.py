"""The program as a user meets it: exit codes, standard output for JSON alone, quick answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_lines import typed
from tests.support.in_process import call
from trainwright.cli.flags import JsonFlag, verb
from trainwright.cli.parser import CALLED
from trainwright.cli.tasks import VerbTask
from trainwright.verbs.find import NAMES

ROOT = Path(__file__).resolve().parents[3]


def program(*words: str) -> subprocess.CompletedProcess[str]:
    """The ``trainwright`` command of an installed package."""
    code = "import sys; sys.argv[0] = 'trainwright'; from trainwright.__main__ import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code, *words], cwd="/", env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def entry() -> str:
    """invoke as a console script, as its checks look at the program's name."""
    return str(Path(sys.executable).with_name("invoke"))


def script(entry: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([entry, *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def test_misspelled_flag(entry):
    done = script(entry, "build", "--framwork", "pytorch")
    assert done.returncode == 2
    assert "Did you mean --framework?" in done.stderr  # not --smoke, which shares the dashes
    assert "Traceback" not in done.stderr


def test_misspelled_verb(entry):
    done = script(entry, "biuld")
    assert done.returncode == 2
    assert "build" in done.stderr


def test_flag_without_value(entry):
    done = script(entry, "plan", "--cuda")
    assert done.returncode == 2
    assert "--cuda" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("pytorch:cu124", "./invoke plan pytorch:cu124"),
        ("inspect", "Did you mean report?"),
        ("images", "Did you mean list --built?"),
        ("rollback TAG", "Did you mean tags?"),
        ("lock_line", "Did you mean lock?"),
        ("explain nccl pytorch:cu124", "./invoke explain pytorch:cu124 --component nccl"),
        ("explain pytorch:cu124 nccl", "./invoke explain pytorch:cu124 --component nccl"),
        ("plan pytorch cu124", "In one word: pytorch:cu124"),
        ("plan pytorch:cu130 --with flash-attn --with nccl-tests", "In one flag: --with flash-attn,nccl-tests"),
        ("plan pytorch --cuda cu130 --cuda cu124", "Give it once"),
        ("run python train.py", "./invoke run -- python"),
        ("list --with foo", "error: --with foo: no image line has it."),
        ("smoke", "no image is named, and none was built here yet\n./invoke build"),
        ("report", "no image is named, and none was built here yet\n./invoke build"),
    ],
)
def test_a_mistake_is_answered_by_what_to_type(tmp_path, words, says):
    done = call(*words.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr


def test_other_words_for_a_verb_are_no_verbs_and_mean_one():
    assert not set(CALLED) & set(NAMES)
    for meant in CALLED.values():
        typed(meant.split() + ["DAY"] * meant.endswith("--export"))


def test_names_that_are_too_many_to_read_are_not_listed(tmp_path):
    done = call("build", "--images", "qqq", cwd=tmp_path)
    assert done.returncode == 2
    assert max(map(len, done.stderr.splitlines())) < 120
    assert not any(line.endswith(" ") for line in done.stderr.splitlines())


@pytest.mark.parametrize("words", [["--list"], ["--help", "build"], ["build", "--help"], ["--version"]])
def test_help_is_not_an_error(entry, words):
    done = script(entry, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_installed_program_is_the_same():
    assert program("plan", "--framework", "pytorch", "--cuda", "cu124").returncode == 0
    assert program("plan", "--framwork", "pytorch").returncode == 2
    assert program("plan", "--framework", "pytorch", "--cuda", "cu999").returncode == 3


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["--framework", "pytorch", "--cuda", "cu999"], 3, "conflict"),
        (["--framework", "pytorch", "--cuda", "cu119"], 3, "conflict"),
        (["--framework", "pytorhc"], 2, "request"),
        (["--cuda", "cpu"], 2, "request"),
        (["--framework", "pytorch", "--cuda", "banana"], 2, "request"),
        (["--framework", "pytorch", "--site", "nothing.toml"], 2, "request"),
        (["--framework", "pytorch", "--set", "openmpi=5.0.7", "--set", "nccl=2.21.5"], 3, "conflict"),
        (["--framework", "pytorch", "--set", "opnmpi=5.0.7"], 2, "request"),
        (["--framework", "pytorch", "--version", "2.99.0"], 3, "conflict"),
    ],
)
def test_a_failure_with_json_is_one_document(words, code, error):
    done = call("plan", *words, "--json")
    assert done.returncode == code
    document = json.loads(done.stdout)
    assert document["error"] == error
    assert document["exit_code"] == code
    assert document["message"]
    assert document["message"] in done.stderr


def test_a_conflict_offers_command_lines():
    done = call("build", "--framework", "pytorch", "--cuda", "cu999", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 3
    assert set(document) >= {"schema", "error", "message", "rows", "offers"}
    assert all(set(offer) == {"command", "plan id"} for offer in document["offers"])
    assert all(set(row) == {"constraint", "evidence"} for row in document["rows"])


def test_plan_json_has_the_documented_keys():
    document = json.loads(call("plan", "--framework", "pytorch", "--cuda", "cu124", "--json").stdout)
    documented = {"schema", "id", "framework", "version", "cuda", "python", "base", "components"}
    documented |= {"environment", "labels", "tags", "notices"}
    assert documented <= set(document)
    assert set(document["base"]) == {"kind", "os", "image", "digest", "build_image", "build_digest"}
    for component in document["components"]:
        assert {"name", "version", "provider", "sources", "evidence"} <= set(component)
        for source in component["sources"]:
            assert source["sha256"]
            assert source["url"] or source["package"]


def test_list_json_has_the_documented_keys():
    document = json.loads(call("list", "--json").stdout)
    keys = {"framework", "version", "cuda", "python", "base", "status", "needs", "components"}
    assert document["lines"]
    for row in document["lines"]:
        assert keys <= set(row)
        assert row["needs"] in ("packages", "network")


def test_list_built_is_empty_in_a_new_folder(tmp_path):
    document = json.loads(call("list", "--built", "--json", cwd=tmp_path).stdout)
    assert document["images"] == []


@pytest.mark.parametrize("words", [["list"], ["plan", "--framework", "pytorch", "--cuda", "cu124"], ["--list"]])
def test_quick_verbs_import_nothing_heavy(words):
    code = (
        "import sys\n"
        "from invoke.main import program\n"
        f"sys.argv = ['invoke', '--search-root', {str(ROOT)!r}, *{words!r}]\n"
        "try:\n    program.run()\n"
        "except SystemExit:\n    pass\n"
        "print('heavy:', sorted({'docker', 'boto3', 'botocore', 'jinja2', 'rich'} & set(sys.modules)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _ in range(2):  # the id of a plan follows from its Dockerfile: the first time, that is rendered
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
    assert done.stdout.splitlines()[-1] == "heavy: []", done.stdout + done.stderr


@pytest.mark.parametrize("verb", ["plan", "explain", "render"])
def test_a_pin_of_what_the_line_has_changes_nothing(verb):
    words = (verb, "--framework", "pytorch", "--cuda", "cu124", "--version", "2.6.0")
    plain, pinned = call(*words), call(*words, "--set", "nccl=2.21.5", "--set=openmpi=4.1.4")
    assert pinned.returncode == 0, pinned.stderr
    assert pinned.stdout == plain.stdout


def test_plan_tries_an_unproven_version_without_an_index(tmp_path):
    words = ("plan", "--framework", "pytorch", "--version", "2.99.0", "--allow-unproven", "--json")
    done = call(*words, cwd=tmp_path, UV_OFFLINE="1")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["labels"]["io.trainwright.unproven"] == "pytorch 2.99.0"
    refused = call("build", *words[1:], cwd=tmp_path, UV_OFFLINE="1")
    assert refused.returncode in (3, 8), "the lock comes before the engine"


def test_render_writes_a_context_only_into_a_folder_of_its_own(tmp_path):
    (tmp_path / "precious.txt").write_text("keep me")
    done = call("render", "--framework", "pytorch", "--cuda", "cpu", "--output", str(tmp_path))
    assert done.returncode == 2
    assert (tmp_path / "precious.txt").read_text() == "keep me"


def test_render_prints_the_dockerfile():
    done = call("render", "--framework", "pytorch", "--cuda", "cu124")
    assert done.returncode == 0
    assert "FROM packages AS final" in done.stdout


def test_an_engine_that_is_stopped_ends_with_4_and_the_command(tmp_path):
    done = call(
        "build", "--framework", "pytorch", "--cuda", "cpu", "--json",
        cwd=tmp_path, DOCKER_HOST=f"unix://{tmp_path}/none.sock", TRAINWRIGHT_ENGINE_SETUP="never",
    )  # fmt: skip
    assert done.returncode == 4
    document = json.loads(done.stdout)
    assert document["error"] == "engine"
    assert document["remedy"]


def test_tags_may_be_repeated(tmp_path):
    """A good tag gets as far as the engine; the second is looked at as well."""
    words = ("build", "--framework", "pytorch", "--cuda", "cpu", "--tag", "team/trainer:nightly")
    silent = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock", "TRAINWRIGHT_ENGINE_SETUP": "never"}
    assert call(*words, cwd=tmp_path, **silent).returncode == 4
    refused = call(*words, "--tag", "Not A Tag", cwd=tmp_path, **silent)
    assert refused.returncode == 2
    assert "--tag Not A Tag: not an image name" in refused.stderr


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    done = call("list", "--built", "--json", cwd=tmp_path, TRAINWRIGHT_STATE="/proc/trainwright")
    assert done.returncode == 2
    assert "/proc/trainwright" in json.loads(done.stdout)["message"]
    assert "Traceback" not in done.stderr


def test_a_full_disk_is_told_as_such(monkeypatch, capsys):
    import errno

    from invoke.context import Context
    from invoke.exceptions import Exit

    def fills(flags: JsonFlag) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/somewhere/record.json")

    with pytest.raises(Exit) as ended:
        VerbTask(verb(fills))(Context(), json=True)
    assert ended.value.code == 5
    assert "disk is full" in json.loads(capsys.readouterr().out)["message"]


@pytest.mark.parametrize("words", [["--tag", "Not A Tag"], ["--progress", "loud"]])
def test_build_options_are_checked_before_anything_is_done(words, tmp_path):
    done = call("build", "--framework", "pytorch", "--cuda", "cpu", "--json", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"] == "request"


def test_locked_without_a_lock_is_refused_before_anything_is_asked(tmp_path):
    silent = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock", "TRAINWRIGHT_ENGINE_SETUP": "never"}
    words = ("--framework", "pytorch", "--cuda", "cpu")
    done = call("build", *words, "--locked", "--json", cwd=tmp_path, **silent)
    document = json.loads(done.stdout)
    assert (done.returncode, document["error"]) == (2, "request")
    assert document["remedy"] == "./invoke lock --framework pytorch --cuda cpu"
    assert document["unlocked"]


def test_the_command_that_locks_names_the_users_files_as_they_were_given(tmp_path):
    (tmp_path / "my reqs.txt").write_text("toolz\n")
    words = ("--framework", "pytorch", "--cuda", "cpu", "--with-requirements", "my reqs.txt")
    done = call("build", *words, "--locked", "--json", cwd=tmp_path)
    remedy = json.loads(done.stdout)["remedy"]
    assert remedy == "./invoke lock --framework pytorch --cuda cpu --with-requirements 'my reqs.txt'"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lock", "--framework", "pytorch", "--check", "--upgrade", "base"], "--check changes nothing"),
        (["lock"], "--framework is missing"),
        (["mirror", "pul", "--lock", "a", "--to", "b"], "Did you mean pull?"),
        (["mirror", "pull", "--to", "b"], "--lock is missing"),
        (["mirror", "pull", "--lock", "a"], "--to is missing"),
    ],
)
def test_mistakes_of_lock_and_mirror(words, said, tmp_path):
    done = call(*words, "--json", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert said in json.loads(done.stdout)["message"]


def test_mirror_wants_to_know_what_to_do(entry):
    done = script(entry, "mirror")
    assert done.returncode == 2
    assert "action" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_lock_that_is_not_there_is_named_before_an_engine_is_asked(tmp_path):
    silent = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock", "TRAINWRIGHT_ENGINE_SETUP": "never"}
    done = call("mirror", "pull", "--lock", "none.json", "--to", "m", "--json", cwd=tmp_path, **silent)
    assert done.returncode == 2
    assert "none.json" in json.loads(done.stdout)["message"]


def test_the_locks_of_the_lines_are_the_developers_business(entry):
    done = script(entry, "lock-lines", "--framework", "pytorch", "--cuda", "cu124", "--check")
    assert done.returncode == 0, done.stderr
    assert "lock-lines" not in program("--list").stdout
    assert "mirror" in program("--list").stdout


def test_a_repository_that_ecr_would_not_take_is_refused_before_the_build(tmp_path):
    words = ("build", "--framework", "pytorch", "--cuda", "cpu", "--json", "--push")
    wrong = call(*words, "Team/Training", cwd=tmp_path, AWS_REGION="us-west-2")
    assert wrong.returncode == 2
    assert "team/training" in json.loads(wrong.stdout)["remedy"]
    nowhere = call(*words, "team/training", cwd=tmp_path, AWS_REGION="", AWS_DEFAULT_REGION="")
    assert nowhere.returncode == 2
    assert "region" in json.loads(nowhere.stdout)["message"]


@pytest.mark.parametrize("words", [[], ["--progress", "loud"], ["--stall", "0"], ["--revision", "0"], ["--tag", "a b"]])
def test_words_of_push_are_checked_before_anybody_is_asked(tmp_path, words):
    done = call("push", "--repository", "team/x", "--region", "us-west-2", *words, "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert json.loads(done.stdout)["remedy"] or words
