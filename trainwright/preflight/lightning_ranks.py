"""Lightning: what each process does with its own data and its own values, unless the script says otherwise."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.data import SPLITS, divided_by_index
from trainwright.script.events import Event
from trainwright.script.known import LIGHTNING
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import IDENTITY, Value

NO_SAMPLER = Rule(
    code="TW510",
    severity="warning",
    title="Lightning adds no sampler, and the loader has none: every process trains on all of the data",
    source="Lightning's documentation of Trainer, use_distributed_sampler: by default it adds a DistributedSampler; "
    "with False, the script adds its own",
    remedy="Leave use_distributed_sampler out, or DataLoader(…, sampler=DistributedSampler(dataset)).",
)
OWN_RATE = Rule(
    code="TW511",
    severity="warning",
    title="each process lowers its learning rate by a value of its own share of the data",
    source="Lightning's documentation, distributed training, synchronize validation and test logging: without "
    "sync_dist=True a logged value is that of the process; horovod/horovod #1095",
    remedy='self.log("val_loss", loss, sync_dist=True), or a metric of torchmetrics; in a loop of your own, '
    "dist.all_reduce before scheduler.step.",
)
OF_FIRST = Rule(
    code="TW522",
    severity="error",
    title="a callback watches a metric that only the first process logs",
    source="Lightning's documentation of LightningModule.log, rank_zero_only: callbacks cannot monitor such a metric",
    remedy="Compute it in every process (self.all_gather, or torchmetrics), and log it without rank_zero_only.",
)
RULES = (NO_SAMPLER, OWN_RATE, OF_FIRST)
_SPLITS = [name for name in SPLITS if name != "batch_sampler"]
# What Lightning would have to replace: they draw from all of the data.
_PLAIN = ("RandomSampler", "SequentialSampler")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or code.imports(*LIGHTNING) is None:
        return
    yield from _all_of_the_data(code)
    if any(_several(code, e) for e in code.ran("Trainer", live=True) if e.name.startswith(LIGHTNING)):
        yield from _own_rates(code)
        yield from _of_first(code)


def _all_of_the_data(code: ScriptFacts) -> Iterator[Finding]:
    """Report a Trainer that is not to divide the data, where nothing else divides those it trains on."""
    if code.mentions(*_SPLITS) or divided_by_index(code):
        return
    for trainer in code.ran("Trainer", live=True):
        given = trainer.arg("use_distributed_sampler") or trainer.arg("replace_sampler_ddp")
        if not trainer.name.startswith(LIGHTNING) or given is None or not _several(code, trainer):
            continue
        if given.single() is not False or "flag" in given.tags:
            continue
        for fit in code.ran("fit", live=True):
            loader = _trained_on(code, fit) if fit.receiver is trainer.result else None
            if loader is not None and not _has_share(code, loader):
                what = f"`{ast.unparse(loader.node)[:50]}` has no DistributedSampler, and line {trainer.line} adds none"
                yield at(NO_SAMPLER, loader, what)
                return


def _several(code: ScriptFacts, trainer: Event) -> bool:
    """Return whether several processes train: the job starts them, or the Trainer does."""
    strategy, devices = trainer.arg("strategy"), trainer.arg("devices") or trainer.arg("gpus")
    if strategy is not None and strategy.single() == "dp":
        return False  # one process, several GPUs
    number = devices.single() if devices is not None else 1
    every = number in (-1, "-1", "auto") and (code.launch.gpus or 1) > 1
    return code.several or every or (isinstance(number, int) and number > 1)


def _trained_on(code: ScriptFacts, fit: Event) -> Event | None:
    """Return the call that made the loader for training; None if that cannot be seen."""
    given = fit.arg("train_dataloaders", 1) or fit.arg("train_dataloader")
    values = [given, *(given.items or ()), *(given.attrs or {}).values()] if given is not None else []
    loaders = [e for e in code.ran("DataLoader") if e.name.startswith("torch.")]
    found = [e for e in loaders if any(e.result is value for value in values)]
    module = fit.arg("datamodule") or given or (fit.args[0] if fit.args else None)
    owner = module.code if module is not None and module.instance else None
    found += [e for e in loaders if any(c.name == "train_dataloader" and c.owner is owner for c in e.stack if owner)]
    return found[0] if found else None


def _has_share(code: ScriptFacts, loader: Event) -> bool:
    """Return whether a loader gives each process its own part of the data, or that cannot be seen."""
    sampler, batches, data = loader.arg("sampler", 3), loader.arg("batch_sampler", 4), loader.arg("dataset", 0)
    if loader.opened or data is None or any(map(_chooses, (sampler, batches))):
        return True
    maker = code.maker(data)
    given = (*maker.args, *maker.keywords.values()) if maker is not None else ()
    if any(value.tags & (IDENTITY | {"sharded", "world"}) for value in (data, *given)):
        return True
    if any("Iterable" in made or "WebDataset" in made for made in data.made):
        return True
    shuffle = loader.arg("shuffle", 2)
    if shuffle is not None and shuffle.single() is True and not data.made and data.code is None:
        return False  # a stream cannot be shuffled by its loader
    return not data.made or (data.code is not None and _asks(code, data))


def _chooses(sampler: Value | None) -> bool:
    """Return whether a sampler decides which samples a process gets, or is not known."""
    if sampler is None or sampler.single() is None:
        return False
    inner = sampler.of if sampler.made_by("BatchSampler") else sampler
    return inner is None or not inner.made_by(*_PLAIN)


def _asks(code: ScriptFacts, data: Value) -> bool:
    """Return whether a method of a data set asks which process this is, or how many there are."""
    inside = [e for e in code.events if any(c.owner is data.code for c in e.stack)]
    return any(
        e.role in ("rank", "world") or any(value.tags & (IDENTITY | {"world"}) for value in e.args) for e in inside
    )


def _own_rates(code: ScriptFacts) -> Iterator[Finding]:
    """Report a ReduceLROnPlateau whose monitored value is logged as each process has computed it."""
    if code.mentions_like("all_gather|all_reduce|reduce_(?!lr|on|rate)"):
        return
    for plateau in code.ran("ReduceLROnPlateau"):
        function = plateau.stack[-1] if plateau.stack else None
        if function is None or function.name != "configure_optimizers" or not plateau.name.startswith("torch."):
            continue
        for monitor in _monitors(code.returned(function), plateau.result):
            name = re.sub("_(step|epoch)$", "", str(monitor.single()))
            logs = [e for e in code.ran("log", "log_dict") if (value := _logged(e, name)) is not None and _own(value)]
            if logs and not any(map(_synced, logs)):
                what = f"line {logs[0].line}, `{ast.unparse(logs[0].node)[:50]}`, is without sync_dist=True"
                yield at(OWN_RATE, plateau, f"monitor={monitor.single()!r}: {what}")
                return


def _of_first(code: ScriptFacts) -> Iterator[Finding]:
    """Report a callback for a metric that one process alone logs: the others have none, and stop or wait."""
    for log in code.ran("log"):
        alone, name = log.arg("rank_zero_only"), log.arg("name", 0)
        if alone is None or alone.single() is not True or name is None or _logged(log, str(name.single())) is None:
            continue
        for callback in code.ran("EarlyStopping", "ModelCheckpoint", live=True):
            monitor = callback.arg("monitor", 0 if callback.last == "EarlyStopping" else 2)
            if callback.name.startswith(LIGHTNING) and monitor is not None and monitor.single() == name.single():
                what = f"`{ast.unparse(callback.node)[:50]}` watches it in every process, in line {callback.line}"
                yield at(OF_FIRST, log, f"{name.single()!r} is logged with rank_zero_only: {what}")
                return


def _logged(event: Event, name: str) -> Value | None:
    """Return the value that a method of a LightningModule logs by a name; None if it does not."""
    owner = event.receiver.code if event.receiver is not None else None
    if owner is None or not any(_is_module(origin) for origin in owner.origins()):
        return None
    first = event.arg("dictionary" if event.last == "log_dict" else "name", 0)
    if event.last == "log_dict" or first is None:
        return (first.attrs or {}).get(name) if first is not None else None
    return event.arg("value", 1) if first.single() == name else None


def _own(value: Value) -> bool:
    """Return whether a value is computed from a model's output, and not by a metric that joins the processes."""
    metric = any(made.startswith("torchmetrics.") and ".functional." not in made for made in value.made)
    return "out" in value.tags and not metric


def _synced(event: Event) -> bool:
    """Return whether a logged value is reduced over the processes, or that cannot be seen."""
    synced = event.arg("sync_dist")
    return event.opened or (synced is not None and (synced.single() is not False or "flag" in synced.tags))


def _is_module(name: str) -> bool:
    return name.startswith(LIGHTNING) and name.endswith("LightningModule")


def _monitors(value: Value | None, plateau: Value, depth: int = 3) -> Iterator[Value]:
    """Yield the names by which a scheduler is stepped, of what configure_optimizers returns."""
    if value is None or value.code is not None or not depth:
        return
    attrs = value.attrs or {}
    if "monitor" in attrs and any(attrs.get(key) is plateau for key in ("scheduler", "lr_scheduler")):
        yield attrs["monitor"]
    for inner in (*attrs.values(), *(value.items or ())):
        yield from _monitors(inner, plateau, depth - 1)
