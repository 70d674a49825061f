"""TensorFlow's data: who gets which part of it, how long it lasts, and what a strategy does with a batch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight import replica_batches, replica_loss
from trainwright.preflight.data import WRONG_SHARE
from trainwright.preflight.horovod import NO_BROADCAST, NO_INIT, NOT_SHARDED
from trainwright.preflight.tensorflow import OUT_OF_SCOPE
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, meant
from trainwright.script.values import Value

GUIDE = "TensorFlow's guide, Custom training with tf.distribute.Strategy"
DATA = "TensorFlow's API documentation of tf.data.Dataset"
ONE_REPLICA = Rule(
    code="TW420",
    severity="error",
    title="a strategy is made, but the training step runs outside of it, on one GPU",
    source=f"{GUIDE}: strategy.run runs the step on each replica",
    remedy="strategy.run(train_step, args=(batch,)), over strategy.experimental_distribute_dataset(dataset)",
)
SAME_BATCH = Rule(
    code="TW421",
    severity="warning",
    title="each replica gets the same batch",
    source=f"{GUIDE}: experimental_distribute_dataset divides each batch among the replicas",
    remedy="dataset = strategy.experimental_distribute_dataset(dataset)",
)
ENDLESS = Rule(
    code="TW423",
    severity="error",
    title="fit gets endless data and no number of steps, so the first epoch, or its validation, never ends",
    source="TensorFlow's API documentation of Model.fit: for an infinitely repeating dataset, give steps_per_epoch",
    remedy="steps_per_epoch=… (validation_steps=…, steps=…), or no repeat()",
)
TWICE = Rule(
    code="TW425",
    severity="error",
    title="a strategy for all GPUs of a host in each of several processes of the host",
    source="TensorFlow's guide for distributed training: MirroredStrategy uses all visible GPUs; Horovod needs one "
    "process per GPU",
    remedy="Use one of the two: the strategy in one process per host, or Horovod without it.",
)
WHOLE_EPOCH = Rule(
    code="TW426",
    severity="warning",
    title="an epoch of each process has as many steps as one of all of them together",
    source="Horovod's examples for Keras: steps_per_epoch=… // hvd.size()",
    remedy="steps_per_epoch=samples // batch_size // hvd.size()",
)
OWN_METRICS = Rule(
    code="TW419",
    severity="note",
    title="the metrics of an epoch are those of one process and its share of the data",
    source="Horovod's API of MetricAverageCallback: it averages the metrics of all processes at the end of an epoch",
    remedy="callbacks=[…, hvd.callbacks.MetricAverageCallback()], before those that use metrics",
)
MIXED_SHARES = Rule(
    code="TW427",
    severity="warning",
    title="data are shuffled before they are divided, so the shares of the processes overlap",
    source=f"{DATA}, shard: shard before you use any randomizing operator; list_files shuffles by default",
    remedy="list_files(…, shuffle=False); dataset.shard(…) and then dataset.shuffle(…)",
)
FEW_GPUS = Rule(
    code="TW428",
    severity="warning",
    title="a strategy names fewer GPUs than the instance has",
    source="TensorFlow's API documentation of MirroredStrategy: without devices it takes all of the host",
    remedy="tf.distribute.MirroredStrategy()",
)
RULES = (
    *(ONE_REPLICA, SAME_BATCH, *replica_loss.RULES, ENDLESS, *replica_batches.RULES, TWICE, WHOLE_EPOCH),
    *(OWN_METRICS, MIXED_SHARES, FEW_GPUS),
)
_MIRRORED = ("MirroredStrategy", "MultiWorkerMirroredStrategy", "CollectiveAllReduceStrategy")
_DISTRIBUTED = (
    "experimental_distribute_dataset",
    "distribute_datasets_from_function",
    "make_dataset_iterator",
    "experimental_distribute_datasets_from_function",
    "make_input_fn_iterator",
)
_RUN = ("run", "experimental_run_v2", "extended")
# Other ways to train with a strategy: of TensorFlow 1, and by an Estimator, which gets it as train_distribute.
_BY_OTHERS = ("experimental_run_v2", "call_for_each_replica", "train_distribute")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or not (code.tensorflow or code.horovod):
        return
    yield from _shares(code)
    yield from _endless(code)
    if code.horovod:
        yield from _horovod(code)
    made = [e for e in code.ran(*_MIRRORED, live=True) if "tensorflow" in e.name]
    if made:
        yield from _mirrored(code, made[0])


def _shares(code: ScriptFacts) -> Iterator[Finding]:
    """Check the arguments of ``shard``, and whether the data were mixed before."""
    if not code.several:
        return
    for event in code.ran("shard", live=True):
        if event.receiver is None or event.receiver.name or event.name.startswith("script."):
            continue
        count, index = event.arg("num_shards", 0), event.arg("index", 1)
        if count is None or index is None:
            continue
        what = ""
        if count.tags & {"rank", "local_rank"} and "world" in index.tags:
            what = "the number of processes and the rank are exchanged"
        elif "local_rank" in index.tags and "rank" not in index.tags and code.several_hosts:
            what = "the local rank: the same share on every host"
        elif "gpus" in count.tags and "world" not in count.tags and code.several_hosts:
            what = "the processes of one host, not of all"
        if what:
            yield at(WRONG_SHARE, event, f"`{event.text}`: {what}")
        elif "mixed" in event.receiver.tags and index.tags & {"rank", "local_rank", "host_rank"}:
            yield at(MIXED_SHARES, event, f"`{event.text}` comes after a shuffle without a seed")


def _endless(code: ScriptFacts) -> Iterator[Finding]:
    for event in code.ran("fit", live=True):
        data = event.arg("x", 0)
        steps = event.arg("steps_per_epoch")
        absent = steps is None or (steps.single() is None and "flag" not in steps.tags)
        absent = absent and not re.match(r"script\.\w+$", event.name)  # a loop of the script's own
        if data is not None and "endless" in data.tags and absent and not event.opened:
            yield at(ENDLESS, event, f"`{event.text}`: the data repeat, and steps_per_epoch is not given")
        held, more = event.arg("validation_data"), event.keywords.keys() & {"validation_steps", "**"}
        if held is not None and "endless" in held.tags and "sometimes" not in held.tags and not more:
            yield at(ENDLESS, event, f"`{event.text}`: validation_data repeat, and validation_steps is not given")

    for event in code.ran("evaluate", "predict", live=True):
        data = event.arg("x", 0)
        model = event.receiver is not None and "model" in event.receiver.tags
        counted = event.keywords.keys() & {"steps", "**"} or len(event.args) > 3
        if model and data is not None and {"endless"} == data.tags & {"endless", "sometimes"} and not counted:
            yield at(ENDLESS, event, f"`{event.text}`: the data repeat, and steps is not given")


def _horovod(code: ScriptFacts) -> Iterator[Finding]:
    used = [e for e in code.events if e.name.startswith(("horovod.", "smdistributed.dataparallel.tensorflow."))]
    inits = [e for e in used if e.last == "init" and not e.detached]
    early = [e for e in used if e.role in ("rank", "local_rank", "world", "gpus", "collective") and not e.detached]
    if inits and early and early[0].order < inits[0].order:
        yield at(NO_INIT, early[0], f"`{early[0].text}` comes before hvd.init() in line {inits[0].line}")
    if not code.several:
        return
    yield from _broadcast(code)
    yield from _epoch(code)
    yield from _own_metrics(code)


def _broadcast(code: ScriptFacts) -> Iterator[Finding]:
    """Report that only the model's, or only the optimizer's, state is sent from the first process."""
    if code.mentions("BroadcastGlobalVariablesCallback", "BroadcastGlobalVariablesHook", "broadcast_global_variables"):
        return
    sent = [e for e in code.ran("broadcast_variables", "broadcast_parameters", live=True) if e.role == "collective"]
    if not sent or code.mentions("TorchState", "TensorFlowState", "TensorFlowKerasState", "KerasState"):
        return
    about = [part for e in sent for part in _parts(e.node.args[0] if e.node.args else None)]
    optimizers = [text for text in about if "opt" in text]
    if len(optimizers) == len(about):
        yield at(NO_BROADCAST, sent[0], "only the optimizer's variables are sent, not those of the model")
    elif not optimizers and not code.mentions("broadcast_optimizer_state") and _has_optimizer(code):
        what = "the optimizer's state is not sent: it differs where the first process has loaded a checkpoint"
        restores = code.mentions("restore", "load_weights", "load_state_dict", "load_model")
        yield at(NO_BROADCAST, sent[-1], what, "warning" if restores else "note")


def _has_optimizer(code: ScriptFacts) -> bool:
    """Return whether the script makes an optimizer; one that updates the weights by hand sends what it keeps."""
    return any("optimizer" in event.result.tags for event in code.events)


def _parts(node: ast.expr | None) -> list[str]:
    """Return what is sent, in words: of ``model.variables + optimizer.variables()`` both."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_parts(node.left), *_parts(node.right)]
    return [ast.unparse(node).lower() if node is not None else ""]


def _own_metrics(code: ScriptFacts) -> Iterator[Finding]:
    """Report Keras metrics that nobody averages, where something is chosen or shown by them."""
    if code.mentions("MetricAverageCallback", "allreduce", "metric_average", "EarlyStopping", "ReduceLROnPlateau"):
        return
    for event in code.ran("fit", "fit_generator", live=True):
        shared = event.arg("x", 0)
        divided = shared is not None and shared.tags & {"own", "sharded"}
        if event.arg("validation_data", 7) is None or not divided or event.receiver is None:
            continue
        best = [e for e in code.ran("ModelCheckpoint") if (v := e.arg("save_best_only")) and v.single() is True]
        what = (
            "the first process chooses the best model by its own metrics" if best else "metrics are those of a process"
        )
        yield at(OWN_METRICS, event, f"{what}: no MetricAverageCallback", "warning" if best else None)
        return


def _epoch(code: ScriptFacts) -> Iterator[Finding]:
    for event in code.ran("fit", "fit_generator", live=True):
        node = next((k.value for k in event.node.keywords if k.arg == "steps_per_epoch"), None)
        steps = event.arg("steps_per_epoch")
        node = meant(event.module, node) if node is not None else None
        while isinstance(node, ast.Call) and ast.unparse(node.func) in ("int", "math.ceil", "max", "np.ceil", "round"):
            node = next((arg for arg in node.args if not isinstance(arg, ast.Constant)), None)
        divides = isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Div)
        if (
            steps is None
            or not divides
            or "world" in steps.tags
            or "size" in ast.unparse(node or event.node).split("hvd")[-1][:6]
        ):
            continue
        if code.mentions_like("world|num_workers|n_proc|steps_per_replica"):
            continue
        yield at(WHOLE_EPOCH, event, f"steps_per_epoch={ast.unparse(node or event.node)[:40]}")


_SHARES = re.compile(r"shard|input_pipeline|task_(id|index)|worker|host|rank")


def _made_by_function(code: ScriptFacts) -> Iterator[Finding]:
    """Report a function that makes the same data on every worker: nothing divides them after it."""
    for event in code.ran(_DISTRIBUTED[1], _DISTRIBUTED[3], live=True):
        made = event.arg("dataset_fn", 0)
        text = ast.unparse(made.code.node) if made is not None and made.code is not None else ""
        same = ".shuffle(" not in text or "seed" in text
        if text and "." in text and same and not _SHARES.search(text) and "Dataset" in text:
            what = "its function takes no share by ctx.input_pipeline_id, so all workers get the same batches"
            yield at(NOT_SHARDED, event, f"`{event.text}`: {what}", "warning")
            return


def _mirrored(code: ScriptFacts, strategy: Event) -> Iterator[Finding]:
    one_host = strategy.last == "MirroredStrategy"
    if one_host and code.several_per_host and (code.horovod or code.launcher in ("mpi", "smddp")):
        yield at(TWICE, strategy, f"`{strategy.text}` in each of {code.launch.per_host or 'several'} processes")
        return
    divides = code.mentions("shard", "input_pipeline_id", *_DISTRIBUTED[1:])
    if not one_host and code.several_hosts and code.mentions("OFF") and not divides:
        yield at(
            NOT_SHARDED, strategy, "AutoShardPolicy.OFF, and nothing else divides the data among the workers", "warning"
        )
    if not one_host and code.several_hosts:
        yield from _made_by_function(code)
    devices = strategy.arg("devices", 0)
    named = devices.items or () if devices is not None else ()
    gpus = code.launch.gpus or 0
    if one_host and 0 < len(named) < gpus and all(isinstance(each.single(), str) for each in named):
        yield at(FEW_GPUS, strategy, f"{len(named)} of {gpus} GPUs")
    if gpus == 1 and one_host:
        return
    runs = [e for e in code.ran(*_RUN) if e.receiver is not None and not e.receiver.name and _strategy(e.receiver)]
    tapes = code.ran("apply_gradients", live=True)
    fits = [e for e in code.ran("fit", "train_and_evaluate", live=True) if not e.name.startswith("script.")]
    if tapes and not runs and not fits and not code.mentions(*_BY_OTHERS):
        yield at(ONE_REPLICA, tapes[0], f"`{tapes[0].text}`: {strategy.last} is made, but strategy.run is never called")
        return
    if runs and not fits:
        yield from _custom(code, runs[0], strategy)
    yield from _next_batches(code, runs)
    yield from replica_batches.check(code)


def _strategy(value: Value) -> bool:
    return value.made_by(*_MIRRORED)


def _custom(code: ScriptFacts, run: Event, strategy: Event) -> Iterator[Finding]:
    """Check a loop of one's own under a strategy."""
    gives = run.arg("args", 1) is not None or run.arg("kwargs", 2) is not None
    if (
        not code.mentions(*_DISTRIBUTED)
        and gives
        and run.loops
        and not code.mentions("random", "experimental_make_numpy_dataset")
    ):
        yield at(SAME_BATCH, run, f"`{run.text}` with batches that are not distributed")
    yield from replica_loss.check(code)
    yield from replica_loss.summed_twice(code)
    for event in code.events:
        if event.detached or event.order < strategy.order or any(".scope" in name for name in event.contexts):
            continue
        optimizer = (
            event.name.startswith(("tensorflow.keras.optimizers.", "keras.optimizers.")) and event.last[:1].isupper()
        )
        optimizer = optimizer and "schedules" not in event.name
        model = "model" in event.result.tags and event.result.made and event.name.startswith(("tensorflow.", "keras."))
        scoped = any(".scope" in name for e in code.events for name in e.contexts) or not code.mentions("scope")
        if (optimizer or model) and not event.loops and scoped and not event.guards:
            yield at(OUT_OF_SCOPE, event, f"`{event.text}` outside of {strategy.last}'s scope")
            return


def _next_batches(code: ScriptFacts, runs: list[Event]) -> Iterator[Finding]:
    """Report a replica's step that gets the next batch of a data set that was not distributed, though others are."""
    if not code.mentions(*_DISTRIBUTED):
        return  # then the rule of the whole loop says so
    taken = [e for e in code.ran("next", live=True) if e.args]
    plain = _plain_batches(code, runs)
    if plain is not None:
        yield at(SAME_BATCH, plain, f"`{plain.text}` with batches that are not distributed, though others are")
        return
    for run in runs:
        given = run.arg("args", 1)
        for item in (given.items or ()) if given is not None else ():
            data = next((e.args[0] for e in taken if e.result is item), None)
            if data is None or "dataset" not in data.tags or data.part_of(*_DISTRIBUTED):
                continue
            if any(name.startswith("tensorflow.data.") for name in data.made) and not run.detached:
                yield at(SAME_BATCH, run, f"`{run.text}` with batches that are not distributed")
                return


def _plain_batches(code: ScriptFacts, runs: list[Event]) -> Event | None:
    """Return a replica's training step in a loop over a data set of tf.data itself."""
    trained = [e.stack for e in code.ran("apply_gradients") if e.stack]
    for run in runs:
        loop = run.loops[-1] if run.loops else None
        data = code.iterated(loop) if loop is not None and not run.detached else None
        function = run.args[0].code if run.args else None
        trains = any(function in stack for stack in trained)
        while data is not None and data.of is not None and not data.made and "dataset" not in data.tags:
            data = data.of  # enumerate(dataset)
        if data is None or not trains or data.part_of(*_DISTRIBUTED, "distribute_values_from_function"):
            continue
        if "dataset" in data.tags and data.made and all(name.startswith("tensorflow.data.") for name in data.made):
            return run
    return None
