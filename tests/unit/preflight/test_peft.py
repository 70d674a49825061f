"""PEFT's adapters: which of them get gradients. Each mistake stands beside its nearest right ways."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes, findings

AWS = "763104351884.dkr.ecr.us-west-2.amazonaws.com/huggingface-pytorch-training"
JOB: dict[str, Any] = {
    "distribution": TORCHRUN,
    "instance_type": P4D,
    "image": f"{AWS}:2.1.0-transformers4.36.0-gpu-py310-cu121-ubuntu20.04",
}
HEAD = """
import os
from peft import AutoPeftModelForCausalLM, LoraConfig, PeftModel, PromptTuningConfig, get_peft_model
from peft import prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
"""
BASE = 'base = AutoModelForCausalLM.from_pretrained("gpt2")\n'
TRAINS = (
    "arguments = TrainingArguments('/tmp/x', {more})\n"
    "trainer = Trainer(model=model, args=arguments, train_dataset=data, data_collator=collate)\ntrainer.train()\n"
    "trainer.save_model(os.environ['SM_MODEL_DIR'])\n"
)
LORA = 'adapters = LoraConfig(r=8, target_modules=["c_attn"])\nmodel = get_peft_model(base, adapters)\n'
CHECKPOINTS = "gradient_checkpointing=True"
CHECKPOINTED = HEAD + BASE + LORA + TRAINS.format(more=CHECKPOINTS)
LOADED = HEAD + BASE + "model = PeftModel.from_pretrained(base, '/opt/ml/input/data/first'{more})\n"
LOOP = (
    "import torch\noptimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)\nmodel.{ways}\n"
    "for batch in loader:\n    loss = model(**batch).loss\n    loss.backward()\n    optimizer.step()\n"
    "    optimizer.zero_grad()\n"
)
SEVERAL_WAYS = f"""
class Learner:
    def network(self):
        return get_peft_model(AutoModelForCausalLM.from_pretrained("gpt2"), LoraConfig(r=4))

    def fit(self):
        options = TrainingArguments("/tmp/x", {CHECKPOINTS}, gradient_checkpointing_kwargs={{"use_reentrant": True}})
        Trainer(self.network(), options, train_dataset=data, data_collator=collate).train()


Learner().fit()
"""


@pytest.mark.parametrize(
    "text",
    [
        CHECKPOINTED,
        HEAD + SEVERAL_WAYS,
        HEAD + BASE + LORA + LOOP.format(ways="gradient_checkpointing_enable()"),
    ],
    ids=["trainer", "class", "loop"],
)
def test_adapters_under_reentrant_checkpoints(text):
    assert [f.severity for f in findings(text, JOB) if f.code == "TW562"] == ["error"]


NO_REENTRANT = CHECKPOINTS + ', gradient_checkpointing_kwargs={"use_reentrant": False}'


@pytest.mark.parametrize(
    "text",
    [
        HEAD + BASE + LORA + "model.enable_input_require_grads()\n" + TRAINS.format(more=CHECKPOINTS),
        HEAD + BASE + LORA + TRAINS.format(more=NO_REENTRANT),
        HEAD + BASE + LORA + TRAINS.format(more=""),
        HEAD + BASE + "base.gradient_checkpointing_enable()\n" + LORA + TRAINS.format(more=CHECKPOINTS),
        HEAD + BASE + "base = prepare_model_for_kbit_training(base)\n" + LORA + TRAINS.format(more=CHECKPOINTS),
        CHECKPOINTED.replace('LoraConfig(r=8, target_modules=["c_attn"])', "PromptTuningConfig(num_virtual_tokens=8)"),
        CHECKPOINTED.replace('["c_attn"]', '["c_attn", "wte"]'),
    ],
    ids=["inputs", "no reentrant", "no checkpoints", "before", "quantized", "prompts", "embedding"],
)
def test_adapters_whose_inputs_require_a_gradient(text):
    assert "TW562" not in codes(text, JOB)


@pytest.mark.parametrize(
    ("version", "severity"), [("5.0.0", None), ("4.57.0", "error"), (None, "warning")], ids=["5.0", "4.57", "unknown"]
)
def test_the_version_of_transformers_decides(version, severity):
    """transformers 5.0 takes no reentrant checkpoints, and enables the inputs of all of PEFT's models."""
    job = {**JOB, "image": f"{AWS}:2.8.0-transformers{version}-gpu-py312" if version else "acme/training:1"}
    found = [f.severity for f in findings(CHECKPOINTED, job) if f.code == "TW562"]
    assert found == ([severity] if severity else [])


@pytest.mark.parametrize(
    "text",
    [
        LOADED.format(more="") + TRAINS.format(more=""),
        LOADED.format(more=", is_trainable=False") + TRAINS.format(more=""),
        HEAD + "model = AutoPeftModelForCausalLM.from_pretrained('/tmp/first')\n" + TRAINS.format(more=""),
        LOADED.format(more="") + LOOP.format(ways="train()"),
    ],
    ids=["trainer", "said", "auto", "loop"],
)
def test_an_adapter_that_was_loaded_for_inference_is_trained(text):
    assert [f.severity for f in findings(text, JOB) if f.code == "TW563"] == ["error"]


@pytest.mark.parametrize(
    "text",
    [
        LOADED.format(more=", is_trainable=True") + TRAINS.format(more=""),
        LOADED.format(more=", 'default', True") + TRAINS.format(more=""),
        LOADED.format(more="") + "model = model.merge_and_unload()\n" + TRAINS.format(more=""),
        LOADED.format(more="") + "base = model.merge_and_unload()\n" + LORA + TRAINS.format(more=""),
        LOADED.format(more="") + TRAINS.format(more="").replace(".train()", ".evaluate()"),
        LOADED.format(more="")
        + "for name, weight in model.named_parameters():\n    weight.requires_grad = 'lora' in name\n"
        + TRAINS.format(more=""),
    ],
    ids=["trainable", "by position", "merged", "another", "evaluated", "freed"],
)
def test_an_adapter_that_is_trained_can_be(text):
    assert "TW563" not in codes(text, JOB)


def test_an_adapter_that_is_loaded_in_one_case():
    """Where the model is new in the other case, the mistake is not certain."""
    chosen = (
        "adapter = os.environ.get('FIRST')\nif adapter:\n    model = PeftModel.from_pretrained(base, adapter)\n"
        "else:\n    model = get_peft_model(base, LoraConfig(r=8))\n"
    )
    text = HEAD + BASE + chosen + TRAINS.format(more="")
    assert [f.severity for f in findings(text, JOB) if f.code == "TW563"] == ["warning"]


HEADED = (
    "from peft import TaskType\nfrom transformers import AutoModelForSequenceClassification\n"
    "from transformers import ViTForImageClassification\n"
    "def made(labels):\n    base = {base}\n    config = {config}\n    return get_peft_model(base, config)\n"
    "model = made(['a', 'b'])\n"
)
LABELLED = "AutoModelForSequenceClassification.from_pretrained('/opt/ml/input/data/base', num_labels=len(labels))"
IMAGES = (
    "ViTForImageClassification.from_pretrained('google/vit-base-patch16-224-in21k', id2label=dict(enumerate(labels)))"
)
QUERIES = 'LoraConfig(r=8, target_modules=["query", "value"])'


def heads(base: str, config: str, after: str = "", loop: bool = False) -> list[str]:
    trains = LOOP.format(ways="train()") if loop else TRAINS.format(more="")
    text = HEAD + HEADED.format(base=base, config=config) + after + trains
    return [f.severity for f in findings(text, JOB) if f.code == "TW574"]


@pytest.mark.parametrize("loop", [False, True], ids=["trainer", "loop"])
@pytest.mark.parametrize(
    ("base", "config"),
    [
        (LABELLED, QUERIES),
        (LABELLED, "LoraConfig(r=8)"),
        (LABELLED, 'LoraConfig(r=8, target_modules="query|value", task_type=None)'),
        (LABELLED, "LoraConfig(r=8, task_type=TaskType.CAUSAL_LM)"),
        (LABELLED, 'LoraConfig(r=8, task_type="FEATURE_EXTRACTION")'),
        (IMAGES, QUERIES),
    ],
    ids=["plain", "default layers", "no task", "another task", "features", "images"],
)
def test_a_new_head_that_is_not_saved_with_its_adapters(base, config, loop):
    assert heads(base, config, loop=loop) == ["warning"]


@pytest.mark.parametrize(
    ("base", "config", "after"),
    [
        (LABELLED, 'LoraConfig(r=8, task_type="SEQ_CLS")', ""),
        (LABELLED, "LoraConfig(r=8, task_type=TaskType.SEQ_CLS)", ""),
        (LABELLED, "LoraConfig(r=8, task_type=TASK)", ""),
        (LABELLED, 'LoraConfig(r=8, target_modules=["query", "value"], modules_to_save=["classifier"])', ""),
        (LABELLED, 'LoraConfig(r=8, target_modules=["query", "classifier"])', ""),
        (LABELLED, 'LoraConfig(r=8, target_modules="all-linear")', ""),
        (LABELLED, "LoraConfig(r=8, target_modules=LAYERS)", ""),
        (LABELLED, "LoraConfig(r=8, **options)", ""),
        (LABELLED, "PromptTuningConfig(num_virtual_tokens=8)", ""),
        ("AutoModelForCausalLM.from_pretrained('gpt2')", QUERIES, ""),
        # A checkpoint that may have been trained for these labels already.
        (LABELLED.replace(", num_labels=len(labels)", ""), QUERIES, ""),
        ("built(num_labels=2)", QUERIES, ""),
        (LABELLED, QUERIES, "for weight in model.classifier.parameters():\n    weight.requires_grad = True\n"),
        (LABELLED, QUERIES, "model.classifier.requires_grad_(True)\n"),
        (LABELLED, QUERIES, "def whole():\n    return model.merge_and_unload()\n"),
    ],
)
def test_a_head_that_is_trained_or_was_before(base, config, after):
    assert heads(base, config, after) == []
