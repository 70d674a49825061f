"""What paths name: several scripts, folders, notebooks, shell scripts; and paths that name nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.support.in_process import call
from tests.support.training_scripts import write
from trainwright.core.data_files import read_bytes
from trainwright.core.errors import RequestError
from trainwright.core.findings import FindingsDocument
from trainwright.preflight.preflight import preflight
from trainwright.preflight.subjects import subjects

WRONG = "import os\nos.environ['N'] = 4\n"
TRAINS = "loss.backward()\n"


def found(document: FindingsDocument, below: Path) -> list[tuple[str, str, int | None]]:
    """Code, path and line of each finding."""
    return [(f.code, f.path.removeprefix(f"{below}/"), f.line) for f in document.findings]


def shown(below: Path, *paths: Path) -> list[str]:
    """The scripts that paths name."""
    return [each.shown.removeprefix(f"{below}/") for each in subjects([str(path) for path in paths]).found]


# ---- folders ---------------------------------------------------------------------------------------------------------


def test_a_folder_is_searched_for_training_scripts(tmp_path):
    write(
        tmp_path,
        train=f"import helper\nfrom lib import more\n{TRAINS}",
        helper=TRAINS,
        prepare="import csv\n",
        test_train=f"import train\n{TRAINS}",
        setup=TRAINS,
        launch="from sagemaker.pytorch import PyTorch\nestimator.fit(inputs)\n",
        **{
            "lib/__init__": "",
            "lib/more": TRAINS,
            "lib/part": f"from . import more\n{TRAINS}",
            "sub/other": f"import os\nx = os.environ['SM_MODEL_DIR']\n{TRAINS}",
            ".hidden/train": TRAINS,
            "venv/train": TRAINS,
        },
    )
    (tmp_path / "venv" / "pyvenv.cfg").write_text("")
    assert shown(tmp_path, tmp_path) == ["sub/other.py"]  # test_train.py imports train.py
    (tmp_path / "test_train.py").unlink()
    assert shown(tmp_path, tmp_path) == ["train.py", "sub/other.py"]


def test_scripts_that_import_each_other_are_checked_once(tmp_path):
    write(
        tmp_path, a=f"import b\n{TRAINS}", b=f"import a\n{TRAINS}if __name__ == '__main__':\n    a.main()\n", c=TRAINS
    )
    assert shown(tmp_path, tmp_path) == ["b.py", "c.py"]


def test_a_script_that_starts_jobs_and_trains_itself_is_checked(tmp_path):
    write(tmp_path, train=f"import sagemaker\n{TRAINS}")
    assert shown(tmp_path, tmp_path) == ["train.py"]


def test_invalid_python_in_a_folder_is_a_finding(tmp_path):
    write(tmp_path, train=TRAINS, broken="def f(:\n")
    assert ("TW100", "broken.py", 1) in found(preflight([str(tmp_path)]), tmp_path)


def test_a_folder_without_a_training_script_is_refused(tmp_path):
    write(tmp_path, prepare="import csv\n")
    with pytest.raises(RequestError, match="no training script"):
        preflight([str(tmp_path)])


# ---- several ---------------------------------------------------------------------------------------------------------


def test_what_scripts_share_is_reported_once(tmp_path):
    write(tmp_path, a="import shared\n", b="import shared\n", shared=WRONG)
    made = preflight([str(tmp_path / "a.py"), str(tmp_path / "b.py")])
    assert found(made, tmp_path) == [("TW160", "shared.py", 2)]
    assert (made.subject, made.errors, made.exit_code) == ("2 scripts", 1, 1)
    assert [Path(name).name for name in made.files] == ["a.py", "shared.py", "b.py"]
    assert set(made.facts) == {str(tmp_path / "a.py"), str(tmp_path / "b.py")}


def test_a_script_that_another_one_imports_is_read_with_it(tmp_path):
    write(tmp_path, a="import b\n", b=WRONG)
    made = preflight([str(tmp_path / "b.py"), str(tmp_path / "a.py")])
    assert (made.subject, found(made, tmp_path)) == (str(tmp_path / "a.py"), [("TW160", "b.py", 2)])


def test_a_comment_for_one_of_two_scripts_is_not_stale(tmp_path):
    shared = "import os\ndef f():\n    os.environ['N'] = 4  # trainwright: ignore[TW160] why\n"
    write(tmp_path, a="import shared\nshared.f()\n", b="import shared\n", shared=shared)
    made = preflight([str(tmp_path / "a.py"), str(tmp_path / "b.py")])
    assert found(made, tmp_path) == []
    assert [each.code for each in made.silenced] == ["TW160"]


def test_the_source_folder_is_searched_for_imports(tmp_path):
    entry = write(tmp_path / "src" / "scripts", train="from lib import part\n")
    write(tmp_path / "src" / "lib", __init__="", part=WRONG)
    assert found(preflight([str(entry)]), tmp_path) == []
    made = preflight([str(entry)], str(tmp_path / "src"))
    assert found(made, tmp_path) == [("TW160", "src/lib/part.py", 2)]


# ---- what cannot be read ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("json_", [False, True])
def test_a_path_that_does_not_exist_is_refused_with_the_nearest(tmp_path, json_):
    write(tmp_path, train=WRONG)
    done = call("preflight", "train.py", "trian.py", *(["--json"] if json_ else []), cwd=tmp_path)
    assert done.returncode == 2
    assert "trian.py: no such file" in done.stderr and "Did you mean train.py?" in done.stderr
    assert "TW160" not in done.stdout


def test_a_file_that_cannot_be_read_does_not_hide_the_others(tmp_path, monkeypatch):
    write(tmp_path, train=WRONG, locked=TRAINS)

    def read(path, **more):
        if path.name == "locked.py":
            raise RequestError(f"{path}: cannot be read: Permission denied")
        return read_bytes(path, **more)

    monkeypatch.setattr("trainwright.script.reader.read_bytes", read)
    done = call("preflight", "train.py", "locked.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "train.py:2: error TW160" in done.stdout and "locked.py: cannot be read: Permission denied" in done.stdout
    done = call("preflight", "locked.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Permission denied" in done.stderr


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "README.md").write_text("")
    with pytest.raises(RequestError, match="not a Python file"):
        preflight([str(tmp_path / "README.md")])


def test_each_script_counts_once(tmp_path):
    """A script counts once, also if its folder is named or a shell script starts it; its imports do not count."""
    write(tmp_path, train=f"import helper\n{TRAINS}", helper=TRAINS, other=TRAINS)
    (tmp_path / "run.sh").write_text("torchrun train.py\n")
    (tmp_path / "again.sh").write_text("python train.py\n")
    job = tmp_path / "job.yaml"
    job.write_text("instance_type: ml.p4d.24xlarge\n")
    assert shown(tmp_path, tmp_path, tmp_path / "train.py") == ["train.py", "other.py"]
    assert shown(tmp_path, tmp_path / "train.py", tmp_path / "run.sh") == ["train.py"]
    for words in (["."], [".", "train.py"], ["train.py", "other.py", "run.sh"], [".", "run.sh", "again.sh"]):
        told = preflight([str(tmp_path / word) for word in words], None, str(job))
        assert told.subject == "2 scripts" and len(told.facts) == 2, words
    started = preflight([str(tmp_path / word) for word in ("train.py", "run.sh")], None, str(job))
    assert started.subject == f"{tmp_path}/train.py" and started.facts["launcher"] == "torchrun"


# ---- the command line ------------------------------------------------------------------------------------------------


def test_words_and_flags_in_any_order(tmp_path):
    write(tmp_path, a="import torch\ntorch.save(state, 'model.pt')\n", b=WRONG)
    job = tmp_path / "job.yaml"
    job.write_text("instance_type: ml.p4d.24xlarge\n")
    done = call("preflight", "a.py", "--job", "job.yaml", "--strict", "b.py", "--json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert told["strict"] and set(told["facts"]) == {"a.py", "b.py"} and told["warnings"] == 1
    assert call("preflight", "--path", "a.py", "--entry-point", "b.py", "--json", cwd=tmp_path).returncode == 1
    assert "[PATH…]" in call("preflight", "--help").stdout


def test_another_verb_takes_no_words(tmp_path):
    done = call("doctor", "a.py", cwd=tmp_path)
    assert done.returncode == 2 and "unexpected word" in done.stderr


# ---- pre-commit ------------------------------------------------------------------------------------------------------

# pre-commit/pre-commit, pre_commit/clientlib.py of commit 017fa5c0: MANIFEST_HOOK_DICT
REQUIRED = {"id", "name", "entry", "language"}
OPTIONAL = {"files", "exclude", "types", "types_or", "args", "description", "require_serial", "pass_filenames"}


HOOKS = yaml.safe_load((Path(__file__).resolve().parents[3] / ".pre-commit-hooks.yaml").read_text())


def test_every_hook_has_the_keys_of_one():
    assert [hook["id"] for hook in HOOKS] == ["trainwright-preflight", "trainwright-estimator"]
    for hook in HOOKS:
        assert REQUIRED <= set(hook) <= REQUIRED | OPTIONAL


def test_the_hook_of_jobs_checks_the_job_file(tmp_path):
    hook = HOOKS[1]
    assert re.search(hook["files"], "jobs/train.yml") and not re.search(hook["files"], "train.py")
    assert hook["pass_filenames"] is False  # --job takes one file
    program, *words = [*hook["entry"].split(), *hook["args"]]
    assert program == "trainwright"
    job = {"plan": {"framework": "pytorch", "cuda": "cu124"}, "entry_point": "train.py"}
    job |= {"instance_type": "ml.g5.12xlarge", "role": "arn:aws:iam::123456789012:role/training"}
    for name, count, code in (("good", 4, 0), ("bad", 16, 1)):
        mpi = {"distribution": {"mpi": {"enabled": True, "processes_per_host": count}}}
        write(tmp_path / name, train=TRAINS)
        (tmp_path / name / "job.yaml").write_text(yaml.safe_dump(job | mpi))
        done = call(*words, cwd=tmp_path / name)
        assert (done.returncode, "TW230" in done.stdout + done.stderr) == (code, bool(code)), done.stderr


def test_the_hook_runs_over_what_a_commit_changes(tmp_path):
    hook = HOOKS[0]
    program, *words = hook["entry"].split()
    assert program == "trainwright"
    package = {"lib/__init__": "", "lib/part": f"from . import x\n{TRAINS}"}
    write(tmp_path, train=WRONG + TRAINS, prepare=WRONG, setup=WRONG, **package)
    changed = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    files = [name for name in changed if re.search(hook["files"], name)]
    done = call(*words, *files, "--format", "github", cwd=tmp_path)
    assert done.returncode == 1 and done.stdout.count("::error") == 1 and "file=train.py" in done.stdout
    files.remove("train.py")
    assert call(*words, *files, cwd=tmp_path).returncode == 0


# ---- shell scripts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        ("python -u train.py --lr 1", "process"),
        ('set -e\nexport A=1; torchrun --nproc_per_node=8 \\\n  ./train.py "$@"', "torchrun"),
        ("cd x && python3.11 -m torch.distributed.run --nnodes 2 $SM_MODULE_DIR/train.py", "torchrun"),
        ("accelerate launch --num_processes 8 /opt/ml/code/train.py # comment", "torchrun"),
        ("mpirun -np 8 python train.py", "mpi"),
    ],
)
def test_a_shell_script_names_script_and_launcher(tmp_path, command, launcher):
    write(tmp_path, train=WRONG)
    (tmp_path / "train.sh").write_text(f"#!/bin/sh\n{command}\n")
    job = tmp_path / "job.yaml"
    job.write_text("instance_type: ml.p4d.24xlarge\nentry_point: train.sh\n")
    made = preflight([], None, str(job))
    assert found(made, tmp_path) == [("TW160", "train.py", 2)]
    assert made.facts["launcher"] == launcher


@pytest.mark.parametrize("text", ["echo train.py\n", "python missing.py\n", "python -m module\n", "echo 'x\n"])
def test_a_shell_script_without_a_script_is_refused(tmp_path, text):
    (tmp_path / "train.sh").write_text(text)
    with pytest.raises(RequestError, match=r"train\.sh"):
        preflight([str(tmp_path / "train.sh")])
