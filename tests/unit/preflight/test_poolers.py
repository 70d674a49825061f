"""Encoders with a pooler whose output is left out, in DistributedDataParallel.

Sources: transformers 4.57.1, models/*/modeling_*.py (add_pooling_layer) and models/auto/modeling_auto.py;
princeton-nlp/SimCSE #78.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, but, findings

JOB: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN}
ONE_GPU: dict[str, Any] = {"instance_type": "ml.g5.xlarge", "distribution": TORCHRUN}
SCRIPT = """
import argparse, os, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
import transformers
p = argparse.ArgumentParser()
p.add_argument("--weights", default="bert-base-cased")
args = p.parse_args()
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
class Net(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.encoder = transformers.BertModel.from_pretrained(name)
        self.head = torch.nn.Linear(768, 2)
    def forward(self, ids):
        output = self.encoder(ids)
        return self.head(output.last_hidden_state)
model = DDP(Net(args.weights).cuda())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for ids in loader:
    model(ids).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
MADE = "transformers.BertModel.from_pretrained(name)"
TAKEN = "output.last_hidden_state"
CALL = "output = self.encoder(ids)"
DIRECT = but(
    SCRIPT,
    "Net(args.weights)",
    "transformers.RobertaModel.from_pretrained('roberta-base')",
    "model(ids).sum()",
    "model(ids)[0].sum()",
)


def severities(script: str, job: dict[str, Any] | None = JOB) -> list[str]:
    return [each.severity for each in findings(script, job) if each.code == "TW431"]


@pytest.mark.parametrize(
    "script",
    [
        SCRIPT,
        but(SCRIPT, MADE, "transformers.RobertaModel(config)"),
        but(SCRIPT, MADE, "transformers.BertModel.from_pretrained(name, add_pooling_layer=True)"),
        but(SCRIPT, MADE, "transformers.AutoModel.from_pretrained('xlm-roberta-base')"),
        but(SCRIPT, MADE, "transformers.AutoModel.from_pretrained(name)"),
        but(SCRIPT, TAKEN, "output[0]"),
        but(SCRIPT, TAKEN, "output['last_hidden_state']"),
        but(SCRIPT, TAKEN, "output.hidden_states[-1]"),
        but(SCRIPT, TAKEN, "self.encoder(ids)[0]", CALL, "pass"),
        but(SCRIPT, CALL, "states, _ = self.encoder(ids, return_dict=False)", TAKEN, "states"),
        DIRECT,
    ],
)
def test_a_pooler_without_a_gradient(script: str) -> None:
    assert severities(script) == ["error"], script
    assert severities(script, None) == ["warning"]
    assert not severities(script, ONE_GPU)
    assert not severities(but(script, ".cuda())", ".cuda(), find_unused_parameters=True)"))
    assert not severities(but(script, ".cuda())", ".cuda(), static_graph=True)"))


@pytest.mark.parametrize(
    "script",
    [
        but(SCRIPT, "(name)\n", "(name, add_pooling_layer=False)\n"),
        but(SCRIPT, "(name)\n", "(name, add_pooling_layer=pooled)\n"),
        but(SCRIPT, "(name)\n", "(name, **more)\n"),
        *(
            but(SCRIPT, "BertModel", f"{name}Model")
            for name in ("DistilBert", "Electra", "Deberta", "GPT2", "MobileBert")
        ),
        but(SCRIPT, MADE, "transformers.AutoModel.from_pretrained('distilbert-base-uncased')"),
        but(SCRIPT, MADE, "transformers.AutoModel.from_pretrained('/opt/ml/input/data/bert')"),
        but(SCRIPT, MADE, "transformers.AutoModelForTokenClassification.from_pretrained('bert-base-cased')"),
        but(SCRIPT, TAKEN, "output.pooler_output"),
        but(SCRIPT, TAKEN, "output[1]"),
        but(SCRIPT, TAKEN, "output[-1]"),
        but(SCRIPT, TAKEN, "output"),
        but(SCRIPT, TAKEN, "output[0] + output[1]"),
        but(SCRIPT, TAKEN, "self.pool(output)"),
        but(SCRIPT, CALL, "states, first = self.encoder(ids, return_dict=False)", TAKEN, "states + first"),
        but(SCRIPT, "        self.head", "        self.encoder.pooler = None\n        self.head"),
        but(SCRIPT, "        self.head", "        self.encoder.requires_grad_(False)\n        self.head"),
        but(SCRIPT, CALL, "with torch.no_grad():\n            output = self.encoder(ids)"),
        but(SCRIPT, "DDP(Net", "torch.nn.DataParallel(Net"),
    ],
)
def test_a_pooler_that_is_used_or_missing(script: str) -> None:
    assert not severities(script), script
