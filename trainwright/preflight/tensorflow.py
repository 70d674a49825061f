"""TensorFlow's strategies: the steps of its own guides."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.horovod import LAUNCHER, STRATEGIES
from trainwright.sagemaker.distribution import BY_TF_CONFIG
from trainwright.script.events import OF_RANK, Event, Guard
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, conditions, enclosing_function

NO_STRATEGY = Rule(
    code="TW188",
    severity="warning",
    title="the job has several hosts, but the script trains on each of them alone",
    source=f"{STRATEGIES}: MultiWorkerMirroredStrategy; MirroredStrategy uses the GPUs of one host",
    remedy="strategy = tf.distribute.MultiWorkerMirroredStrategy()",
)
OUT_OF_SCOPE = Rule(
    code="TW189",
    severity="error",
    title="the model or its optimizer is created outside of the strategy's scope",
    source=f"{STRATEGIES}: variables must be created within strategy.scope()",
    remedy="with strategy.scope(): model = …; model.compile(…)",
)
CHIEF_ONLY = Rule(
    code="TW168",
    severity="error",
    title="only the chief saves, restores, fits or evaluates under MultiWorkerMirroredStrategy",
    source=f"{STRATEGIES}: saving is a collective; every worker saves, all but the chief to a temporary folder; "
    "tensorflow/tensorflow #31070, #45839",
    remedy="model.save(path if chief else temporary_path) on every worker",
)
RULES = (NO_STRATEGY, OUT_OF_SCOPE, CHIEF_ONLY)
# What else uses the parameter servers that the toolkit has started: TensorFlow 1's own ways, and models as Estimators.
_OF_SERVERS = ("Server", "ClusterSpec", "replica_device_setter", "MonitoredTrainingSession", "model_to_estimator")
_REMEDIES = {
    "parameter-server": 'distribution={"multi_worker_mirrored_strategy": {"enabled": True}}, and strategy = '
    "tf.distribute.MultiWorkerMirroredStrategy(): fit() of Keras uses no parameter servers without a strategy."
}
_MULTI = ("MultiWorkerMirroredStrategy", "ParameterServerStrategy", "ParameterServerStrategyV2", "TPUStrategy")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.tensorflow and not code.horovod and not code.incomplete:
        yield from _strategies(code)


def _refuse_a_master(multi: list[Event], trains: list[Event]) -> bool:
    """Return whether only a strategy of workers is used, and not by an Estimator, which knows a master.

    TensorFlow's multi_worker_util.py allows chief, worker, evaluator and ps; the toolkit writes master, worker and ps.
    """
    only = bool(multi) and all(event.last == "MultiWorkerMirroredStrategy" for event in multi)
    return only and all(event.last != "train_and_evaluate" for event in trains)


def _strategies(code: ScriptFacts) -> Iterator[Finding]:
    multi = [e for e in code.events if e.last.endswith(_MULTI)]
    mirrored = [e for e in code.ran("MirroredStrategy") if "tensorflow" in e.name]
    trains = [e for e in code.ran("fit", "apply_gradients", "train_and_evaluate") if not e.detached]
    launcher = code.launcher
    if launcher is not None and trains and not code.imports("smdistributed", "horovod"):
        where = (mirrored or trains)[0]
        hosts = code.launch.hosts
        own = "TF_CONFIG" in code.launch.environment or code.mentions("SimpleClusterResolver", "ClusterSpec")
        configured = launcher in BY_TF_CONFIG or own
        if launcher == "parameter-server" and code.several_hosts and not own and _refuse_a_master(multi, trains):
            what = "MultiWorkerMirroredStrategy refuses the TF_CONFIG of parameter servers, which has a master"
            yield at(LAUNCHER, multi[0], what, severity="warning")
        elif multi and code.several_hosts and not configured:
            yield at(LAUNCHER, multi[0], f"{multi[0].last} on {hosts} hosts, but the job's launcher is {launcher}")
        elif launcher == "mwms" and not multi:
            yield at(
                NO_STRATEGY, where, "the job enables multi_worker_mirrored_strategy, but the script does not use it"
            )
        elif code.several_hosts and not multi and _alone(code, launcher):
            yield at(NO_STRATEGY, where, f"{hosts} hosts train alone", remedy=_REMEDIES.get(launcher))
    if multi and code.several_hosts:
        yield from _cluster(code, multi[0])
    made = multi or mirrored
    if made:
        yield from _scope(code, made[0])
    # With parameter servers, only the chief runs the program.
    if any("Worker" in e.last for e in multi) and (code.job is None or code.several_hosts):
        yield from _chief_only(code)


def _chief_only(code: ScriptFacts) -> Iterator[Finding]:
    calls = [e for e in code.ran("save", "fit", "evaluate", "save_weights", live=True) if _of_a_model(e)]
    for event in calls:
        if _one_worker(event, calls):
            # A checkpoint only waits for the others where it holds variables that are summed when they are read.
            severity: Severity | None = "warning" if _manages(event) else None
            yield at(CHIEF_ONLY, event, f"`{ast.unparse(event.node)[:60]}` on the chief only", severity)
    for event in code.ran("ModelCheckpoint", live=True):
        keras = event.name.startswith(("tensorflow.keras.", "keras."))
        if keras and _one_worker(event, code.ran("ModelCheckpoint")) and code.ran("fit", live=True):
            waits = code.mentions("BatchNormalization", "applications")
            what = f"`{event.text}` on the chief only; give it to every worker, with another folder for the others"
            yield at(CHIEF_ONLY, event, what, None if waits else "warning")
    for event in code.ran("restore", "read", "restore_or_initialize", "load_weights", live=True):
        base = event.receiver
        restores = base is not None and (base.made_by("Checkpoint", "CheckpointManager") or "model" in base.tags)
        trains = any(e.order > event.order for e in code.ran("fit", "run", "apply_gradients"))
        if restores and trains and _one_worker(event, code.ran(event.last)):
            what = f"`{event.text}` on the chief only: the others train on with other weights"
            yield at(CHIEF_ONLY, event, what, remedy="Restore on every worker, from a folder that all of them have.")
            return


def _of_a_model(event: Event) -> bool:
    """Return whether a call saves, fits or evaluates a model of Keras, or saves a checkpoint."""
    model = event.arg("obj", 0) if event.name == "tensorflow.saved_model.save" else event.receiver
    return model is not None and ("model" in model.tags or event.last == "fit" or _manages(event))


def _manages(event: Event) -> bool:
    return event.receiver is not None and event.receiver.made_by("CheckpointManager")


def _one_worker(event: Event, calls: list[Event]) -> bool:
    """Return whether only the chief makes a call, and the other workers make none like it."""
    alone = event.by_rank is not None or _chief(event)
    return alone and not any(other.last == event.last and _of_the_rest(event, other) for other in calls)


def _of_the_rest(event: Event, other: Event) -> bool:
    """Return whether those workers make another call that a condition keeps from this one.

    They may do so in its ``else`` branch, after an early ``return`` or ``continue``, or under a second condition.
    """
    chosen = {guard.node: guard.side for guard in event.guards if _of_chief(guard)}
    if any(chosen.get(guard.node, guard.side) is not guard.side for guard in other.guards):
        return True
    kinds = {guard.kind for guard in (event.by_rank, other.by_rank) if guard is not None}
    return kinds == {"one", "others"} and other.loops == event.loops


def _alone(code: ScriptFacts, launcher: str) -> bool:
    """Return whether nothing tells the processes of a job of one another; an Estimator asks TF_CONFIG itself."""
    if launcher == "parameter-server":
        return not code.ran("train_and_evaluate") and not code.mentions(*_OF_SERVERS)
    return launcher in ("process", "mpi") and not code.mentions("KVStore")


def _cluster(code: ScriptFacts, strategy: Event) -> Iterator[Finding]:
    """Report a TF_CONFIG that is the same on every host, or is set when the strategy has read it."""
    for module in code.modules:
        for node in module.nodes:
            target = ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""
            if target not in ("os.environ['TF_CONFIG']", "environ['TF_CONFIG']") or conditions(module, node):
                continue
            assert isinstance(node, ast.Assign)
            tasks = [v for each in ast.walk(node.value) for v in _of_key(each, "task")]
            indices = [v for task in tasks for v in _of_key(task, "index") if isinstance(v, ast.Constant)]
            late = module is strategy.module and node.lineno > strategy.line
            if indices:
                what = f"TF_CONFIG gives every host the index {indices[0].value!r}"
                yield at(LAUNCHER, (module, node), what)
            elif late and enclosing_function(module, node) is enclosing_function(module, strategy.node):
                what = f"TF_CONFIG is set after the strategy was made in line {strategy.line}"
                yield at(LAUNCHER, (module, node), what)
    for event in code.ran("dumps", live=True):
        attrs = (event.args[0].attrs or {}) if event.args else {}
        task = (attrs["task"].attrs or {}) if {"cluster", "task"} <= attrs.keys() else {}
        index = task.get("index")
        written = isinstance(event.node.args[0], ast.Dict)  # reported above
        same = enclosing_function(event.module, event.node) is enclosing_function(strategy.module, strategy.node)
        if task and event.order > strategy.order and not (same and event.module is strategy.module):
            what = f"TF_CONFIG is set after the strategy was made in line {strategy.line} of {strategy.module.name}"
            yield at(LAUNCHER, event, what)
            return
        if index is not None and index.sure and event.by_rank is None and not written and index.single() is not ...:
            what = f"TF_CONFIG gives every host the index {index.single()!r}"
            yield at(LAUNCHER, event, what)
            return


def _of_key(node: ast.AST, name: str) -> list[ast.expr]:
    """Return the values of a key of a dictionary that is written out."""
    if not isinstance(node, ast.Dict):
        return []
    pairs = zip(node.keys, node.values, strict=True)
    return [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == name]


def _chief(event: Event) -> bool:
    return any("chief" in ast.unparse(guard.node) and guard.side for guard in event.guards)


def _of_chief(guard: Guard) -> bool:
    return guard.kind in OF_RANK or "chief" in ast.unparse(guard.node)


def _scoped(event: Event) -> bool:
    return any(".scope" in name for name in event.contexts)


def _scope(code: ScriptFacts, strategy: Event) -> Iterator[Finding]:
    """Report a model that is built or compiled outside of the scope."""
    compiled = code.ran("compile", live=True)
    yield from _built_on(code, strategy)
    inside = any(_scoped(e) for e in code.events)
    for event in compiled:
        if event.receiver is None or event.receiver.name or not (event.arg("optimizer", 0) or event.arg("loss")):
            continue
        if any(event.excludes(other) for other in compiled if _scoped(other)):
            continue  # the branch of a training without a strategy
        model = event.receiver
        made = [e for e in code.events if e.result is model and (e.last[:1].isupper() or "Model" in e.last)]
        if _scoped(event) and made and not any(_scoped(e) for e in made):
            yield at(OUT_OF_SCOPE, made[0], f"`{ast.unparse(made[0].node)[:50]}` outside of {strategy.last}'s scope")
            return
        # A function that is also called inside the scope is called outside where there is no strategy.
        same = [e for e in code.ran("compile") if e.node is event.node]
        # A model and an optimizer that are made inside the scope may be compiled outside of it.
        optimizer = event.arg("optimizer", 0)
        same += [e for e in code.events if optimizer is not None and set(e.result.made) & set(optimizer.made)]
        scoped = any(_scoped(e) for e in same)
        if not scoped and not (inside and "model" not in model.tags and not model.made):
            if not any(_scoped(e) for e in code.events if e.result is model):
                yield at(OUT_OF_SCOPE, event, f"`{ast.unparse(event.node)[:50]}` outside of {strategy.last}'s scope")
            return


def _built_on(code: ScriptFacts, strategy: Event) -> Iterator[Finding]:
    """Report a model in the scope that is built on one from outside, whose variables it keeps."""
    for event in code.events:
        if not _scoped(event) or event.detached or "model" not in event.result.tags or event.last in _NEW:
            continue
        for value in (*event.args, *event.keywords.values()):
            made = code.maker(value) if "model" in value.tags else None
            if made is not None and _of_keras(made) and not _scoped(made) and not made.detached:
                what = f"`{ast.unparse(made.node)[:50]}` outside of {strategy.last}'s scope, and part of a model in it"
                yield at(OUT_OF_SCOPE, made, what)
                return


# What makes new variables of a model.
_NEW = ("clone_model", "load_model", "from_config", "model_from_json")


def _of_keras(event: Event) -> bool:
    return event.name.startswith(("tensorflow.keras.", "keras."))
