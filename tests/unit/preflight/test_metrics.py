"""Metrics: the names that a Trainer asks for, and each sample of an evaluation once.

Sources: transformers, trainer.py, _determine_best_metric: KeyError for a name that the metrics lack;
huggingface/evaluate, metrics/*/*.py: the names; Accelerate's documentation of gather_for_metrics.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, Case, but, unmet

ONE: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN}
TRAINER = (
    "import evaluate\nimport numpy as np\nfrom datasets import load_metric\nfrom functools import partial\n"
    "from transformers import Trainer, TrainingArguments\n{head}\ndef measure(given):\n    {body}\n"
    "args = TrainingArguments('out', eval_strategy='epoch', save_strategy='epoch', load_best_model_at_end=True, "
    "metric_for_best_model={best!r})\n"
    "Trainer(model=net, args=args, eval_dataset=rows, compute_metrics={function}).train()\n"
)


def trainer(body: str, best: str = "f1", head: str = "", function: str = "measure") -> str:
    """A Trainer whose best model is the one with the best value of a metric."""
    return TRAINER.format(body=body, best=best, head=head, function=function)


ACCURACY = "metric = evaluate.load('accuracy')"
BOTH = "metric = evaluate.combine(['accuracy', 'f1'])"
COMPUTE = "metric.compute(predictions=given[0], references=given[1])"
NESTED = "def build(metric):\n    def inner(given):\n        return {'accuracy': 1.0}\n    return inner"
BEST: list[Case] = [
    ("TW157", reported, trainer(body, **more), ONE)
    for reported, body, more in (
        (True, f"return {COMPUTE}", {"head": ACCURACY}),
        (True, f"return {COMPUTE}", {"head": ACCURACY, "best": "eval_f1"}),
        (True, f"return {COMPUTE}", {"head": "metric = load_metric('accuracy')"}),
        (True, f"return {COMPUTE}", {"head": "metric = evaluate.load('glue', 'sst2')"}),
        (True, f"return {COMPUTE}", {"head": BOTH, "best": "recall"}),
        (True, f"result = {COMPUTE}\n    result['recall'] = 1.0\n    return result", {"head": ACCURACY}),
        (True, f"result = {COMPUTE}\n    return {{'acc': result['accuracy']}}", {"head": ACCURACY, "best": "accuracy"}),
        (True, f"return {{**{COMPUTE}, 'loss2': 1.0}}", {"head": ACCURACY}),
        (True, "return {'accuracy': 1.0}", {}),
        (True, "return dict(accuracy=1.0)", {}),
        (True, "scores = {}\n    scores['accuracy'] = 1.0\n    return scores", {}),
        (True, "return {'eval_accuracy': 1.0}", {}),
        (True, "if given:\n        return {'accuracy': 1.0}\n    return {'recall': 1.0}", {}),
        (True, "return {'accuracy': 1.0}", {"function": "partial(measure, more=1)"}),
        (True, "pass", {"head": NESTED, "function": "build(1)"}),
        (True, "return {k: round(v, 4) for k, v in metric.compute().items()}", {"head": ACCURACY}),
        (False, f"return {COMPUTE}", {"head": ACCURACY, "best": "accuracy"}),
        (False, f"return {COMPUTE}", {"head": BOTH}),
        (False, f"return {COMPUTE}", {"head": "metric = evaluate.load('glue', 'mrpc')"}),
        (False, f"return {COMPUTE}", {"head": "metric = evaluate.load('glue', task)"}),
        (False, f"return {COMPUTE}", {"head": "metric = evaluate.load(name)"}),
        (False, f"return {COMPUTE}", {"head": "metric = evaluate.load('seqeval')"}),
        (False, f"return {COMPUTE}", {"head": "metric = evaluate.combine(['accuracy', name])"}),
        (False, f"result = {COMPUTE}\n    result['f1'] = 1.0\n    return result", {"head": ACCURACY}),
        (False, f"result = {COMPUTE}\n    result.update(more(given))\n    return result", {"head": ACCURACY}),
        (False, f"result = {COMPUTE}\n    result[name] = 1.0\n    return result", {"head": ACCURACY}),
        (False, f"return {{**{COMPUTE}, **more(given)}}", {"head": ACCURACY}),
        (False, f"return {COMPUTE}", {"head": ACCURACY, "best": "loss"}),
        (False, f"return {COMPUTE}", {"head": ACCURACY, "best": "eval_runtime"}),
        (False, "return {'eval_f1': 1.0}", {}),
        (False, "return {f'{name}_f1': 1.0}", {}),
        (False, "return more(given)", {}),
        (False, "return {'accuracy': 1.0}", {"function": "elsewhere"}),
        (False, f"return {COMPUTE.replace(')', ', rouge_types=kinds)')}", {
            "head": "metric = evaluate.load('rouge')", "best": "rouge3"}),
    )
]  # fmt: skip
LOOP = (
    "import torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\nnet = torch.nn.Linear(2, 2)\n"
    "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\ntrain = torch.utils.data.DataLoader(rows)\n"
    "held = torch.utils.data.DataLoader(others)\n"
    "net, optimizer, train, held = accelerator.prepare(net, optimizer, train, held)\n"
    "for x in train:\n    loss = net(x).sum()\n    accelerator.backward(loss)\n    optimizer.step()\n"
    "    optimizer.zero_grad()\n    {train}\n"
    "for x, y in held:\n    with torch.no_grad():\n        out = net(x)\n    {body}\n"
)
ARGMAX = "seen.append(accelerator.gather(out.argmax(-1)))"


def loop(body: str, *edits: str, train: str = "pass") -> str:
    """A training and an evaluation with Accelerate."""
    return but(LOOP.format(body=body, train=train), *edits)


GATHERED: list[Case] = [
    ("TW463", reported, script, job)
    for reported, script, job in (
        (18, loop(ARGMAX), ONE),
        (True, loop("given, y = accelerator.gather((out.argmax(-1), y))\n    metric.add_batch(given, y)"), ONE),
        (True, loop("metric.update(*accelerator.gather([out, y]))"), ONE),
        (True, loop("out = accelerator.pad_across_processes(out)\n    seen.append(accelerator.gather(out))"), ONE),
        (True, loop("right = out.argmax(-1) == y\n    seen += accelerator.gather(right).tolist()"), ONE),
        (True, loop("seen.append(accelerator.gather({'out': out, 'y': y}))"), ONE),
        (True, loop(ARGMAX, "for x, y in held", "for i, (x, y) in enumerate(held)"), ONE),
        (
            True,
            loop(ARGMAX, "import torch\n", "import torch\nfrom tqdm import tqdm\n", "in held", "in tqdm(held)"),
            ONE,
        ),
        (True, loop(f"{ARGMAX}\nrun(held)", "for x, y in held", "def run(batches):\n  for x, y in batches"), ONE),
        (True, loop(ARGMAX, "DataLoader(others)", "DataLoader(others, drop_last=False)"), ONE),
        (True, loop("seen.append(accelerator.gather(tensor=out))"), ONE),
        (True, loop(ARGMAX, "Accelerator()", "Accelerator(even_batches=True)"), ONE),
        (False, loop(ARGMAX.replace("gather", "gather_for_metrics")), ONE),
        # One number of each process.
        (False, loop("loss = out.mean()\n    seen.append(accelerator.gather(loss))"), ONE),
        (False, loop("seen.append(accelerator.gather(criterion(out, y).loss))"), ONE),
        (False, loop("right = (out.argmax(-1) == y).sum()\n    seen.append(accelerator.gather(right))"), ONE),
        # Those of the training, where nothing is measured.
        (False, loop("pass", train="seen.append(accelerator.gather(net(x)))"), ONE),
        # The script drops the repeated samples itself.
        (False, loop(f"{ARGMAX}\nseen = torch.cat(seen)[: len(others)]"), ONE),
        (False, loop("out = accelerator.gather(out)\n    out = out[: total - before]"), ONE),
        # No samples are repeated.
        (False, loop(ARGMAX, "Accelerator()", "Accelerator(even_batches=False)"), ONE),
        (False, loop(ARGMAX, "DataLoader(others)", "DataLoader(others, drop_last=True)"), ONE),
        (
            False,
            loop(
                ARGMAX,
                "Accelerator()",
                "Accelerator(dataloader_config=DataLoaderConfiguration(even_batches=False))",
                "import Accelerator",
                "import Accelerator, DataLoaderConfiguration",
            ),
            ONE,
        ),
        (False, loop(f"with accelerator.join_uneven_inputs([net]):\n        {ARGMAX}"), ONE),
        (False, loop("torch.distributed.gather(out.argmax(-1), seen)"), ONE),
        (False, loop(ARGMAX, "optimizer, train, held", "optimizer, train"), ONE),
        (False, loop(ARGMAX), {"instance_type": "ml.g5.2xlarge"}),
    )
]


@pytest.mark.parametrize("case", BEST, ids=range(len(BEST)))
def test_the_best_model_is_chosen_by_a_metric_that_there_is(case: Case) -> None:
    assert not unmet(case), unmet(case)


@pytest.mark.parametrize("case", GATHERED, ids=range(len(GATHERED)))
def test_each_sample_is_measured_once(case: Case) -> None:
    assert not unmet(case), unmet(case)
