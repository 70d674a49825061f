"""What metrics of Hugging Face's evaluate and datasets compute, by their names."""

from __future__ import annotations

from trainwright.script.events import Event
from trainwright.script.values import Value

# What a metric's compute returns: huggingface/evaluate, metrics/*/*.py, _compute.
_NAMES = {
    **{name: name for name in ("accuracy", "f1", "precision", "recall", "matthews_correlation", "roc_auc", "meteor")},
    **{name: name for name in ("mse", "mae", "pearsonr", "spearmanr", "exact_match")},
    "squad": "exact_match f1",
    "bleu": "bleu precisions brevity_penalty length_ratio translation_length reference_length",
    "sacrebleu": "score counts totals precisions bp sys_len ref_len",
    "rouge": "rouge1 rouge2 rougeL rougeLsum",
    **dict.fromkeys(("glue/mrpc", "glue/qqp"), "accuracy f1"),
    **dict.fromkeys(("glue/sst2", "glue/mnli", "glue/qnli", "glue/rte", "glue/wnli"), "accuracy"),
    "glue/cola": "matthews_correlation",
    "glue/stsb": "pearson spearmanr",
}


def metric(event: Event) -> Value:
    """``evaluate.load("glue", "mrpc")``: a metric, and which; of ``evaluate.combine``, several."""
    given = event.arg("path", 0) or event.arg("evaluations")
    parts = [] if given is None else [given] if given.items is None else list(given.items)
    names = [part.single() for part in parts]
    config = event.arg("config_name", 1)
    which = config.single() if config is not None and event.last != "combine" else None
    tags = {f"metric:{name}/{which}" if isinstance(which, str) else f"metric:{name}" for name in names}
    return Value(made=frozenset({event.name}), tags=frozenset(tags))


def method(event: Event, base: Value, name: str) -> Value | None:
    """Return what metrics compute, under their names; None if one of them is not known, or of another method."""
    parts = [_NAMES.get(tag[7:]) for tag in base.tags if tag.startswith("metric:")]
    if name != "compute" or not parts or None in parts or "rouge_types" in event.keywords:
        return None
    return Value(attrs={each: Value() for part in sorted(part or "" for part in parts) for each in part.split()})
