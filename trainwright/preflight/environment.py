"""Environment variables: values are strings, SageMaker's names are fixed, and a launcher sets its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.errors import nearest
from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.arguments import tensorflow_job
from trainwright.preflight.distributed import GROUP_PLACE
from trainwright.preflight.rendezvous import COMPUTED, NOT_SET, implied
from trainwright.sagemaker.toolkit import PYTORCH_TOOLKIT, TOOLKIT
from trainwright.script.call import Call
from trainwright.script.environment_names import FREE, JSON_VALUES, KNOWN, MPI_RANKS, PLACE, RANKS, TORCHRUN, sets
from trainwright.script.events import Event
from trainwright.script.option_names import spelled
from trainwright.script.reader import MAIN, Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at, conditions, enclosing_function, meant, qualified
from trainwright.script.values import Value

PYTHON = "Python's documentation of os.environ: keys and values are strings"
ENVIRONMENT = f"{TOOLKIT}, environment of the user's script"
NUMBER = Rule(
    code="TW160",
    severity="error",
    title="an environment variable is set to something other than a string",
    source=f"{PYTHON}, anything else raises TypeError",
    remedy='Use quotes or str(…): os.environ["GPU_NUM_DEVICES"] = "4"',
)
AS_NUMBER = Rule(
    code="TW161",
    severity="error",
    title="an environment variable is used as a number or list",
    source=f"{PYTHON}; SM_HOSTS, SM_CHANNELS and SM_HPS contain JSON",
    remedy='Use int(os.environ["…"]), or json.loads(os.environ["…"]) for a list.',
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
    title="the script overwrites a variable with which the launcher tells a process its rank or address",
    source=f"PyTorch's documentation of torchrun; {PYTORCH_TOOLKIT} sets MASTER_ADDR and MASTER_PORT",
    remedy='os.environ.setdefault("…", "…"), which applies only if it is not set yet.',
)
UNKNOWN = Rule(
    code="TW164",
    severity="error",
    title="unknown SM_ variable",
    source=ENVIRONMENT,
    remedy="Correct the name; ./invoke rehearse shows the environment of a script.",
)
CHANNEL = Rule(
    code="TW165",
    severity="error",
    title="the job has no input channel of that name",
    source=f"{ENVIRONMENT}: SM_CHANNEL_<NAME> is set for each channel of the job's inputs, in capitals",
    remedy="Name the channel as in the job's inputs, or add it there.",
)
RULES = (NUMBER, AS_NUMBER, GPU_COUNT, OVERWRITTEN, UNKNOWN, CHANNEL, NOT_SET)


# What takes the elements of a list, and the characters of a text.
_OF_LISTS = ("len", "sorted", "enumerate", "list", "tuple", "set", "reversed", "zip", "iter", "min", "max")
NUMERIC = (ast.Mult, ast.Sub, ast.Div, ast.FloorDiv, ast.Pow)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    found = list(_names(code))
    yield from found
    yield from _values(code)
    if not any(each.code == NOT_SET.code for each in found):
        yield from implied(code, _set_by_script(code))


def _names(code: ScriptFacts) -> Iterator[Finding]:
    """Check each place that sets or reads a variable by its name."""
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
    yield from _followed(code)


def _followed(code: ScriptFacts) -> Iterator[Finding]:
    """Check reads that only the interpreter sees: by a computed name, or of os.environ under another name."""
    reads = [(module, node, name, True) for module, node, name in code.needed]
    for event in code.ran("get", "getenv"):
        key = event.arg("key", 0)
        name = key.single() if key is not None and key.sure else None
        # A channel that is read with get may be optional.
        if event.name in ("os.environ.get", "os.getenv") and isinstance(name, str) and FREE.match(name) is None:
            reads.append((event.module, event.node, name, False))
    for module, node, name, required in dict.fromkeys(reads):
        if not (_key(module, node) or _got(module, node)):
            yield from _read(code, module, node, name, required=required)


def _values(code: ScriptFacts) -> Iterator[Finding]:
    """Check what becomes of values of the environment after they were assigned to a name."""
    for module, node, name in code.misused:
        if "environ[" not in ast.unparse(node):
            yield at(AS_NUMBER, (module, node), f"{name} is text, in `{ast.unparse(node)[:50]}`")
    for event in code.ran("index", "sort", "append", "pop", "remove", live=True):
        base = event.receiver
        name = next((tag[4:] for tag in base.tags if tag.startswith("env:")), "") if base is not None else ""
        if base is not None and name in JSON_VALUES and _json(event, base):
            yield at(AS_NUMBER, event, f"{event.last}(…) of the JSON string {name}")
    for event in code.ran("add_argument", live=True):
        kind, default = event.arg("type"), event.arg("default")
        name = next((tag[4:] for tag in default.tags if tag.startswith("env:")), "") if default is not None else ""
        names = [each.lstrip("-").replace("-", "_") for row in spelled(event.module, event.node) for each in row]
        used = any(map(code.mentions, names))
        parts = kind is not None and kind.name in ("list", "tuple") and used
        if kind is not None and parts and default is not None and _json(event, default):
            yield at(AS_NUMBER, event, f"type={kind.name} makes characters of the string {name}")
    for event in code.events:
        for value in event.args:
            name = next((tag[4:] for tag in value.tags if tag.startswith("env:")), "")
            if not name or event.detached or name not in (*JSON_VALUES, *RANKS, "SM_NUM_GPUS"):
                continue
            if event.last == "set_device" and "number" in value.tags:
                yield at(AS_NUMBER, event, f"set_device(…) of the string {name}")
            first = event.node.args[0] if event.node.args else event.node
            direct = isinstance(first, ast.Subscript) and _key(event.module, first) is not None
            if event.name in _OF_LISTS and _json(event, value) and not (direct and event.name == "len"):
                yield at(AS_NUMBER, event, f"{event.name}(…) of the JSON string {name}")
            elif event.name == "range" and "number" in value.tags and not direct:
                yield at(AS_NUMBER, event, f"range(…) of the string {name}")


def _json(event: Event, value: Value) -> bool:
    """Return whether a value is JSON text for certain, and the script does not ask what it is."""
    asked = any("isinstance" in ast.unparse(guard.node) for guard in event.guards)
    return "json" in value.tags and not value.tags & {"hosts", "parsed"} and not (event.detached or asked)


def _is_environ(module: Module, node: ast.expr) -> bool:
    if isinstance(node, ast.Name) and "env" in node.id.lower():  # `env = os.environ`
        node = meant(module, node)
    return qualified(module, node) == "os.environ"


def _key(module: Module, node: ast.AST) -> str | None:
    """``X`` of ``os.environ["X"]``."""
    if isinstance(node, ast.Subscript) and _is_environ(module, node.value) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return None


def not_a_string(node: ast.expr) -> str | None:
    """Describe an expression that is certainly not a string; None if it may be one."""
    if isinstance(node, ast.Constant):
        return None if isinstance(node.value, str) else repr(node.value)
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        if name in ("int", "float", "len", "bool", "torch.cuda.device_count", "os.cpu_count", "dict", "list"):
            return f"{name}(…)"
    if isinstance(node, ast.BinOp) and isinstance(node.op, NUMERIC) and not isinstance(node.op, ast.Mult):
        return f"the result of {ast.unparse(node)[:40]}"
    return "a list or dict" if isinstance(node, ast.List | ast.Dict | ast.Tuple) else None


def _aside(code: ScriptFacts, module: Module, node: ast.AST) -> bool:
    """Return whether a statement is in a function of an imported file that this script does not call."""
    function = enclosing_function(module, node)
    if function is None or module is code.script.entry or not any(isinstance(n, ast.Call) for n in ast.walk(function)):
        return False
    return all(e.detached for e in code.events if e.stack and e.stack[-1].node is function)


# What names the host that a process is on.
_OWN_HOST = re.compile(r"SM_CURRENT_HOST|\bcurrent_host\b|\bgethostname\(|\bgetfqdn\(\)")


def _set(code: ScriptFacts, module: Module, node: ast.AST, name: str | None, value: ast.expr) -> Iterator[Finding]:
    wrong = None if isinstance(node, ast.AugAssign) else not_a_string(value)
    if wrong:
        yield at(NUMBER, (module, node), f'os.environ["{name or "…"}"] = {wrong}')
    elif name == "GPU_NUM_DEVICES" and isinstance(value, ast.Constant) and code.job is not None:
        gpus = code.job.gpus
        if gpus is not None and str(value.value) != str(gpus):
            expected = f"{code.job.instance_type} has {gpus} GPUs"
            yield at(GPU_COUNT, (module, node), f"{value.value!r}, but {expected}")
    always = not conditions(module, node) and not isinstance(value, ast.IfExp)
    if name == "MASTER_ADDR" and code.several_hosts and always and _OWN_HOST.search(ast.unparse(value)):
        yield at(GROUP_PLACE, (module, node), f"MASTER_ADDR={ast.unparse(value)[:50]}: each host names itself")
    plain = isinstance(value, ast.Constant) or (name == "TF_CONFIG" and isinstance(value, ast.Call))
    if name in PLACE and plain and not conditions(module, node) and not _aside(code, module, node):
        launched = code.launcher in ("torchrun", "smddp", "mpi")
        hosts = code.job.hosts if code.job else 1
        if code.spawns is not None and not launched:
            # A script that starts its own processes must set the address: on one host, any name of it.
            if hosts > 1 and isinstance(value, ast.Constant) and value.value in ("localhost", "127.0.0.1"):
                yield at(GROUP_PLACE, (module, node), f"{name}={value.value!r}: each host would meet only itself")
            return
        severe: Severity | None = "error" if launched and hosts > 1 and name != "MASTER_PORT" else None
        if name == "MASTER_PORT" and "MASTER_ADDR" in _set_by_script(code):
            return  # the address says it
        if name == "TF_CONFIG":
            launched = code.launcher in ("mwms", "parameter-server")
            severe = severe or ("error" if code.launcher == "mwms" and hosts > 1 else None)
        if launched or (code.group is not None and code.says("^LOCAL_RANK$")):
            yield at(OVERWRITTEN, (module, node), f'os.environ["{name}"] = {ast.unparse(value)[:50]}', severity=severe)


def _read(code: ScriptFacts, module: Module, node: ast.AST, name: str, *, required: bool) -> Iterator[Finding]:
    given = code.job is not None and name in code.job.environment
    if name in (*RANKS, *MPI_RANKS) and required and not given:
        yield from _launched(code, module, node, name)
    if not name.startswith("SM_"):
        return
    if not FREE.match(name) and name not in KNOWN and not given and name not in _set_by_script(code):
        # What begins every name makes none of them similar.
        similar = nearest(name.removeprefix("SM_"), [known.removeprefix("SM_") for known in KNOWN], 1)
        severity: Severity | None = None if required else "warning"
        what = f"{name}: did you mean SM_{similar[0]}?" if similar else f"{name}: SageMaker sets no such variable"
        plain = name.removeprefix("SM_")
        remedy = f"Read {plain}, which torchrun sets." if plain in TORCHRUN else UNKNOWN.remedy
        yield at(UNKNOWN, (module, node), what, severity=severity, remedy=remedy)
    if not given and name.startswith("SM_CHANNEL_"):
        yield from _channel(code, module, node, name, required=required)
    elif not given and name.startswith("SM_HP_") and required:
        yield from _hyperparameter(code, module, node, name)


def _channel(code: ScriptFacts, module: Module, node: ast.AST, name: str, *, required: bool) -> Iterator[Finding]:
    """Report the variable of a channel that the job does not have."""
    inputs = code.job.inputs if code.job else {}
    if inputs and name not in {f"SM_CHANNEL_{channel.upper()}" for channel in inputs}:
        channel_list = f"the job has {', '.join(sorted(inputs))}"
        yield at(CHANNEL, (module, node), f"{name}: {channel_list}", severity=None if required else "warning")
    elif not inputs and required and code.submitted and _comes_to(code, module, node):
        # Inputs may be passed when the job is started.
        yield at(CHANNEL, (module, node), f"{name}: the job file has no inputs", severity="warning")


def _hyperparameter(code: ScriptFacts, module: Module, node: ast.AST, name: str) -> Iterator[Finding]:
    """Report the variable of a hyperparameter that the job does not pass (sagemaker-training, ``to_env_vars``)."""
    passed = {*(code.job.arguments if code.job else ())}
    if not (passed or code.submitted) or name in _set_by_script(code) or not _comes_to(code, module, node):
        return
    added = {"model_dir"} if tensorflow_job(code) else set()
    added |= {"mp_parameters"} if code.job is not None and code.job.model_parallel else set()
    # SDK 2 keeps the dashes of a name, and SDK 3's driver makes underscores of them.
    if name.replace("-", "_") not in {f"SM_HP_{each.replace('-', '_').upper()}" for each in (*passed, *added)}:
        given = f"the job passes {', '.join(sorted(passed))}" if passed else "the job file has no hyperparameters"
        remedy = "Correct the name, add the hyperparameter to the job, or read it with a default."
        severity: Severity | None = None if passed else "warning"
        yield at(UNKNOWN, (module, node), f"{name}: {given}", severity=severity, remedy=remedy)


def _comes_to(code: ScriptFacts, module: Module, node: ast.AST) -> bool:
    """Return whether the job certainly reads a variable at a place, which is not within a ``try``."""
    tests = [ast.unparse(test) for test, _ in conditions(module, node)]
    function = enclosing_function(module, node)
    if (tests and not code.comes_to(node)) or any(isinstance(n, ast.Try) for n in ancestors(module, node)):
        return False
    return function is None or function.name in MAIN or any(code.called(function.name))


def _set_by_script(code: ScriptFacts) -> set[str]:
    """Return the names that the script sets itself; …: and others, which cannot be seen."""
    found = set()
    for module in code.modules:
        for node in module.nodes:
            stored = isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load)
            if stored and isinstance(node, ast.Subscript) and _is_environ(module, node.value):
                found.add(_key(module, node) or COMPUTED)
    for call in code.called("setdefault", "putenv", "update"):
        func = call.node.func
        environ = isinstance(func, ast.Attribute) and _is_environ(call.module, func.value)
        if call.last != "update":
            key = call.constant("key", 0)
            found |= {key} if isinstance(key, str) else {COMPUTED} if environ or call.last == "putenv" else set()
        elif environ:
            found |= {keyword.arg or COMPUTED for keyword in call.node.keywords}
            keys = [key for each in call.node.args for key in (each.keys if isinstance(each, ast.Dict) else [None])]
            found |= {str(key.value) if isinstance(key, ast.Constant) else COMPUTED for key in keys}
    return found


def _launched(code: ScriptFacts, module: Module, node: ast.AST, name: str) -> Iterator[Finding]:
    """Report a rank that is read where the job's launcher sets none: a KeyError."""
    launch = code.launch
    if launch.launcher is None or {name, COMPUTED} & _set_by_script(code) or code.spawns is not None or code.torch_xla:
        return
    absent = not sets(launch, "mpi" if name in MPI_RANKS else "torchrun")
    absent = absent or (launch.launcher == "torchrun" and name not in TORCHRUN)
    if not absent or launch.launcher == "xla" or module is not code.script.entry:
        return
    if code.imports("torch.sagemaker") is not None:
        return
    if not _comes_to(code, module, node):
        return
    what = f'os.environ["{name}"], which the launcher "{launch.launcher}" does not set'
    if launch.launcher == "process":
        what = f'os.environ["{name}"], but the job starts the script without a launcher'
    yield at(NOT_SET, (module, node), what)


def _used(module: Module, node: ast.AST, name: str) -> Iterator[Finding]:
    """Report an environment value used where a number or list is needed."""
    around = module.parents.get(node)
    what = f'os.environ["{name}"]'
    if isinstance(around, ast.BinOp) and isinstance(around.op, NUMERIC):
        other = around.right if around.left is node else around.left
        # `folder / os.environ["X"]` is a path.
        divided = isinstance(around.op, ast.Div) and not_a_string(other) is None
        if not divided and not (isinstance(other, ast.Constant) and isinstance(other.value, str)):
            yield at(AS_NUMBER, (module, node), f"{what} in {ast.unparse(around)[:50]}")
    elif isinstance(around, ast.Compare) and len(around.comparators) == 1:
        other = around.comparators[0] if around.left is node else around.left
        number = isinstance(other, ast.Constant) and isinstance(other.value, int | float)
        if number:
            says = "is never equal to a number" if isinstance(around.ops[0], ast.Eq | ast.NotEq) else "is not a number"
            yield at(AS_NUMBER, (module, node), f"{what} {says}")
    elif isinstance(around, ast.Call) and node in around.args:
        function = ast.unparse(around.func)
        if function == "range" or (function == "len" and name in JSON_VALUES):
            yield at(AS_NUMBER, (module, node), f"{function}({what})")
    elif isinstance(around, ast.Subscript | ast.For | ast.comprehension) and name in JSON_VALUES:
        inside = around.iter if isinstance(around, ast.For | ast.comprehension) else around.value
        if inside is node:
            yield at(AS_NUMBER, (module, node), f"{what} is a JSON string, not a list")


def _calls(code: ScriptFacts, call: Call) -> Iterator[Finding]:
    if call.name in ("os.environ.setdefault", "os.putenv"):
        value = call.given("value", 1)
        wrong = not_a_string(value) if value is not None else None
        if wrong:
            yield at(NUMBER, call, f"{call.name} with {wrong}")
    elif call.name == "os.environ.update":
        pairs: list[ast.expr] = [k.value for k in call.node.keywords if k.arg]
        if call.node.args and isinstance(call.node.args[0], ast.Dict):
            pairs += call.node.args[0].values
        wrong_ones = [wrong for value in pairs if (wrong := not_a_string(value))]
        if wrong_ones:
            yield at(NUMBER, call, f"os.environ.update with {wrong_ones[0]}")
    if name := _got(call.module, call.node):
        yield from _read(code, call.module, call.node, name, required=False)


def _got(module: Module, node: ast.AST) -> str:
    """``X`` of ``os.environ.get("X")`` or ``os.getenv("X")``, as it is written."""
    if not isinstance(node, ast.Call):
        return ""
    func = node.func
    gets = isinstance(func, ast.Attribute) and func.attr == "get" and _is_environ(module, func.value)
    name = Call(module, node, "").constant("key", 0)
    return name if isinstance(name, str) and (gets or qualified(module, func) == "os.getenv") else ""
