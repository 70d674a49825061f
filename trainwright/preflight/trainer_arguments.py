"""What a Trainer is told to do, and what it needs for it: metrics, checkpoints, keys, a padding token."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from trainwright.core.findings import Finding, Rule
from trainwright.preflight import metrics
from trainwright.preflight.huggingface import ARGUMENTS
from trainwright.preflight.saves import saves
from trainwright.preflight.saving import NO_CHECKPOINT
from trainwright.preflight.schedule import ON_CPU
from trainwright.preflight.versions import before
from trainwright.script.configurations import of_file
from trainwright.script.events import Event
from trainwright.script.paths import roots
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Value

NO_KEY = Rule(
    code="TW416",
    severity="warning",
    title="the script uses a service for which the job has no key",
    source="Weights & Biases' documentation, environment variables: without a key and a terminal wandb.init fails; "
    "Hugging Face's documentation of the hub: uploads need a token",
    remedy="environment: {WANDB_API_KEY: …} (HF_TOKEN for the hub) in the job file, from a secret; or "
    "WANDB_MODE: offline",
)
NO_PAD_TOKEN = Rule(
    code="TW417",
    severity="error",
    title="texts are padded by a tokenizer that has no padding token",
    source="transformers, tokenization_utils_base.py: asking to pad but the tokenizer does not have a padding token; "
    "those of GPT-2, Llama and Mistral have none",
    remedy="tokenizer.pad_token = tokenizer.eos_token",
)
NO_ACCUMULATION = Rule(
    code="TW410",
    severity="warning",
    title="gradients are to be accumulated, but the loop does not do it",
    source="Accelerate's guide, performing gradient accumulation: the loop runs within accelerator.accumulate(model)",
    remedy="with accelerator.accumulate(model): …",
)
EVERY_PROCESS = Rule(
    code="TW458",
    severity="note",
    title="every process logs the run, each as one of its own",
    source="Weights & Biases' guide for distributed training: initialise in rank 0 alone, or give the runs one group; "
    "PyTorch's tutorial on TensorBoard: a writer for each run",
    remedy="if rank == 0: around it (for all processes, wandb.init(group=…), or a folder with the rank in its name).",
)
UNPADDED = Rule(
    code="TW508",
    severity="error",
    title="texts of different lengths come to a Trainer that pads none",
    source="transformers, trainer.py and data_collator.py: without a tokenizer (processing_class) the Trainer takes "
    "default_data_collator, which makes tensors of the rows as they are",
    remedy="data_collator=DataCollatorWithPadding(tokenizer), or processing_class=tokenizer.",
)
REENTRANT = Rule(
    code="TW523",
    severity="error",
    title="reentrant checkpointing under DistributedDataParallel, which looks for unused parameters",
    source='PyTorch, reducer.cpp: "Expected to mark a variable ready only once … multiple reentrant backward passes"; '
    "huggingface/peft #313, huggingface/accelerate #2017",
    remedy='gradient_checkpointing_kwargs={"use_reentrant": False}, or ddp_find_unused_parameters=False.',
)
RULES = (EVERY_PROCESS, NO_KEY, NO_PAD_TOKEN, NO_ACCUMULATION, UNPADDED, REENTRANT)
_ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "GRPOConfig")
_TRAINERS = ("Trainer", "Seq2SeqTrainer", "SFTTrainer", "SageMakerTrainer")
WITHOUT_PAD = re.compile(r"(^|/)(gpt2|distilgpt2|gpt-neo|gpt-j|llama|mistral|mixtral|falcon|opt-iml|pythia)", re.I)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete:
        return
    yield from _keys(code)
    yield from _every_process(code)
    yield from _anew(code)
    if code.imports("accelerate") is not None:
        yield from _accumulates(code)
    if code.imports("transformers", "trl") is None:
        return
    yield from _padding(code)
    yield from _unpadded(code)
    arguments = [e for e in code.ran(*_ARGUMENTS) if e.name.startswith(("transformers", "trl"))]
    trainers = [e for e in code.ran(*_TRAINERS, live=True) if e.name.startswith(("transformers", "trl"))]
    for event in arguments:
        yield from _arguments(code, event)
    for trainer in trainers:
        given = trainer.arg("args", 1)
        own = next((e for e in arguments if given is not None and e.result is given), None)
        if own is not None and not own.opened:
            yield from _together(code, trainer, own)
    yield from _resumes(code)


def _known(code: ScriptFacts, event: Event, name: str) -> object:
    """The value of an argument in this job (without one: that no flag changes); Ellipsis if it is not known."""
    value = event.keywords.get(name)
    return value.single() if value is not None and (code.job is not None or "flag" not in value.tags) else ...


def _arguments(code: ScriptFacts, event: Event) -> Iterator[Finding]:
    best = _known(code, event, "load_best_model_at_end") is True
    save, evaluate = _known(code, event, "save_steps"), _known(code, event, "eval_steps")
    if best and isinstance(save, int) and isinstance(evaluate, int) and evaluate > 0 and save % evaluate:
        yield at(
            ARGUMENTS, event, f"load_best_model_at_end with save_steps={save}, not a multiple of eval_steps={evaluate}"
        )
    yield from _deepspeed(code, event)
    yield from _generations(code, event)
    options = event.keywords.get("gradient_checkpointing_kwargs")
    reentrant = (options.attrs or {}).get("use_reentrant") if options is not None else None
    unused = _known(code, event, "ddp_find_unused_parameters") is True and code.several
    checkpoints = _known(code, event, "gradient_checkpointing") is True and not code.mentions_like("static_graph")
    if unused and checkpoints and reentrant is not None and reentrant.single() is True:
        yield at(REENTRANT, event, "use_reentrant=True with ddp_find_unused_parameters=True")
    if code.launch.gpus and (_known(code, event, "use_cpu") is True or _known(code, event, "no_cuda") is True):
        name = "use_cpu" if _known(code, event, "use_cpu") is True else "no_cuda"
        yield at(ON_CPU, event, f"{name}=True")


# Keys of DeepSpeed's configuration, and the arguments that must agree with them unless they are "auto".
_TWICE = {
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "max_grad_norm",
}


def _deepspeed(code: ScriptFacts, event: Event) -> Iterator[Finding]:
    """Report a number that DeepSpeed's configuration and the trainer's arguments both have, and differently."""
    configuration = of_file(event.module, event.arg("deepspeed")).attrs or {}
    for key, name in _TWICE.items():
        number, here = _number(configuration, key), _known(code, event, name)
        if number is not None and type(here) in (int, float) and number != here:
            yield at(ARGUMENTS, event, f"{name}={here}, but DeepSpeed's configuration has {key}={number}")
            return
    whole, processes = _number(configuration, "train_batch_size"), code.launch.processes
    size, every = (
        default if name not in event.keywords else _known(code, event, name)
        for name, default in (("per_device_train_batch_size", 8), ("gradient_accumulation_steps", 1))
    )
    if whole is None or not processes or not code.launch.launched or event.opened:
        return
    if isinstance(size, int) and isinstance(every, int) and whole != size * every * processes:
        fits = f"{size} per device * {every} accumulated * {processes} processes is {size * every * processes}"
        yield at(ARGUMENTS, event, f"{fits}, but DeepSpeed's configuration has train_batch_size={whole}")


def _number(configuration: Mapping[str, Value], key: str) -> float | None:
    """Return a number in DeepSpeed's configuration; None for anything else, such as "auto"."""
    value = configuration.get(key)
    number = value.single() if value is not None else None
    return number if isinstance(number, int | float) and not isinstance(number, bool) else None


def _generations(code: ScriptFacts, event: Event) -> Iterator[Finding]:
    """Report a number of completions per prompt that does not divide a batch, as GRPO keeps those of a prompt together.

    Before trl 0.17 that is the batch of one backward pass, before 0.15 each prompt of a batch gets all of its own.
    """
    names = ("num_generations", "per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation")
    number, size, every, steps = (_known(code, event, name) for name in names)
    processes = code.launch.processes
    every = 1 if "gradient_accumulation_steps" not in event.keywords else every
    steps = every if "steps_per_generation" not in event.keywords else steps
    steps = 1 if before(code, "trl", "0.17.0") else steps
    own = "generation_batch_size" in event.keywords or code.imports("unsloth") is not None  # it changes the batch
    own = own or before(code, "trl", "0.15.0") is True
    if own or event.opened or not processes:
        return
    if not isinstance(number, int) or not isinstance(size, int) or not isinstance(steps, int):
        return
    if number > 0 and (size * processes * steps) % number:
        what = f"num_generations={number} does not divide {size} completions * {processes} processes"
        yield at(ARGUMENTS, event, f"{what} * {steps} steps" if steps > 1 else what)


# What a Trainer's evaluation adds itself: transformers, trainer.py, evaluate.
_OF_TRAINER = ("loss", "runtime", "samples_per_second", "steps_per_second")


def _together(code: ScriptFacts, trainer: Event, arguments: Event) -> Iterator[Finding]:
    """Check a trainer against its arguments."""
    stops = list(code.ran("EarlyStoppingCallback", live=True))
    if stops and "load_best_model_at_end" not in arguments.keywords:
        yield at(ARGUMENTS, stops[0], "EarlyStoppingCallback without load_best_model_at_end=True", "warning")
    metric = _known(code, arguments, "metric_for_best_model")
    best = _known(code, arguments, "load_best_model_at_end") is True
    compute = trainer.arg("compute_metrics")
    if best and isinstance(metric, str) and not trainer.opened:
        name = metric.removeprefix("eval_")
        given = arguments.keywords.get("greater_is_better")
        if (larger := metrics.keeps_worst(name, given)) is not None:
            what = f"metric_for_best_model={metric!r} with greater_is_better={larger}: the worst checkpoint is the best"
            yield at(ARGUMENTS, arguments, what, "warning")
        if compute is None and name != "loss":
            yield at(ARGUMENTS, arguments, f"metric_for_best_model={metric!r}, but the trainer has no compute_metrics")
        elif compute is not None and compute.code is not None and name not in _OF_TRAINER:
            names = metrics.names(code, compute.code)
            if names and name not in names:
                what = f"metric_for_best_model={metric!r}, but compute_metrics returns {', '.join(sorted(names))}"
                yield at(ARGUMENTS, arguments, what)
    steps = arguments.keywords.get("max_steps")
    streamed = [e for e in code.ran("load_dataset", live=True) if (v := e.arg("streaming")) and v.single() is True]
    data = trainer.arg("train_dataset", 3)
    if streamed and steps is None and data is not None and _from(data, [e.result for e in streamed]):
        yield at(ARGUMENTS, arguments, "the data are streamed, so they have no length, and max_steps is not given")


def _from(value: Value | None, made: list[Value]) -> bool:
    while value is not None:
        if any(value is each for each in made):
            return True
        value = value.of
    return False


def _resumes(code: ScriptFacts) -> Iterator[Finding]:
    for event in code.ran("train", live=True):
        if event.receiver is None or not event.receiver.made_by(*_TRAINERS):
            continue
        given = event.arg("resume_from_checkpoint", 0)
        if given is not None and given.single() is True and "flag" not in given.tags and not event.guards:
            what = "resume_from_checkpoint=True in a first run, whose folder has no checkpoint, is an error"
            yield at(ARGUMENTS, event, what)
        elif given is not None and (asked := _folder_is_there(code, given)) is not None:
            what = f"`{ast.unparse(asked.node)[:50]}` in line {asked.line} is true in a first run, too, whose folder"
            yield at(ARGUMENTS, event, f"{what} has no checkpoint, which is an error; ask get_last_checkpoint")
        elif (
            given is None
            and code.job is not None
            and code.job.spot
            and not event.opened
            and not code.mentions("get_last_checkpoint", "resume_from_checkpoint")
        ):
            what = "the job runs on spot instances, and train() starts anew after each interruption"
            yield at(NO_CHECKPOINT, event, f"{what}: resume_from_checkpoint is not given")


def _folder_is_there(code: ScriptFacts, given: Value) -> Event | None:
    """Return the question whether a folder exists that decides a value, if the script or the job has made the folder.

    SageMaker makes the folder of a job's checkpoints before the container starts.
    """
    asked = code.maker(given)
    if asked is None or asked.name not in ("os.path.isdir", "os.path.exists") or not asked.args:
        return None
    path = asked.args[0].single()
    made = [e for e in code.ran("makedirs", "mkdir", live=True) if e.order < asked.order and e.args and not e.guards]
    by_job = code.job is not None and code.job.checkpoint is not None and path == code.job.checkpoint.local_path
    return asked if by_job or any(e.args[0].single() == path for e in made if isinstance(path, str)) else None


def _counts(node: ast.AST, number: int) -> bool:
    """Return whether an expression may count accumulated steps: ``step % 4``, not ``step % 100``, nor a text."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mod) or isinstance(node.left, ast.Constant):
        return False
    if isinstance(node.right, ast.Constant):
        return node.right.value == number
    return not re.search("log|print|eval|save|report|interval|check|size|world", ast.unparse(node.right), re.I)


def _accumulates(code: ScriptFacts) -> Iterator[Finding]:
    for event in code.ran("Accelerator", live=True):
        steps = event.arg("gradient_accumulation_steps")
        number = steps.single() if steps is not None else ...
        if not isinstance(number, int) or number < 2 or not code.backwards or code.mentions("accumulate", "no_sync"):
            continue
        if not any(_counts(node, number) for module in code.modules for node in module.nodes):
            yield at(NO_ACCUMULATION, event, f"gradient_accumulation_steps={number} without accelerator.accumulate")
            return


# What reads a checkpoint, or is told to.
_READS = (
    r"load_(state|check|weight|model|from_check|snap|ckpt)|restor|resum|get_last_checkpoint|latest_checkpoint|"
    r"ckpt_path|initial_epoch"
)


def _loads(code: ScriptFacts) -> bool:
    """Return whether something loads what may be a checkpoint: not an array of NumPy, or settings."""
    return any(not call.name.startswith(("numpy.", "json.", "yaml.", "toml.")) for call in code.called("load"))


def _anew(code: ScriptFacts) -> Iterator[Finding]:
    """Report a job on spot instances whose script keeps checkpoints, and never reads one."""
    job = code.job
    if job is None or not job.spot or code.mentions_like(_READS) or code.says("resume|last.ckpt") or _loads(code):
        return
    kept = [s.event for s in saves(code) if "checkpoint" in roots(s.path, code.checkpoints) and not s.event.detached]
    if kept:
        what = "the job runs on spot instances and keeps checkpoints, but no file that was read loads one"
        yield at(NO_CHECKPOINT, kept[0], what)


def _padding(code: ScriptFacts) -> Iterator[Finding]:
    if code.mentions("pad_token", "pad_token_id", "add_special_tokens", "add_tokens"):
        return
    for event in code.ran("from_pretrained", live=True):
        name = event.arg("pretrained_model_name_or_path", 0)
        text = name.single() if name is not None else ...
        if "Tokenizer" not in event.name or not isinstance(text, str) or not WITHOUT_PAD.search(text):
            continue
        if "pad_token" in event.keywords:
            continue
        pads = [
            e
            for e in code.events
            if (v := e.arg("padding")) is not None and v.single() not in (False, "do_not_pad", ...)
        ]
        pads += code.ran("DataCollatorWithPadding", "DataCollatorForLanguageModeling", live=True)
        if pads:
            yield at(NO_PAD_TOKEN, pads[0], f"`{ast.unparse(pads[0].node)[:50]}` with the tokenizer of {text}")
            return


def _unpadded(code: ScriptFacts) -> Iterator[Finding]:
    """Report a Trainer that gets neither a collate function nor the tokenizer, which pads nothing itself."""
    texts = [c for c in code.calls if re.search(r"tokenizer$|^tok$", c.name) and c.given("truncation") is not None]
    if not texts or code.mentions_like(r"pad(?!_token)|group_texts|chunk|concat|pack|block_size"):
        return
    for event in code.ran("Trainer", "Seq2SeqTrainer", live=True):
        given = event.keywords.keys() & {"data_collator", "tokenizer", "processing_class"}
        if event.name.startswith("transformers.") and not (given or event.opened or len(event.args) > 2):
            what = f"`{ast.unparse(texts[0].node)[:50]}` in line {texts[0].line}"
            yield at(UNPADDED, event, f"the rows are as long as the texts: {what} has no padding")
            return


def _keys(code: ScriptFacts) -> Iterator[Finding]:
    """Report a service that needs a key, where neither the job nor the script has one."""
    job = code.job
    if job is None:
        return
    there = {*job.environment, *code.launch.environment}
    own_wandb = code.says("WANDB_|[wW]andb.*(key|KEY)") or code.mentions_like("wandb_?key|secret") or code.ran("login")
    own_token = code.mentions_like("hf_?token|hub_?token|secret") or code.ran("login", "save_token")
    for event in code.events:
        if event.detached or any(g.chosen or g.kind in ("flag", "clock", "other", "error") for g in event.guards):
            continue
        reports = event.arg("report_to")
        wandb = event.name == "wandb.init" and not _off(event.arg("mode")) and not _anonymous(event)
        wandb = wandb or (reports is not None and "flag" not in reports.tags and _names(reports, "wandb"))
        if wandb and not there & _WANDB and not own_wandb:
            yield at(NO_KEY, event, "Weights & Biases without WANDB_API_KEY in the job's environment")
            return
        pushes = event.keywords.get("push_to_hub")
        pushing = pushes is not None and pushes.single() is True and "flag" not in pushes.tags
        pushing = pushing or event.last == "push_to_hub"
        given = event.keywords.keys() & {"token", "hub_token", "use_auth_token"}
        if pushing and not there & _HUB and not given and not own_token:
            yield at(NO_KEY, event, "an upload to the Hugging Face hub without HF_TOKEN in the job's environment")
            return


_WANDB = {"WANDB_API_KEY", "WANDB_MODE", "WANDB_DISABLED", "WANDB_BASE_URL"}
_HUB = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN", "HUGGINGFACEHUB_API_TOKEN"}


_LOGGERS = ("wandb.init", "mlflow.start_run")


def _every_process(code: ScriptFacts) -> Iterator[Finding]:
    """Report a logger that each process makes for itself, as if it were the only one."""
    if not code.several or not code.launch.launched or code.managed or not code.cooperates:
        return
    for event in code.events:
        writer = event.last == "SummaryWriter" and "tensorboard" in event.name.lower()
        if event.detached or not (writer or event.name in _LOGGERS) or event.opened:
            continue
        given = (*event.args, *event.keywords.values())
        apart = any(v.tags & {"rank", "local_rank", "host_rank", "random", "only-one"} for v in (*given, event.result))
        grouped = event.keywords.keys() & {"group", "id"} or _off(event.arg("mode"))
        if not (apart or grouped or event.guards or "rank" in ast.unparse(event.node)):
            yield at(EVERY_PROCESS, event, f"`{ast.unparse(event.node)[:50]}`")
            return


def _off(mode: Value | None) -> bool:
    return mode is not None and mode.single() in ("offline", "disabled", ...)


def _anonymous(event: Event) -> bool:
    """Return whether a run may go without an account (Weights & Biases' documentation, anonymous mode)."""
    given = event.arg("anonymous")
    return given is not None and given.single() in ("allow", "must", "true", True)


def _names(value: Value, name: str) -> bool:
    return value.single() == name or any(item.single() == name for item in value.items or ())
