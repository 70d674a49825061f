"""Keras: the metrics that callbacks of fit monitor, and the arguments that Horovod's callbacks require."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.errors import nearest
from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.versions import before
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at
from trainwright.script.values import Value

MONITORED = Rule(
    code="TW531",
    severity="error",
    title="a callback of Keras waits for a value that fit does not log",
    source='Keras, callbacks: "Can save best model only with val_acc available, skipping.", "Early stopping '
    'conditioned on metric `val_acc` which is not available."; a metric is logged under its own name, that of '
    "validation data with val_ before it",
    remedy='monitor="val_accuracy" for metrics=["accuracy"], "val_loss", or the name= of the metric.',
)
NO_RATE = Rule(
    code="TW575",
    severity="error",
    title="a learning rate callback of Horovod lacks an argument that it requires since 0.21, or gets it twice (a "
    "warning if the job's Horovod is not known)",
    source="Horovod's changelog, 0.21.0: initial_lr is required, and comes first (horovod/horovod #2459); mlrun/demos "
    "#169; aws/deep-learning-containers, tensorflow/training/docker/2.4/py3/cu110/Dockerfile.gpu: horovod==0.21.0, in "
    "2.3 horovod==0.20.3",
    remedy="hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.001 * hvd.size(), warmup_epochs=5)",
)
RULES = (MONITORED, NO_RATE)
# The arguments that callbacks require, in their order, since this release of Horovod.
_REQUIRED = {
    "LearningRateWarmupCallback": ("initial_lr",),
    "LearningRateScheduleCallback": ("initial_lr", "multiplier"),
}
_REQUIRED_SINCE = "0.21.0"
_OF_AWS = re.compile(r"(?:^|/)(?:huggingface-)?tensorflow-training:(\d+)\.(\d+)")
# Callbacks, and the position of what they monitor.
_WAITING = {"ModelCheckpoint": 1, "EarlyStopping": 0, "ReduceLROnPlateau": 0}
_LOGGED = frozenset({"loss", "lr", "learning_rate"})
# With these, fit logs other names as well; TensorFlow 1 shortens accuracy.
_MORE = ("add_metric", "train_step", "test_step", "compute_metrics", "weighted_metrics", "MetricsContainer")
_OLD = ("Session", "ConfigProto", "placeholder", "get_session", "set_session", "disable_v2_behavior")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    yield from _without_rate(code)
    if code.incomplete or not code.tensorflow or code.mentions(*_MORE, *_OLD):
        return
    for fit in code.ran("fit", live=True):
        model, callbacks = fit.receiver, fit.arg("callbacks", 5)
        compiled = [e for e in code.ran("compile") if e.receiver is model and e.order < fit.order]
        given = [code.maker(each) for each in (callbacks.items or ())] if callbacks is not None else []
        names = _names(code, compiled[-1]) if model is not None and compiled else None
        if names is None or fit.opened or any(each is None or not _of_keras(each) for each in given):
            continue
        for each in given:
            if each is not None and (what := _missing(fit, each, names)):
                severity: Severity | None = None if each.last == "ModelCheckpoint" else "warning"
                yield at(MONITORED, each, what, severity=severity)
                return


def _without_rate(code: ScriptFacts) -> Iterator[Finding]:
    """Report a learning rate callback of Horovod that raises TypeError when it is made."""
    named = _OF_AWS.search(code.job.image or "") if code.job is not None else None
    recent = (int(named[1]), int(named[2])) >= (2, 4) if named is not None else None
    if code.incomplete or recent is False or before(code, "horovod", _REQUIRED_SINCE):
        return
    for event in code.ran(*_REQUIRED, live=True):
        if not event.name.startswith("horovod.") or event.opened or _caught(event):
            continue
        names = _REQUIRED[event.last]
        missing = [name for name in names[len(event.args) :] if name not in event.keywords]
        twice = [name for name in names[: len(event.args)] if name in event.keywords]
        if missing or twice:
            what = f"lacks {missing[0]}" if missing else f"gets {twice[0]} twice, by position and by name"
            severity: Severity | None = None if recent else "warning"
            yield at(NO_RATE, event, f"`{ast.unparse(event.node)[:60]}` {what}", severity=severity)
            return


def _caught(event: Event) -> bool:
    """Return whether a script makes a callback in another way if this one fails, or for another release."""
    asks = any("version" in ast.unparse(guard.node).lower() for guard in event.guards)
    return asks or any(isinstance(node, ast.Try) and node.handlers for node in ancestors(event.module, event.node))


def _of_keras(event: Event) -> bool:
    """Return whether a callback adds nothing to the logs."""
    return event.name.startswith(("tensorflow.keras.callbacks.", "keras.callbacks.", "horovod.")) and (
        event.last != "LambdaCallback"
    )


def _names(code: ScriptFacts, compiled: Event) -> frozenset[str] | None:
    """Return the names of a model's metrics; None if some of them are not known, as those of several outputs."""
    metrics, loss = compiled.arg("metrics", 2), compiled.arg("loss", 1)
    several = loss is not None and (loss.items is not None or loss.attrs is not None)
    if compiled.opened or several or (metrics is not None and metrics.items is None and metrics.single() is not None):
        return None
    names: set[str] = set(_LOGGED)
    for metric in (metrics.items or ()) if metrics is not None else ():
        made = code.maker(metric)
        if (name := _name(metric, made)) is None:
            return None
        names |= {name, _snake(name)}
    return frozenset(names)


def _name(metric: Value, made: Event | None) -> str | None:
    single = metric.single()
    if isinstance(single, str):
        return single
    if made is not None and made.name.startswith(("tensorflow.keras.metrics.", "keras.metrics.")):
        given = made.arg("name")
        text = given.single() if given is not None else _snake(made.last)
        return text if isinstance(text, str) and not made.opened else None
    function = metric.code.node if metric.code is not None and not metric.instance else None
    return function.name if isinstance(function, ast.FunctionDef) else None


def _snake(name: str) -> str:
    """``SparseCategoricalAccuracy`` as Keras writes it: ``sparse_categorical_accuracy``."""
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)).lower()


def _missing(fit: Event, callback: Event, names: frozenset[str]) -> str:
    """Return what a callback waits for in vain; nothing if it does not."""
    if callback.last not in _WAITING or callback.opened:
        return ""
    best = callback.arg("save_best_only", 3)
    if callback.last == "ModelCheckpoint" and (best is None or best.single() is not True):
        return ""
    value = callback.arg("monitor", _WAITING[callback.last])
    monitored = value.single() if value is not None else "val_loss"
    if not isinstance(monitored, str) or (value is not None and "flag" in value.tags):
        return ""
    name = monitored.removeprefix("val_")
    validated = any(fit.arg(word) is not None for word in ("validation_data", "validation_split")) or len(fit.args) > 6
    # Of several outputs, the name of the output comes first; of several alike, a number last.
    plain = re.sub(r"_\d+$", "", name)
    if not any(each in (name, plain) or plain.endswith(f"_{each}") for each in names):
        near = nearest(name, names)
        begin = "val_" if monitored != name else ""
        hint = f"; {begin}{near[0]} is logged" if near else ""
        return f"{callback.last} monitors {monitored!r}, which is the name of no metric{hint}"
    if monitored != name and not validated:
        return f"{callback.last} monitors {monitored!r}, and fit gets no validation data"
    return ""
