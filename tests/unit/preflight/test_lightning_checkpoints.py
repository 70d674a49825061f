"""Lightning makes a module again from its checkpoint with the arguments that were kept there, or given.

Sources: Lightning-AI/pytorch-lightning #4390, #3140, #18838.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes

JOB: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN}
SCRIPT = """
import lightning as L
import torch
class Base(L.LightningModule):
    def __init__({base}):
        super().__init__()
        {keep}
class Net(Base):
    {own}
    def training_step(self, batch, index):
        return self.layer(batch).sum()
net = Net(8, 4)
kept = L.pytorch.callbacks.ModelCheckpoint()
trainer = L.Trainer(devices=8, callbacks=[kept])
trainer.fit(net, loader)
best = Net.load_from_checkpoint({given})
"""
RIGHT = "kept.best_model_path"
OWN = (
    "def __init__(self, width, depth, lr=0.1):\n        super().__init__()\n"
    "        self.layer = torch.nn.Linear(width, 1)"
)
OVERRIDES = "def load_from_checkpoint(cls, path):\n        return super().load_from_checkpoint(path, width=8, depth=4)"


def script(given: str = RIGHT, own: str = OWN, base: str = "self", keep: str = "pass") -> str:
    return SCRIPT.format(given=given, own=own, base=base, keep=keep)


@pytest.mark.parametrize(
    "text",
    [
        script(),
        script(f"{RIGHT}, map_location='cpu'"),
        script(f"{RIGHT}, width=8"),
        script(own="pass", base="self, width, depth"),
        script(f"{RIGHT}, width=8", own=OWN.replace("depth, lr", "*, depth, lr")),
        script(f"{RIGHT}, 'cpu'"),
        "from huggingface_hub import PyTorchModelHubMixin\n"
        + script().replace("Net(Base", "Net(Base, PyTorchModelHubMixin"),
    ],
    ids=["path", "device", "one of two", "inherited", "by name", "by place", "beside another base"],
)
def test_arguments_that_nothing_keeps(text):
    assert "TW587" in codes(text, JOB)


@pytest.mark.parametrize(
    "text",
    [
        script(f"{RIGHT}, width=8, depth=4"),
        script(f"{RIGHT}, **sizes"),
        script(own=OWN + "\n        self.save_hyperparameters()"),
        script(keep="self.save_hyperparameters()"),
        script(own=OWN + "\n        self.hparams.update(width=width, depth=depth)"),
        script(own=OWN.replace("width, depth", "width=8, depth=4")),
        script(own=OWN.replace("width, depth, lr=0.1", "*sizes, **more")),
        script(f"{RIGHT}, hparams_file='hparams.yaml'"),
        script(f"{RIGHT}, None, 'hparams.yaml'"),
        script(f"{RIGHT}, width=8, depth=4", own=OWN.replace("depth, lr", "*, depth, lr")),
        script(own=f"@keeps_arguments\n    {OWN}"),
        script().replace("best = Net.", "best = Other."),
        script()
        .replace("class Net", "class Plain(L.LightningModule):\n    pass\nclass Net")
        .replace("= Net.", "= Plain."),
        script().replace("best = ", f"def again():\n    return Net.load_from_checkpoint({RIGHT})\n# "),
        script().replace(
            "best = ", f"try:\n    best = Net.load_from_checkpoint({RIGHT}, **sizes)\nexcept OSError:\n    best = "
        ),
        script().replace("best = ", "state = {'hyper_parameters': {'width': 8, 'depth': 4}}\nbest = "),
        "from nemo.core import ModelPT\n" + script().replace("Net(Base)", "Net(ModelPT)"),
        script(own=f"{OWN}\n    @classmethod\n    {OVERRIDES}"),
    ],
)
def test_arguments_that_are_kept_or_given(text):
    assert "TW587" not in codes(text, JOB)
