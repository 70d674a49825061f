"""Where a script reads its data and writes its results: SageMaker's folders, not those of one machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.script.call import Call
from trainwright.script.events import Event
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at
from trainwright.script.values import Value

CONTRACT = "SageMaker's container contract: inputs are in SM_CHANNEL_<NAME>, results go to SM_MODEL_DIR"
OTHER_MACHINE = Rule(
    code="TW180",
    severity="warning",
    title="a path from another machine, which does not exist in the container",
    source=CONTRACT,
    remedy='Use os.environ["SM_CHANNEL_TRAINING"], or a hyperparameter.',
)
NO_CHANNEL = Rule(
    code="TW181",
    severity="error",
    title="the script reads a folder of a channel that the job does not have",
    source=f"{CONTRACT}; /opt/ml/input/data/<name> exists for each channel of the job's inputs",
    remedy="Name the channel as in the job's inputs, or read SM_CHANNEL_<NAME>.",
)
RULES = (OTHER_MACHINE, NO_CHANNEL)
MACHINE = re.compile(
    r"^(/home/|/Users/|/root/|/mnt/|/media/|/data\d*/|/datasets?/|/scratch|/workspace/|/content/|/kaggle/|~/(?!\.)|[A-Za-z]:[\\/])"
)
DATA = "/opt/ml/input/data/"
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


# Functions that read local files alone; pandas and datasets read S3 as well.
_LOCAL = (
    *("open", "torch.load", "torch.jit.load", "numpy.load", "os.listdir", "os.walk", "glob.glob", "h5py.File"),
    *("PIL.Image.open", "torchvision.datasets.ImageFolder", "torchvision.datasets.DatasetFolder"),
    "safetensors.torch.load_file",
)


def _remote(code: ScriptFacts) -> Iterator[Finding]:
    """Report an address in S3 that a function for local files gets."""
    for event in code.events:
        path = event.args[0].single() if event.name in _LOCAL and event.args else None
        if isinstance(path, str) and path.startswith("s3://") and "flag" not in event.args[0].tags:
            what = f"`{ast.unparse(event.node)[:60]}`: {event.last} reads local files, not S3"
            yield at(OTHER_MACHINE, event, what, severity="error")
            return


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    yield from _remote(code)
    known = {*code.given, *code.unseen}
    made = _made(code)
    options = {_flag(m, n): str(n.value) for m, n in code.texts if _key(m, n) == "default"}
    for module, node in code.texts:
        text = str(node.value)
        if MACHINE.match(text) and "\n" not in text and " " not in text.strip() and _is_path(module, node):
            flag = _flag(module, node)
            if flag in known:
                continue  # the job sets another value
            if text.startswith(made) or (flag is None and options.get(_key(module, node)) == text):
                continue
            severity: Severity | None = "note" if flag is not None else None
            what = f"{text[:60]!r}" + (f" is the default of --{flag}" if flag else "")
            yield at(OTHER_MACHINE, (module, node), what, severity=severity)
        if text.startswith(DATA) and code.job is not None and code.job.inputs:
            channel = text[len(DATA) :].split("/", maxsplit=1)[0]
            flag = _flag(module, node)
            if channel and "{" not in channel and channel not in code.job.inputs and flag not in known:
                given = f"the job has {', '.join(sorted(code.job.inputs))}"
                yield at(NO_CHANNEL, (module, node), f"{text[:60]!r}: {given}")
    yield from _joined(code)


def _joined(code: ScriptFacts) -> Iterator[Finding]:
    """Report a channel that the job lacks, below the folder of all: ``os.path.join(SM_INPUT_DIR, "data", name)``."""
    channels = code.job.inputs if code.job is not None else {}
    for event, name in (*_read(code), *_put_together(code)) if channels else ():
        if name and name not in channels and not event.guards:
            given = f"the job has {', '.join(sorted(channels))}"
            yield at(NO_CHANNEL, event, f"`{ast.unparse(event.node)[:60]}` of {name!r}: {given}")
            return


def _read(code: ScriptFacts) -> Iterator[tuple[Event, str]]:
    """Yield what reads a local file, with the channel of its path, where no text of the script has the whole path."""
    if any(str(node.value).startswith(DATA) for _, node in code.texts):
        return  # reported where it stands
    for event in code.events:
        value = event.args[0] if event.name in _LOCAL and event.args and not event.detached else Value()
        path = value.single() if value.sure and "flag" not in value.tags else None
        if isinstance(path, str) and path.startswith(DATA):
            yield event, path[len(DATA) :].partition("/")[0]


def _put_together(code: ScriptFacts) -> Iterator[tuple[Event, str]]:
    """Yield the calls that join a channel's name to the folder of all."""
    for event in code.ran("join", live=True):
        texts = [value.single() for value in event.args]
        below = bool(texts) and texts[0] in (DATA, DATA.rstrip("/"))
        if not below and texts and "env:SM_INPUT_DIR" in event.args[0].tags:
            below, texts = texts[1:2] == ["data"], texts[1:]
        if below and len(texts) > 1 and isinstance(texts[1], str) and all(value.sure for value in event.args[1:]):
            yield event, texts[1].partition("/")[0]


def _made(code: ScriptFacts) -> tuple[str, ...]:
    """Return the folders that the script itself makes."""
    made = [value for e in code.ran("makedirs", "mkdir", live=True) for value in e.args]
    return tuple(c for value in made for c in value.constants or () if isinstance(c, str) and c)


def _flag(module: Module, node: ast.AST) -> str | None:
    """Return the name of the argument whose default is this constant."""
    for outer in ancestors(module, node):
        if isinstance(outer, ast.Call) and isinstance(outer.func, ast.Attribute) and outer.func.attr == "add_argument":
            names = [str(a.value) for a in outer.args if isinstance(a, ast.Constant)]
            return next((name.lstrip("-") for name in names if name.startswith("--")), None)
    return None


def _key(module: Module, node: ast.AST) -> str:
    """Return the name under which a constant is kept: ``data_dir`` of ``dict(data_dir="/data/")``."""
    around = module.parents.get(node)
    return str(around.arg) if isinstance(around, ast.keyword) else ""


def _is_path(module: Module, node: ast.AST) -> bool:
    """Return whether the constant is used as a path: read or written, the default of a flag, or assigned."""
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
