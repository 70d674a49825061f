"""Scripts that do something odd with their names and arguments: every one is read to its end."""

from __future__ import annotations

import ast
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.training_scripts import P4D, TORCHRUN, findings

CORPUS = {
    path.stem: (made["script"], made["job"])
    for path in sorted((Path(__file__).parents[2] / "corpus").glob("*.yaml"))
    if "script" in (made := yaml.load(path.read_text(), yaml.CSafeLoader))
}


class Altered(ast.NodeTransformer):
    """Names that are computed from themselves or unpacked, and calls with other arguments."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        self.generic_visit(node)
        target = node.targets[0]
        if isinstance(target, ast.Name) and self.chance.random() < 0.15:
            read = ast.Name(target.id, ast.Load())
            node.value = self.chance.choice(
                [
                    ast.BinOp(read, ast.Add(), ast.Constant(1)),
                    read,
                    ast.Call(ast.Name("max", ast.Load()), [read, node.value], []),
                    ast.Call(ast.Attribute(read, "shuffle", ast.Load()), [ast.Constant(8)], []),
                ]
            )
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if self.chance.random() < 0.06:
            kind = self.chance.randrange(3)
            if kind == 0 and node.args and not isinstance(node.args[0], ast.Starred):
                node.args = [ast.Starred(node.args[0], ast.Load()), *node.args[1:]]
            elif kind == 1:
                node.keywords = [*node.keywords, ast.keyword(None, ast.Name("options", ast.Load()))]
            else:
                node.args = []
        return node


@pytest.mark.hypothesis
@settings(deadline=None, max_examples=150)
@given(st.sampled_from(sorted(CORPUS)), st.integers(0, 2**32), st.booleans())
def test_an_altered_script_is_read_to_its_end(name: str, seed: int, with_job: bool) -> None:
    text, job = CORPUS[name]
    tree = ast.fix_missing_locations(Altered(seed).visit(ast.parse(text)))
    findings(ast.unparse(tree), job if with_job else None)


TENSORFLOW: dict[str, Any] = {"instance_type": P4D, "plan": {"framework": "tensorflow"}}


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("import os\nfolder = os.path.join(*parts)\nfolder = os.path.join()\n", None),
        ("import itertools\nimport torch\nfor x in itertools.cycle():\n    model(x).sum().backward()\n", None),
        (
            "import tensorflow as tf\ndef batches(train):\n    if train:\n        rows = rows.shuffle(8, seed=13)\n"
            "    return rows.with_options(opts)\nmodel = tf.keras.Sequential([tf.keras.layers.Dense(1)])\n"
            "model.compile(loss=tf.keras.losses.BinaryCrossentropy(from_logits=True))\nmodel.fit(batches(True))\n",
            TENSORFLOW,
        ),
        (
            "import numpy as np\nfrom torch.utils.data import DataLoader, Dataset\nclass Rows(Dataset):\n"
            "    def __getitem__(self, i):\n        return np.random.rand(i)\ndef start(worker):\n"
            "    number = number + 7\n    np.random.seed(number)\n"
            "for x in DataLoader(Rows(), num_workers=2, worker_init_fn=start):\n    model(x).sum().backward()\n",
            {"instance_type": P4D, "distribution": TORCHRUN},
        ),
    ],
)
def test_what_once_broke_off(text: str, job: dict[str, Any] | None) -> None:
    findings(text, job)
