"""Environment variables: they are text, SageMaker's have fixed names, and a launcher's are its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.errors import nearest
from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.reader import Module
from trainwright.preflight.script_facts import ScriptFacts
from trainwright.preflight.syntax import Call, at, conditions, qualified

PYTHON = "Python's documentation of os.environ: keys and values are text"
TOOLKIT = "sagemaker-training 5.1.4, environment of the user's script"
NUMBER = Rule(
    code="TW160",
    severity="error",
    title="an environment variable is set to something that is no text",
    source=f"{PYTHON}, anything else raises TypeError",
    remedy='Write it in quotes, or str(…): os.environ["GPU_NUM_DEVICES"] = "4"',
)
AS_NUMBER = Rule(
    code="TW161",
    severity="error",
    title="an environment variable is used as a number or list",
    source=f"{PYTHON}; SM_HOSTS, SM_CHANNELS and SM_HPS hold JSON",
    remedy='int(os.environ["…"]), or json.loads(os.environ["…"]) for a list.',
)
GPU_COUNT = Rule(
    code="TW162",
    severity="error",
    title="GPU_NUM_DEVICES is not the number of GPUs of the job's instance type",
    source="AWS guide for the SageMaker Training Compiler, troubleshooting: missing XLA configuration",
    remedy='os.environ["GPU_NUM_DEVICES"] = os.environ["SM_NUM_GPUS"]',
)
OVERWRITTEN = Rule(
    code="TW163",
    severity="warning",
    title="the script overwrites a variable by which the launcher tells a process its place",
    source="PyTorch's documentation of torchrun; sagemaker-pytorch-training 3.0.0 sets MASTER_ADDR and MASTER_PORT",
    remedy='os.environ.setdefault("…", "…"), so that it holds only where nothing else said it.',
)
UNKNOWN = Rule(
    code="TW164",
    severity="error",
    title="there is no such SM_ variable",
    source=TOOLKIT,
    remedy="Correct the name; ./invoke rehearse shows the environment of a script.",
)
CHANNEL = Rule(
    code="TW165",
    severity="error",
    title="the job has no input channel of that name",
    source=f"{TOOLKIT}: SM_CHANNEL_<NAME> is there for each channel of the job's inputs, in capitals",
    remedy="Name the channel as in the job's inputs, or add it there.",
)
RULES = (NUMBER, AS_NUMBER, GPU_COUNT, OVERWRITTEN, UNKNOWN, CHANNEL)

PLACE = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
JSON_VALUES = ("SM_HOSTS", "SM_CHANNELS", "SM_HPS", "SM_RESOURCE_CONFIG", "SM_INPUT_DATA_CONFIG", "SM_USER_ARGS")
_NAMES = (
    "HOSTS CURRENT_HOST CURRENT_INSTANCE_TYPE CURRENT_INSTANCE_GROUP CURRENT_INSTANCE_GROUP_HOSTS INSTANCE_GROUPS "
    "INSTANCE_GROUPS_DICT DISTRIBUTION_INSTANCE_GROUPS IS_HETERO NETWORK_INTERFACE_NAME NUM_GPUS NUM_CPUS NUM_NEURONS "
    "HPS USER_ARGS USER_ENTRY_POINT MODULE_NAME MODULE_DIR MODEL_DIR INPUT_DIR INPUT_CONFIG_DIR OUTPUT_DIR "
    "OUTPUT_DATA_DIR OUTPUT_INTERMEDIATE_DIR CHANNELS INPUT_DATA_CONFIG RESOURCE_CONFIG FRAMEWORK_PARAMS "
    "FRAMEWORK_MODULE LOG_LEVEL TRAINING_ENV TRAINING_ENV_TOPOLOGY DLC_TORCH_VERSION STUDIO_LOCAL_MODE REGION "
    # those of the drivers of SageMaker SDK 3 (and of the last 2.x)
    "CURRENT_HOST_RANK DISTRIBUTED_CONFIG DISTRIBUTED_DRIVER_DIR EFA_NCCL_INSTANCES EFA_RDMA_INSTANCES ENTRY_SCRIPT "
    "FI_EFA_USE_DEVICE_RDMA FI_PROVIDER HOSTS_LIST HOST_COUNT INPUT_DATA_DIR MASTER_ADDR MASTER_PORT NCCL_PROTO "
    "NPROC_PER_NODE OUTPUT_FAILURE SOURCE_DIR SOURCE_DIR_PATH"
)
KNOWN = frozenset(f"SM_{name}" for name in _NAMES.split())
FREE = re.compile(r"^SM_(HP|CHANNEL)_")
NUMERIC = (ast.Mult, ast.Sub, ast.Div, ast.FloorDiv, ast.Pow)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """The rules of this family."""
    for module in code.modules:
        for node in module.nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    name = _key(module, target)
                    if isinstance(target, ast.Subscript) and _is_environ(module, target.value):
                        yield from _set(code, module, node, name, node.value)
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                name = _key(module, node)
                if name:
                    yield from _read(code, module, node, name, required=True)
                    yield from _used(module, node, name)
    for call in code.calls:
        yield from _calls(code, call)


def _is_environ(module: Module, node: ast.expr) -> bool:
    return qualified(module, node) == "os.environ"


def _key(module: Module, node: ast.AST) -> str | None:
    """``X`` of ``os.environ["X"]``."""
    if isinstance(node, ast.Subscript) and _is_environ(module, node.value) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return None


def no_text(node: ast.expr) -> str | None:
    """What an expression is, where it is certainly no text."""
    if isinstance(node, ast.Constant):
        return None if isinstance(node.value, str) else repr(node.value)
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        if name in ("int", "float", "len", "bool", "torch.cuda.device_count", "os.cpu_count", "dict", "list"):
            return f"{name}(…)"
    if isinstance(node, ast.BinOp) and isinstance(node.op, NUMERIC) and not isinstance(node.op, ast.Mult):
        return f"the result of {ast.unparse(node)[:40]}"
    return "a list or dict" if isinstance(node, ast.List | ast.Dict | ast.Tuple) else None


def _set(code: ScriptFacts, module: Module, node: ast.AST, name: str | None, value: ast.expr) -> Iterator[Finding]:
    wrong = None if isinstance(node, ast.AugAssign) else no_text(value)
    if wrong:
        yield at(NUMBER, (module, node), f'os.environ["{name or "…"}"] = {wrong}')
    elif name == "GPU_NUM_DEVICES" and isinstance(value, ast.Constant) and code.job is not None:
        gpus = code.job.gpus
        if gpus is not None and str(value.value) != str(gpus):
            has = f"{code.job.instance_type} has {gpus} GPUs"
            yield at(GPU_COUNT, (module, node), f"{value.value!r}, and {has}")
    if name in PLACE and isinstance(value, ast.Constant) and not conditions(module, node):
        launched = code.launcher in ("torchrun", "smddp", "mpi")
        if code.spawns is not None and not launched:
            return  # a script that starts its own processes on one host has to say where they meet
        hosts = code.job.hosts if code.job else 1
        severe: Severity | None = "error" if launched and hosts > 1 and name != "MASTER_PORT" else None
        if launched or (code.group is not None and code.says("^LOCAL_RANK$")):
            yield at(OVERWRITTEN, (module, node), f'os.environ["{name}"] = {value.value!r}', severity=severe)


def _read(code: ScriptFacts, module: Module, node: ast.AST, name: str, *, required: bool) -> Iterator[Finding]:
    if not name.startswith("SM_"):
        return
    if not FREE.match(name) and name not in KNOWN and not name.startswith(("SM_FRAMEWORK", "SM_SMP")):
        near = [word for word in nearest(name, KNOWN, 1) if _alike(word, name)]
        if near:
            severity: Severity | None = None if required else "warning"
            yield at(UNKNOWN, (module, node), f"{name}: did you mean {near[0]}?", severity=severity)
    inputs = code.job.inputs if code.job else {}
    if name.startswith("SM_CHANNEL_") and inputs:
        channels = {f"SM_CHANNEL_{channel.upper()}" for channel in inputs}
        if name not in channels:
            has = f"the job has {', '.join(sorted(inputs))}"
            yield at(CHANNEL, (module, node), f"{name}: {has}", severity=None if required else "warning")


def _alike(word: str, name: str) -> bool:
    """A misspelling, not merely a name with the same beginning."""
    import difflib

    return difflib.SequenceMatcher(None, word[3:], name[3:]).ratio() > 0.8


def _used(module: Module, node: ast.AST, name: str) -> Iterator[Finding]:
    """An environment value used where only a number or a list will do."""
    around = module.parents.get(node)
    what = f'os.environ["{name}"]'
    if isinstance(around, ast.BinOp) and isinstance(around.op, NUMERIC):
        other = around.right if around.left is node else around.left
        # `folder / os.environ["X"]` is a path.
        divided = isinstance(around.op, ast.Div) and no_text(other) is None
        if not divided and not (isinstance(other, ast.Constant) and isinstance(other.value, str)):
            yield at(AS_NUMBER, (module, node), f"{what} in {ast.unparse(around)[:50]}")
    elif isinstance(around, ast.Compare) and len(around.comparators) == 1:
        other = around.comparators[0] if around.left is node else around.left
        number = isinstance(other, ast.Constant) and isinstance(other.value, int | float)
        if number:
            says = "is never equal to a number" if isinstance(around.ops[0], ast.Eq | ast.NotEq) else "is no number"
            yield at(AS_NUMBER, (module, node), f"{what} {says}")
    elif isinstance(around, ast.Call) and node in around.args:
        function = ast.unparse(around.func)
        if function == "range" or (function == "len" and name in JSON_VALUES):
            yield at(AS_NUMBER, (module, node), f"{function}({what})")
    elif isinstance(around, ast.Subscript | ast.For | ast.comprehension) and name in JSON_VALUES:
        inside = around.iter if isinstance(around, ast.For | ast.comprehension) else around.value
        if inside is node:
            yield at(AS_NUMBER, (module, node), f"{what} is JSON text, not a list")


def _calls(code: ScriptFacts, call: Call) -> Iterator[Finding]:
    if call.name in ("os.environ.setdefault", "os.putenv"):
        value = call.given("value", 1)
        wrong = no_text(value) if value is not None else None
        if wrong:
            yield at(NUMBER, call, f"{call.name} with {wrong}")
    elif call.name == "os.environ.update":
        pairs: list[ast.expr] = [k.value for k in call.node.keywords if k.arg]
        if call.node.args and isinstance(call.node.args[0], ast.Dict):
            pairs += call.node.args[0].values
        wrong_ones = [wrong for value in pairs if (wrong := no_text(value))]
        if wrong_ones:
            yield at(NUMBER, call, f"os.environ.update with {wrong_ones[0]}")
    if call.name in ("os.environ.get", "os.getenv"):
        name = call.constant("key", 0)
        if isinstance(name, str):
            yield from _read(code, call.module, call.node, name, required=False)
