"""TensorFlow's Estimators with parameter servers: the folder of their checkpoints is one that all hosts share."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.paths import roots
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Value

NOT_SHARED = Rule(
    code="TW561",
    severity="error",
    title="parameter servers run on several hosts, but checkpoints go to a local folder of each host",
    source="SDK 2's documentation of TensorFlow: training with parameter servers requires an S3 location as the model "
    "directory; API of tf.estimator.Estimator: without model_dir, a temporary directory; tensorflow/ecosystem #28, "
    "tensorflow/tensorflow #11549: each server writes its shard, and the merge finds no file",
    remedy='parser.add_argument("--model_dir"), which the SDK sets to a location in S3; model_dir=args.model_dir. '
    "Export the finished model to SM_MODEL_DIR.",
)
RULES = (NOT_SHARED,)
# Folders of the container. Others may be a file system that all hosts mount, as a channel may be.
_LOCAL = {"model", "output", "checkpoint", "tmp", "relative"}
_ESTIMATORS = ("tensorflow.estimator.", "tensorflow.compat.v1.estimator.", "tensorflow.keras.estimator.")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or code.launcher != "parameter-server" or not code.several_hosts:
        return
    # A saver of the script's own may write no shards, and a cluster of its own may have no servers.
    if code.mentions("Scaffold") or _own_cluster(code):
        return
    for event in code.ran("train_and_evaluate", live=True):
        estimator = event.arg("estimator", 0)
        made = code.maker(estimator) if estimator is not None else None
        if made is None or not made.name.startswith(_ESTIMATORS) or made.opened or event.off:
            continue
        place, folder = _folder(code, made)
        if place is not None and folder is None:
            yield at(NOT_SHARED, place, f"`{place.text}` has no model_dir: each host uses a temporary folder")
            return
        if place is not None and folder is not None and _local(code, place, folder):
            yield at(NOT_SHARED, place, f"`{place.text}` on {code.launch.hosts} hosts: model_dir is a local folder")
            return


def _own_cluster(code: ScriptFacts) -> bool:
    """Return whether the script sets or removes TF_CONFIG."""
    nodes = (node for module in code.modules for node in module.nodes if isinstance(node, ast.Subscript))
    changed = [ast.unparse(node.slice) for node in nodes if isinstance(node.ctx, ast.Store | ast.Del)]
    removed = [event.args[0].single() for event in code.ran("pop") if event.args]
    return "'TF_CONFIG'" in changed or "TF_CONFIG" in removed


def _folder(code: ScriptFacts, made: Event) -> tuple[Event | None, Value | None]:
    """Return the call that gives an Estimator its folder, and the folder; no call if that cannot be seen."""
    given = made.arg("model_dir", 1 if made.last == "Estimator" else None)
    if not _absent(given):
        return made, given
    config = made.arg("config", 2 if made.last == "Estimator" else None)
    if config is None:
        return (made, None) if len(made.args) < 2 else (None, None)
    of = code.maker(config)
    if of is None or of.last != "RunConfig" or of.opened:
        return None, None
    given = of.arg("model_dir", 0)
    return of, None if _absent(given) else given


def _absent(folder: Value | None) -> bool:
    return folder is None or (folder.single() is None and "flag" not in folder.tags)


def _local(code: ScriptFacts, place: Event, folder: Value) -> bool:
    """Return whether a folder is certainly one of the container's own; the SDK sets the argument --model_dir."""
    where = roots(folder, code.checkpoints)
    if not where or not where <= _LOCAL:
        return False
    options = code.arguments_of_script
    passed = options.get("model_dir") if "model_dir" not in code.given else None
    if any(folder is value for name, value in options.items() if value is not passed):
        return True
    # What is joined to the argument has its root.
    of_it = passed is not None and bool(where & roots(passed, code.checkpoints))
    return "flag" not in folder.tags and (not of_it or "environ" in ast.unparse(place.node))
