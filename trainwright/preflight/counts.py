"""Numbers of one process, or of one host, that are taken for those of the whole job."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.deepspeed import configuration
from trainwright.preflight.keras_epochs import FEWER_EPOCHS
from trainwright.script.arithmetic import QUOTIENT
from trainwright.script.call import Call
from trainwright.script.configurations import is_arguments
from trainwright.script.events import Event
from trainwright.script.option_names import spelled
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Value, constant

SHORT_SCHEDULE = Rule(
    code="TW517",
    severity="error",
    title="a schedule counts the batches of one process, and Accelerate steps it once for each process",
    source="Accelerate, scheduler.py: the prepared scheduler makes num_processes steps at each step, unless "
    "split_batches=True; huggingface/diffusers #3954, huggingface/accelerate #2926",
    remedy="num_training_steps=max_steps * accelerator.num_processes, or take len() of the loader before prepare.",
)
LARGE_BATCH = Rule(
    code="TW518",
    severity="warning",
    title="the batch of the whole job is divided by the GPUs of one host alone",
    source="SageMaker's container contract: SM_NUM_GPUS counts the GPUs of the host; transformers, "
    "TrainingArguments: the batch of a step is per_device_train_batch_size times all processes",
    remedy='global_batch_size // (int(os.environ["SM_NUM_GPUS"]) * len(json.loads(os.environ["SM_HOSTS"]))), or // '
    'int(os.environ["WORLD_SIZE"])',
)
DEEPSPEED_BATCH = Rule(
    code="TW520",
    severity="error",
    title="DeepSpeed's three batch sizes do not fit the number of processes",
    source="DeepSpeed, runtime/config.py: train_batch_size must be train_micro_batch_size_per_gpu * "
    "gradient_accumulation_steps * the number of processes",
    remedy="Leave train_batch_size out, or multiply by WORLD_SIZE instead of the GPUs of one host.",
)
LONG_SCHEDULE = Rule(
    code="TW530",
    severity="warning",
    title="a schedule counts the batches of all processes, and each process steps it for its own",
    source="PyTorch's documentation: DistributedSampler gives each process one of num_replicas shares; the total_steps "
    "of a schedule count the calls of its step()",
    remedy="len(loader) instead of len(dataset) // batch_size, or divide by the number of processes as well.",
)
DIVIDED_TWICE = Rule(
    code="TW576",
    severity="error",
    title="a schedule's length is divided by the number of processes twice: the loader is divided already",
    source="PyTorch's documentation: DistributedSampler gives each process one of num_replicas shares; OneCycleLR, "
    "steps_per_epoch=len(data_loader), raises ValueError when it is stepped more often than total_steps; "
    "chengtan9907/OpenSTL #184",
    remedy="len(loader): it is the number of batches of this process.",
)
NO_SAMPLES = Rule(
    code="TW528",
    severity="error",
    title="the job's batch size divided by the number of processes is 0",
    source="PyTorch, torch/utils/data/sampler.py, BatchSampler: batch_size should be a positive integer value",
    remedy="Pass the batch of all processes, or do not divide it.",
)
RULES = (SHORT_SCHEDULE, LONG_SCHEDULE, DIVIDED_TWICE, LARGE_BATCH, DEEPSPEED_BATCH, NO_SAMPLES)
_BATCHES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
# How a name, and the help of an argument, say that a batch is that of the whole job.
_WHOLE_NAME = re.compile(
    r"(global|total|effective|overall)_(train_)?batch|batch_(size_)?(global|total|effective)", re.I
)
_WHOLE_HELP = re.compile(
    r"\b(global|total|effective|overall)\b.*\bbatch|\bbatch\b.*\b(whole job|all (the )?(gpus|processes|devices))",
    re.I,
)
_WORLD = re.compile(r"^([\w.]*world_?size|[\w.]*get_world_size\(\)|hvd\.size\(\)|accelerator\.num_processes)$")
_OF_HOST = re.compile(r"host|node|machine|instance", re.I)
# Where a schedule gets its number of steps: by name, and by position.
_STEPS = ("num_training_steps", "total_steps", "steps_per_epoch", "T_max", "total_iters")
_PLACES = {"get_scheduler": 3, "OneCycleLR": 2, "CosineAnnealingLR": 1}
_WITH_WARMUP = 2
_COUNTED = frozenset({"share-length", "all-batches", "divided-twice"})


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or not code.several:
        return
    if code.imports("accelerate") is not None:
        yield from _short_schedules(code)
    elif not code.managed:
        yield from _long_schedules(code)
    launch = code.launch
    if code.several_hosts and launch.launched and launch.per_host == launch.gpus and not code.smp:
        yield from _large_batches(code)
    yield from _no_samples(code)
    if code.imports("deepspeed", certain=True) is not None:
        yield from _deepspeed_batch(code)


def _at(rule: Rule, event: Event, message: str) -> Finding:
    return at(rule, event, f"`{ast.unparse(event.node.func)[:50]}` {message}")


def _large_batches(code: ScriptFacts) -> Iterator[Finding]:
    """Report a process's batch that is the whole job's, divided by the number of GPUs of one host."""
    for event in code.events:
        size = None
        if is_arguments(event.name):
            size = event.arg("per_device_train_batch_size")
        elif event.last == "DataLoader" and event.name.startswith("torch."):
            size = event.arg("batch_size", 1)
        if size is None or event.detached or size.single() is ...:
            continue
        places = [int(tag.removeprefix(QUOTIENT)) for tag in size.tags if tag.startswith(QUOTIENT)]
        if len(places) == 1 and _of_whole_job(code, code.quotients[places[0]][1].left):
            module, node = code.quotients[places[0]]
            hosts = code.launch.hosts
            what = f"`{ast.unparse(node)[:60]}` divides by the {code.launch.gpus} GPUs of one host, of {hosts}"
            yield at(LARGE_BATCH, (module, node), f"{what}: the batch of all is {hosts} times larger")
            return


def _no_samples(code: ScriptFacts) -> Iterator[Finding]:
    """Report `batch_size // world_size` of a hyperparameter that is less than the number of processes."""
    job, processes = code.job, code.launch.processes
    if job is None or not processes:
        return
    given = {name.replace("-", "_"): value for name, value in code.given.items() if "batch" in name}
    for module in code.modules:
        for node in module.nodes:
            if not isinstance(node, ast.AugAssign | ast.BinOp) or not isinstance(node.op, ast.FloorDiv):
                continue
            whole, by = (node.target, node.value) if isinstance(node, ast.AugAssign) else (node.left, node.right)
            name = whole.attr if isinstance(whole, ast.Attribute) else ""
            size = given.get(name)
            small = isinstance(size, int) and 0 < size < processes and not _has_least(module, name)
            if small and _WORLD.search(ast.unparse(by)):
                what = f"`{ast.unparse(node)[:50]}` is 0: {name} is {size}, and the job has {processes} processes"
                yield at(NO_SAMPLES, (module, node), what)
                return


def _has_least(module: Module, name: str) -> bool:
    """Return whether a file gives a number a lower bound: `max(1, args.batch_size // world)`."""
    calls = (n for n in module.nodes if isinstance(n, ast.Call) and ast.unparse(n.func) == "max")
    return any(name in ast.unparse(arg) for call in calls for arg in call.args)


def _deepspeed_batch(code: ScriptFacts) -> Iterator[Finding]:
    """Report batch sizes that DeepSpeed refuses when it starts; it computes those that are left out."""
    processes = code.launch.processes
    for event in code.ran("initialize", live=True):
        sizes = configuration(event).attrs if event.name == "deepspeed.initialize" else None
        apart = event.arg("mpu") is not None or code.imports("deepspeed.pipe") is not None
        if sizes is None or apart or not processes or sizes.keys() & {"**", "element"}:
            continue
        whole, micro, every = (sizes.get(name, constant(None)).single() for name in _BATCHES)
        if not isinstance(whole, int) or not isinstance(micro, int | None) or not isinstance(every, int | None):
            continue
        # As _set_batch_related_parameters of DeepSpeed does.
        every = every or (1 if micro is None else whole // (micro * processes or 1))
        micro = whole // (every * processes or 1) if micro is None else micro
        if whole != micro * every * processes:
            what = f"train_batch_size is {whole}, not {micro} * {every} * {processes} processes"
            yield _at(DEEPSPEED_BATCH, event, what)
            return


def _of_whole_job(code: ScriptFacts, dividend: ast.expr) -> bool:
    """Return whether the name of a batch, or the help of its argument, says that it is the whole job's."""
    if isinstance(dividend, ast.Subscript):
        key = dividend.slice
        name = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
    else:
        name = getattr(dividend, "attr", getattr(dividend, "id", ""))
    if not name or _OF_HOST.search(name):
        return False
    helps = [str(call.constant("help")) for call in code.called("add_argument") if name in _names(call)]
    if any(_OF_HOST.search(text) for text in helps):
        return False
    return bool(_WHOLE_NAME.search(name)) or any(_WHOLE_HELP.search(text) for text in helps)


def _names(call: Call) -> set[str]:
    """Return the names that an argument of the script may have."""
    texts = (text for row in spelled(call.module, call.node) for text in row)
    return {text.lstrip("-").replace("-", "_") for text in texts}


def _short_schedules(code: ScriptFacts) -> Iterator[Finding]:
    """Report a prepared schedule whose length was computed from a prepared loader."""
    made = [e for e in code.ran("Accelerator", live=True) if e.name.startswith("accelerate.")]
    settings = [*made, *code.ran("DataLoaderConfiguration", live=True)]
    if not made or code.imports("deepspeed") is not None or any(map(_steps_once, settings)):
        return
    prepared = [
        (event, value)
        for event in code.ran("prepare", "prepare_scheduler", live=True)
        if event.name.startswith("accelerate.Accelerator.")
        for value in event.args
    ]
    for event in code.events:
        length = _length(event)
        if length is None or event.detached or "share-length" not in length.tags:
            continue
        later = [e for e, value in prepared if e.order > event.order and _same(value, event.result)]
        if later:
            part = f"1/{code.launch.processes}" if code.launch.processes else "a part"
            what = f"gets the steps of one process, and is prepared in line {later[0].line}"
            yield _at(SHORT_SCHEDULE, event, f"{what}: it ends after {part} of the training")
            return


def _long_schedules(code: ScriptFacts) -> Iterator[Finding]:
    """Report a schedule, stepped at each batch of a divided loader, whose length is not that of its batches."""
    loader = code.training_loader()
    sampler = loader.arg("sampler", 3) if loader is not None else None
    batch = loader.arg("batch_size", 1) if loader is not None else None
    if sampler is None or not sampler.made_by("DistributedSampler"):
        return
    small = batch is not None and bool(batch.tags & {"per-replica", "part", "world"})
    loops = [event.loops for event in code.ran("backward", live=True) if event.loops]
    yield from _fewer_epochs(code, loops)
    for step in code.ran("step", live=True):
        made = code.maker(step.receiver) if step.receiver is not None else None
        if made is None or step.loops not in loops:
            continue
        part = f"1/{code.launch.processes}" if code.launch.processes else "a part"
        if _counts(made, "all-batches") and not small:
            yield _at(LONG_SCHEDULE, made, f"counts the batches of all processes: each makes {part} of its steps")
            return
        if _counts(made, "divided-twice"):
            what = f"counts {part} of the batches of this process: it ends after {part} of the training"
            yield _at(DIVIDED_TWICE, made, what)
            return


def _fewer_epochs(code: ScriptFacts, loops: list[tuple[ast.AST, ...]]) -> Iterator[Finding]:
    """Report epochs that are divided by the number of processes, as the data of each epoch are."""
    for event in code.ran("range", live=True):
        loop = next((around[0] for around in loops if getattr(around[0], "iter", None) is event.node), None)
        named = isinstance(loop, ast.For) and "epoch" in ast.unparse(loop.target)
        if named and event.args and {"world", "per-replica"} <= event.args[-1].tags:
            yield _at(FEWER_EPOCHS, event, "of the epochs is divided, and the sampler divides the data of each")
            return
    outer = {around[:1] for around in loops}
    for step in code.ran("step", live=True):
        made = code.maker(step.receiver) if step.receiver is not None and step.loops in outer else None
        lengths = [made.arg(name) for name in _STEPS] + [_length(made)] if made is not None else []
        if made is not None and any(v is not None and {"world", "per-replica"} <= v.tags for v in lengths):
            yield _at(
                FEWER_EPOCHS, made, f"gets fewer epochs than there are, and is stepped after each (line {step.line})"
            )
            return


def _counts(event: Event, what: str) -> bool:
    """Return whether the steps of a schedule, or a function that it gets, come from such a number of batches."""
    length = _length(event)
    given = event.arg("lr_lambda", 1)
    if length is None and given is not None and given.code is not None:
        names = (node.id for node in ast.walk(given.code.node) if isinstance(node, ast.Name))
        seen = (given.code.scope.get(name) for name in names)
        return any(value is not None and what in value.tags for value in seen)
    if length is None and given is not None and given.attrs is not None:
        length = given.attrs.get("(returned)")  # of a lambda
    return length is not None and what in length.tags


def _steps_once(event: Event) -> bool:
    """Return whether the scheduler of an accelerator may step once at each step."""
    split, coupled = event.arg("split_batches"), event.arg("step_scheduler_with_optimizer")
    return (
        event.opened
        or (split is not None and not _is(split, False))
        or (coupled is not None and not _is(coupled, True))
    )


def _is(value: Value, wanted: bool) -> bool:
    return value.single() is wanted and "flag" not in value.tags


def _length(event: Event) -> Value | None:
    """Return the number of steps that a schedule gets."""
    if not event.name.startswith(("transformers.", "diffusers.", "torch.optim.lr_scheduler.")):
        return None
    place = _WITH_WARMUP if event.last.endswith("_with_warmup") else _PLACES.get(event.last)
    given = (event.arg(name) for name in _STEPS)
    found = next((value for value in given if value is not None and value.tags & _COUNTED), None)
    return found or (event.arg("", place) if place is not None else None)


def _same(value: Value, made: Value) -> bool:
    """Return whether a value is what a call has made, perhaps in one of two branches."""
    return value is made or (bool(made.made) and made.made <= value.made)
