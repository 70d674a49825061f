"""Arguments of a script that a loop adds, that a dataclass declares, and that take a list of the job."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes, findings, parser

ONE: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN}

LOOPED = """
import argparse
from dataclasses import dataclass, fields

@dataclass
class Options:
    rate: float = 0.1
    warm_up: int = 5

    @classmethod
    def read(cls):
        parser = argparse.ArgumentParser()
        parser.add_argument("--epochs", type=int, default=1)
        {added}
        return parser.parse_args()

Options.read()
"""
TABLE = "table = {'rate': 0.1, 'warm_up': 5}\n        for name"


@pytest.mark.parametrize(
    ("added", "unknown"),
    [
        ("parser.add_argument('--rate')", ["--warm_up"]),
        ("for name in ('rate', 'warm_up'):\n            parser.add_argument(f'--{name}', type=float)", []),
        ("for name in ('rate', 'warm'):\n            parser.add_argument('--' + name)", ["--warm_up"]),
        ("for name in 'rate warm_up'.split():\n            parser.add_argument(f'--{name}')", []),
        (f"{TABLE}, first in table.items():\n            parser.add_argument(f'--{{name}}', default=first)", []),
        (f"{TABLE} in table:\n            parser.add_argument('--' + name.replace('_', '-'))", ["--warm_up"]),
        ("for name, kind in [('rate', float), ('x', int)]:\n            parser.add_argument(f'--{name}', type=kind)",
         ["--warm_up"]),
        ("for each in fields(cls):\n            parser.add_argument(f'--{each.name}', type=each.type)", []),
        ("for each in fields(Options):\n            parser.add_argument('--my_' + each.name)", ["--rate"]),
        ("for name, field in cls.__dataclass_fields__.items():\n            parser.add_argument(f'--{name}')", []),
        ("for each in Options.__dataclass_fields__.values():\n            parser.add_argument('--' + each.name)", []),
        ("for name in Options.__annotations__:\n            parser.add_argument(f'--x_{name}')", ["--rate"]),
        ("for name in read_names():\n            parser.add_argument(f'--{name}', type=float)", []),
        ("add = parser.add_argument\n        add('--rate')\n        add('--warm_up')", []),
        ("for words in (['--rate'], ['--warm_up']):\n            parser.add_argument(*words, type=float)", []),
    ],
)  # fmt: skip
def test_arguments_that_a_loop_adds_are_known(added, unknown):
    """Python's documentation of argparse: parse_args stops at the arguments that no add_argument has named."""
    job = ONE | {"hyperparameters": {"epochs": 2, "rate": 0.2, "warm_up": 3}}
    found = [each.message for each in findings(LOOPED.format(added=added), job) if each.code == "TW193"]
    assert len(found) == len(unknown)
    assert all(name in " ".join(found) for name in unknown)


@pytest.mark.parametrize(
    ("added", "parse", "given", "said"),
    [
        ("--k", "parse_known_args", "k", "the job passes -k, which parse_known_args leaves out; the script has --k"),
        ("--k", "parse_args", "k", "the job passes -k; the script has --k, which is another option"),
        ("-net", "parse_known_args", "net", "the job passes --net, which parse_known_args leaves out"),
        ("-k", "parse_args", "k", None),
        ("-k', '--neighbours", "parse_known_args", "k", None),
        ("--kk", "parse_known_args", "kk", None),
    ],
)
def test_a_name_of_one_letter_has_one_dash(added, parse, given, said):
    """sagemaker-training 5.1.4, mapping.py, to_cmd_args; argparse completes the beginnings of words with two dashes."""
    script = (
        f"import argparse\np = argparse.ArgumentParser()\np.add_argument('{added}', type=int, default=5)\np.{parse}()"
    )
    found = [each.message for each in findings(script, ONE | {"hyperparameters": {given: 15}}) if each.code == "TW193"]
    assert [message.startswith(said) for message in found] == ([True] if said else []), found


def test_an_argument_of_a_loop_is_held_against_its_value():
    """argparse refuses a value that the type of any of the arguments does not convert."""
    added = "for name in ('rate', 'warm_up'):\n            parser.add_argument(f'--{name}', type=int)"
    job = ONE | {"hyperparameters": {"rate": 0.2, "warm_up": 3}}
    found = [each.message for each in findings(LOOPED.format(added=added), job) if each.code == "TW198"]
    assert len(found) == 1
    assert "--rate 0.2" in found[0]


@pytest.mark.parametrize(
    ("words", "value", "reported"),
    [
        ("type=float, nargs=2", [0.9, 0.95], True),
        ("type=float, nargs='+'", [0.9, 0.95], True),
        ("type=int, nargs='*'", [3], True),
        ("type=int", [3, 4], True),
        ("nargs=2", ["a", "b"], True),
        ("type=json.loads, nargs=2", [0.9, 0.95], True),
        ("type=json.loads", [0.9, 0.95], False),
        ("type=numbers, nargs='+'", [0.9, 0.95], False),
        ("nargs='+'", ["a", "b"], False),
        ("nargs=1", [3], False),
        ("type=float, nargs='+'", 0.9, False),
        ("type=float, nargs=count", [0.9, 0.95], True),
        ("nargs=count", [0.9, 0.95], False),
    ],
)
def test_a_list_is_one_argument(words, value, reported):
    """aws/sagemaker-training-toolkit, mapping.py, to_cmd_args: the value is str(value)."""
    script = "import json\n" + parser(f"'--betas', {words}, default=None")
    assert ("TW512" in codes(script, ONE | {"hyperparameters": {"betas": value}})) is reported
    assert "TW512" not in codes(script, ONE | {"hyperparameters": {}})
    assert "TW512" not in codes(script)


@pytest.mark.parametrize(("kind", "reported"), [("list[float]", True), ("Optional[List[int]]", True), ("str", False)])
def test_a_list_is_one_argument_for_a_dataclass_too(kind, reported):
    """transformers, hf_argparser.py: a field that is a list has nargs="+" and the type of its elements."""
    made = "(own,) = HfArgumentParser(Own).parse_args_into_dataclasses()\n"
    script = (
        "from dataclasses import dataclass\nfrom typing import List, Optional\n"
        "from transformers import HfArgumentParser\n"
        f"@dataclass\nclass Own:\n    betas: {kind} = None\n{made}"
    )
    assert ("TW512" in codes(script, ONE | {"hyperparameters": {"betas": [1, 2]}})) is reported


CLASSES = """
from dataclasses import dataclass
from transformers import AutoModelForSequenceClassification, HfArgumentParser, Trainer, TrainingArguments

@dataclass
class ModelArguments:
    {field}: str = "bert-base-uncased"

model_args, training_args = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
model = AutoModelForSequenceClassification.from_pretrained(model_args.{field})
trainer = Trainer(model=model, args=training_args, train_dataset=[])
trainer.train()
trainer.save_model("/opt/ml/model")
"""


@pytest.mark.parametrize(("field", "reported"), [("model_name", False), ("base_model", True)])
def test_a_hyperparameter_of_one_class_is_no_argument_of_the_other(field, reported):
    """HfArgumentParser gives each class its own fields; ``model_name`` is near ``label_names`` of TrainingArguments."""
    job = {**ONE, "hyperparameters": {"model_name": "roberta-base", "output_dir": "/tmp/run"}}
    found = [each for each in findings(CLASSES.format(field=field), job) if each.code in ("TW157", "TW193")]
    assert bool(found) is reported


@pytest.mark.parametrize(
    ("name", "value", "reported"),
    [
        ("max_steps", 2.0e4, True),
        ("per_device_train_batch_size", "8.0", True),
        ("max_steps", 20000, False),
        ("seed", "42", False),
        ("save_steps", 0.1, False),  # a share of the training
        ("logging_steps", 50.0, False),
        ("learning_rate", 5, False),
        ("model_name", 1.5, False),  # the script's own, a text
    ],
)
def test_a_whole_number_of_the_training_arguments(name, value, reported):
    """transformers' training_args.py: argparse takes int of max_steps; SDK 2 passes 2.0e4 as 20000.0."""
    job = {**ONE, "hyperparameters": {name: value, "output_dir": "/tmp/run"}}
    found = [each for each in findings(CLASSES.format(field="model_name"), job) if each.code == "TW198"]
    assert bool(found) is reported


@pytest.mark.parametrize(
    ("words", "value", "said"),
    [
        ("type=int, nargs=2", 224, "--size expects 2 arguments, and gets one, '224'"),
        ("type=float, nargs=2", "0.9", "--size expects 2 arguments, and gets one, '0.9'"),
        ("nargs=3", "a b c", "--size expects 3 arguments, and gets one, 'a b c'"),
        ("type=int, nargs=2", "224 224", "--size '224 224' is passed as one word, not as 2: invalid int value"),
        ("type=int, nargs=1", 224, None),
        ("type=int, nargs='+'", 224, None),
        ("type=int, nargs=count", 224, None),
        ("type=int", 224, None),
    ],
)
def test_one_value_is_not_several(words, value, said):
    """argparse ends with "expected 2 arguments"; the toolkit passes a single one for each hyperparameter."""
    job = ONE | {"hyperparameters": {"size": value}}
    found = [each.message for each in findings(parser(f'"--size", {words}'), job) if each.code == "TW198"]
    assert [said in message for message in found] == ([True] if said else []), found


def test_argparse_itself_refuses_one_value_of_two():
    made = argparse.ArgumentParser(exit_on_error=False)
    made.add_argument("--size", type=int, nargs=2)
    with pytest.raises(argparse.ArgumentError, match="expected 2 arguments"):
        made.parse_args(["--size", "224"])
