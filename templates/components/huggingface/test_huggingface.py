"""Hugging Face's libraries: versions as planned, and a small model that needs no download runs on the framework."""

import json

import pytest

TINY = "hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=50"


def has(plan, name):
    return any(c["name"] == name for c in plan["components"])


def test_versions_are_the_plan_s(plan, probe):
    pins = next(c for c in plan["components"] if c["name"] == "huggingface")["packages"]
    wanted = {pin.partition("==")[0].partition("[")[0]: pin.partition("==")[2] for pin in pins}
    seen = {name: probe["distributions"].get(name.lower().replace("_", "-")) for name in wanted}
    assert seen == wanted


def test_a_model_runs_on_pytorch(python, plan):
    if not has(plan, "pytorch"):
        pytest.skip("the framework is TensorFlow")
    script = f"""
import torch, transformers
model = transformers.BertModel(transformers.BertConfig({TINY})).eval()
print(list(model(torch.ones(1, 5, dtype=torch.long))[0].shape))
"""
    assert python(script).splitlines()[-1] == "[1, 5, 16]"


def test_a_model_runs_on_tensorflow(python, plan):
    if not has(plan, "tensorflow"):
        pytest.skip("the framework is PyTorch")
    script = f"""
import tensorflow as tf, transformers
model = transformers.TFBertModel(transformers.BertConfig({TINY}))
print(list(model(tf.ones([1, 5], dtype=tf.int32))[0].shape))
"""
    assert python(script).splitlines()[-1] == "[1, 5, 16]"


def test_a_data_set_is_mapped(python, probe):
    if "datasets" not in probe["distributions"]:
        pytest.skip("datasets is not in this image")
    script = """
import json, datasets
rows = datasets.Dataset.from_dict({"n": list(range(5))}).map(lambda row: {"square": row["n"] ** 2})
print(json.dumps(rows["square"][:]))
"""
    assert json.loads(python(script).splitlines()[-1]) == [0, 1, 4, 9, 16]
