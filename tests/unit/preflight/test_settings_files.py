"""Settings in files beside the script are read as the script reads them, and what replaces them is followed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from trainwright.preflight.preflight import preflight

TRAIN = """
import argparse, json, os, pathlib
import yaml
from transformers import Trainer, TrainingArguments
HERE = pathlib.Path(__file__).resolve().parent
parser = argparse.ArgumentParser()
parser.add_argument("--settings", default="settings.yaml")
parser.add_argument("--output_dir")
parser.add_argument("--learning_rate", type=float)
args = parser.parse_args()
{read}
{change}
trainer = Trainer(model=net, args=TrainingArguments(**settings["trainer"]), train_dataset=data)
trainer.train()
trainer.save_model()
"""
OPENED = "with open(HERE / args.settings) as file:\n    settings = yaml.safe_load(file)"
READ = [
    OPENED,
    "settings = yaml.safe_load((HERE / 'settings.yaml').read_text())",
    "settings = yaml.safe_load(open('settings.yaml'))",
    "settings = yaml.safe_load(HERE.joinpath('conf', 'more.yaml').open())",
    "settings = json.load(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'settings.json')))",
    "settings = json.loads(pathlib.Path(__file__).with_name('settings.json').read_text())",
    "settings = json.loads(pathlib.Path(__file__).with_suffix('.json').read_text())",
    "from omegaconf import OmegaConf\nsettings = OmegaConf.load(HERE / 'settings.yaml')",
    "from lib.settings import read\nsettings = read()",
    "from lib.settings import read_above\nsettings = read_above()",
]
HELPER = """
import pathlib
import yaml
HERE = pathlib.Path(__file__).parent
def read():
    return yaml.safe_load((HERE / "inner.yaml").read_text())
def read_above():
    return yaml.safe_load((HERE.parent / "settings.yaml").read_text())
"""
JOB = "instance_type: ml.g5.xlarge\nentry_point: train.py\nsource_dir: .\nrole: arn:aws:iam::123456789012:role/job\n"
LOST = {"TW142", "TW145"}


def found(place: Path, read: str, folder: str, change: str = "", job: str = "") -> set[str]:
    """Return which findings say that the model is lost."""
    settings = {"trainer": {"output_dir": folder, "save_strategy": "epoch", "learning_rate": 3e-5}}
    (place / "conf").mkdir()
    (place / "lib").mkdir()
    for name in ("settings.yaml", "conf/more.yaml", "lib/inner.yaml"):
        (place / name).write_text(yaml.safe_dump(settings))
    for name in ("settings.json", "train.json"):
        (place / name).write_text(json.dumps(settings))
    (place / "lib" / "__init__.py").write_text("")
    (place / "lib" / "settings.py").write_text(HELPER)
    (place / "train.py").write_text(TRAIN.format(read=read, change=change))
    (place / "job.yaml").write_text(JOB + job)
    return {f.code for f in preflight([], job_file=str(place / "job.yaml")).findings} & LOST


@pytest.mark.parametrize("read", READ)
def test_where_a_file_says_that_the_model_goes(tmp_path: Path, read: str) -> None:
    assert found(tmp_path, read, "./results") == LOST


@pytest.mark.parametrize("read", READ)
def test_a_file_that_names_the_folder_of_the_model(tmp_path: Path, read: str) -> None:
    assert not found(tmp_path, read, "/opt/ml/model")


PASSED = "settings['trainer'].update({k: v for k, v in vars(args).items() if v is not None})"
OTHERS = "settings['trainer'].update({k: v for k, v in vars(args).items() if k not in ('settings', 'output_dir')})"


@pytest.mark.parametrize(
    ("change", "job", "lost"),
    [
        (PASSED, "hyperparameters: {output_dir: /opt/ml/model}", set()),
        (PASSED, "hyperparameters: {output_dir: out}", LOST),
        (PASSED, "hyperparameters: {learning_rate: 0.001}", set()),  # a default may be another
        (OTHERS, "hyperparameters: {learning_rate: 0.001}", LOST),
        (OTHERS, "hyperparameters: {output_dir: /opt/ml/model}", LOST),
        ("settings['trainer'].update(learning_rate=args.learning_rate)", "", LOST),
        ("settings['trainer'].update(json.loads(os.environ['SM_HPS']))", "", set()),
        ("settings['trainer'].update(chosen())", "", set()),
        ("settings['trainer'].merge_with_cli()", "", set()),
        ("settings['trainer']['output_dir'] = os.environ['SM_MODEL_DIR']", "", set()),
        ("settings['trainer'].update({name: f'/opt/ml/{name}' for name in chosen()})", "", set()),
    ],
)
def test_what_replaces_a_setting(tmp_path: Path, change: str, job: str, lost: set[str]) -> None:
    assert found(tmp_path, OPENED, "./results", change, job) == lost


@pytest.mark.parametrize("name", ["missing.yaml", "../settings.yaml", "/opt/settings.yaml"])
def test_a_file_that_is_not_in_the_source_says_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "settings.yaml").write_text("trainer: {output_dir: results}\n")
    (tmp_path / "code").mkdir()
    assert not found(tmp_path / "code", f"settings = yaml.safe_load(open({name!r}))", "./results")
