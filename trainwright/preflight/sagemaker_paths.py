"""Where a script looks for its data and puts its results: SageMaker's folders, not somebody's machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.reader import Module
from trainwright.preflight.script_facts import ScriptFacts
from trainwright.preflight.syntax import Call, ancestors, at

CONTRACT = "SageMaker's container contract: inputs lie in SM_CHANNEL_<NAME>, results go to SM_MODEL_DIR"
SOMEBODYS = Rule(
    code="TW180",
    severity="warning",
    title="a path of somebody's machine, which the container does not have",
    source=CONTRACT,
    remedy='os.environ["SM_CHANNEL_TRAINING"], or a hyperparameter.',
)
FIXED = Rule(
    code="TW181",
    severity="note",
    title="a folder of SageMaker is written out although a variable names it",
    source=CONTRACT,
    remedy='os.environ.get("SM_MODEL_DIR", "…"): the script then runs elsewhere, too.',
)
RULES = (SOMEBODYS, FIXED)
MACHINE = re.compile(
    r"^(/home/|/Users/|/root/|/mnt/|/media/|/data\d*/|/datasets?/|/scratch|/workspace/|/content/|/kaggle/|~/(?!\.)|[A-Za-z]:[\\/])"
)
FOLDERS = {
    "/opt/ml/model": "SM_MODEL_DIR",
    "/opt/ml/output/data": "SM_OUTPUT_DATA_DIR",
    "/opt/ml/input/data/": "SM_CHANNEL_<NAME>",
    "/opt/ml/input/config": "SM_INPUT_CONFIG_DIR",
}
READS = (
    "open",
    "load",
    "read_csv",
    "read_parquet",
    "from_pretrained",
    "load_dataset",
    "ImageFolder",
    "join",
    "Path",
    "listdir",
    "glob",
    "save",
    "makedirs",
    "load_from_disk",
    "DatasetFolder",
)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """The rules of this family."""
    known = code.job.hyperparameters if code.job else {}
    for module, node in code.texts:
        text = str(node.value)
        if MACHINE.match(text) and "\n" not in text and " " not in text.strip() and _is_path(module, node):
            flag = _flag(module, node)
            if flag is not None and flag in known:
                continue  # the job gives another value
            severity: Severity | None = "note" if flag is not None else None
            what = f"{text[:60]!r}" + (f" is the default of --{flag}" if flag else "")
            yield at(SOMEBODYS, (module, node), what, severity=severity)
        for folder, variable in FOLDERS.items():
            if text.startswith(folder) and not code.says(f"^{variable.split('<')[0]}") and _flag(module, node) is None:
                yield at(FIXED, (module, node), f"{text[:60]!r} is ${variable}")


def _flag(module: Module, node: ast.AST) -> str | None:
    """The name of the argument whose default a constant is."""
    for outer in ancestors(module, node):
        if isinstance(outer, ast.Call) and isinstance(outer.func, ast.Attribute) and outer.func.attr == "add_argument":
            names = [str(a.value) for a in outer.args if isinstance(a, ast.Constant)]
            return next((name.lstrip("-") for name in names if name.startswith("--")), None)
    return None


def _is_path(module: Module, node: ast.AST) -> bool:
    """It is used as a path: given to something that reads or writes, a default of a flag, or assigned to a name."""
    if _flag(module, node) is not None:
        parent = module.parents.get(node)
        return isinstance(parent, ast.keyword) and parent.arg == "default"
    around = module.parents.get(node)
    if isinstance(around, ast.keyword):
        around = module.parents.get(around)
    if isinstance(around, ast.Call):
        call = Call(module, around, ast.unparse(around.func))
        return call.last in READS or call.last[:1].isupper()
    return isinstance(around, ast.Assign | ast.AnnAssign | ast.BinOp)
