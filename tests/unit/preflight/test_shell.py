"""What a shell script starts: from which folder, by which name, and with which options.

Expected values are those of bash and of argparse; launchers are read as PyTorch's documentation of torchrun says.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.training_scripts import write
from trainwright.core.errors import RequestError
from trainwright.preflight.preflight import preflight

WRONG = "import os\nos.environ['N'] = 4\n"
PARSER = "import argparse\np = argparse.ArgumentParser()\n{}args = p.parse_args()\n"
EPOCHS = PARSER.format("p.add_argument('--epochs', type=int, default=1)\n")
REQUIRED = PARSER.format("p.add_argument('--data', required=True)\np.add_argument('--amp', action='store_true')\n")
FIELDS = (
    "from dataclasses import dataclass\nfrom transformers import HfArgumentParser\n"
    "@dataclass\nclass Options:\n    data: str\n    epochs: int = 1\n"
    "(args,) = HfArgumentParser(Options).parse_args_into_dataclasses()\n"
)
MEMBERS = {"__init__": "", "other": "", "train": WRONG, "__main__": WRONG}


def told(folder: Path, command: str, job: str = "") -> list[tuple[str, str]]:
    """The code and the file of each finding in what a command of a job's entry point starts."""
    (folder / "start.sh").write_text(f"#!/bin/bash\nset -e\n{command}\n")
    (folder / "job.yaml").write_text(f"instance_type: ml.p4d.24xlarge\nentry_point: start.sh\n{job}")
    found = preflight([], None, str(folder / "job.yaml")).findings
    return [(each.code, each.path.removeprefix(f"{folder}/")) for each in found]


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("cd lib/d && python train.py", "lib/d/train.py"),
        ("cd lib\ncd d\npython train.py", "lib/d/train.py"),
        ("cd lib/d || exit 1; python ./train.py", "lib/d/train.py"),
        ("cd lib/d/../d; python train.py", "lib/d/train.py"),
        ("pushd lib/d; torchrun train.py; popd", "lib/d/train.py"),
        ('cd "$(dirname "$0")/lib/d" && python train.py', "lib/d/train.py"),
        ("cd /opt/ml/code/lib/d; python train.py", "lib/d/train.py"),
        ('cd "$SM_MODULE_DIR/lib" && python d/train.py', "lib/d/train.py"),
        ("cd lib; cd ..; python start.py", "start.py"),
        ("cd lib; cd -; python start.py", "start.py"),
        ("cd lib; cd $OTHER; python start.py", "start.py"),
        ("cd lib; python /opt/ml/code/start.py", "start.py"),
        ("cd made_by_a_step; python start.py", "start.py"),
        ('S=start.py; python "$S"', "start.py"),
        ("export S=start.py\npython -u ${S} --lr 1", "start.py"),
        ("D=lib/d\nS=$D/train.py\ntorchrun --nproc_per_node 8 $S", "lib/d/train.py"),
        ("D=lib/d; cd $D; python train.py", "lib/d/train.py"),
        ('RUN="python start.py"\n$RUN', "start.py"),
        ("torchrun -m lib.d.train", "lib/d/train.py"),
        ("torchrun --nproc_per_node=8 --module lib.d.train --lr 1", "lib/d/train.py"),
        ("python -m lib.d", "lib/d/__main__.py"),
        ("cd lib && python3 -m d.train", "lib/d/train.py"),
        ("python -m torch.distributed.run -m lib.d.train", "lib/d/train.py"),
        ("accelerate launch -m lib.d.train --config start.py", "lib/d/train.py"),
        ("python -m cProfile -o profile start.py", "start.py"),
        ("pip install x\npython -m pip install y\npython start.py", "start.py"),
    ],
)
def test_the_script_is_found(tmp_path, command, script):
    write(tmp_path, start=WRONG, **{f"lib/d/{name}": text for name, text in MEMBERS.items()}, **{"lib/__init__": ""})
    assert told(tmp_path, command) == [("TW160", script)]


@pytest.mark.parametrize(
    "command",
    [
        "S=start.py; if $FAST; then S=other.py; fi; python $S",
        "S=start.py; S=other.py; python $S",
        "for S in start.py other.py; do python $S; done",
        "read S; S=start.py; python $S",
        "S=start.py\nS+=c\npython $S",
        "S=$(ls *.py); python $S",
        "S=start.py python $S",
        "python -m pip install start",
        "cd lib; python other.py",
    ],
)
def test_what_may_be_another_script_is_not_guessed(tmp_path, command):
    write(tmp_path, start=WRONG, **{"lib/start": WRONG})
    with pytest.raises(RequestError, match=r"start\.sh"):
        told(tmp_path, command)


@pytest.mark.parametrize(
    ("command", "codes"), [("python lib/train.py", ["TW101", "TW160"]), ("python -m lib.train", ["TW160"])]
)
def test_a_module_has_a_parent_package(tmp_path, command, codes):
    """What it imports is found below the folder in which it is started: Python's documentation of ``-m``."""
    write(tmp_path, **{"lib/__init__": "", "lib/other": WRONG, "lib/train": "from . import other\nimport lib.other\n"})
    assert [code for code, _ in told(tmp_path, command)] == codes


def test_each_script_of_a_folder_is_read_once(tmp_path):
    write(tmp_path, a=WRONG, **{"b/a": WRONG})
    assert told(tmp_path, "python a.py; python ./a.py; cd b; python a.py") == [("TW160", "a.py"), ("TW160", "b/a.py")]


@pytest.mark.parametrize(
    ("script", "options", "code"),
    [
        (EPOCHS, "--epochs three", "TW198"),
        (EPOCHS, "--epochs=three", "TW198"),
        (EPOCHS, "--epochs 'three' > log.txt", "TW198"),
        (EPOCHS, "--epoch-s 3", "TW193"),
        (EPOCHS, '"$@"', "TW193"),
        (REQUIRED, "--amp", "TW194"),
        (REQUIRED, "--amp True --data /d", "TW191"),
        (FIELDS, "--data /d --epochs three", "TW198"),
        (FIELDS, "--epochs 3", "TW194"),
        (EPOCHS, "--epochs 3", None),
        (EPOCHS, "--epochs $EPOCHS", None),
        (EPOCHS, "", None),
        (EPOCHS, "> --epochs", None),
        (REQUIRED, "--data /d --amp", None),
        (REQUIRED, "--data $DATA", None),
        (REQUIRED, "--data `pwd`", None),
        (REQUIRED, '"${ARGS[@]}"', None),
        (REQUIRED, "--amp $ARGS", None),
        (REQUIRED, "--amp $1 $2", None),
        (FIELDS, "--data $DATA", None),
        (FIELDS, "$ARGS", None),
        (PARSER.format("p.add_argument('--size', type=int, nargs=2)\n"), "--size 1 2", None),
        (PARSER.format("p.add_argument('--size', type=int, nargs=2)\n"), "--size 1", "TW198"),
        (PARSER.format("p.add_argument('-j', '--jobs', type=int, required=True)\n"), "-j8", None),
        (PARSER.format("p.add_argument('data')\n"), "/d", None),
        ("import hydra\n@hydra.main()\ndef main(cfg):\n    pass\nmain()\n", "lr=0.1", None),
    ],
)
def test_options_are_those_of_the_command(tmp_path, script, options, code):
    """Of the job's hyperparameters, the script gets what ``"$@"`` passes on."""
    write(tmp_path, train=script)
    found = told(tmp_path, f"python train.py {options}", "hyperparameters: {rows: 1}\n")
    assert found == ([(code, "train.py")] if code else [])


def test_options_are_held_without_a_job_file(tmp_path):
    write(tmp_path, train=EPOCHS)
    (tmp_path / "start.sh").write_text("python train.py --epochs three\n")
    (found,) = preflight([str(tmp_path / "start.sh")]).findings
    assert found.code == "TW198" and "--epochs three: invalid int value" in found.message


def test_the_checkpoints_that_a_command_names_are_used(tmp_path):
    write(tmp_path, train=PARSER.format("p.add_argument('--to')\n"))
    job = "spot: true\n"
    assert told(tmp_path, "python train.py --to /opt/ml/checkpoints", job) == []
    assert told(tmp_path, "python train.py --to /opt/ml/model", job) == [("TW143", "train.py")]
