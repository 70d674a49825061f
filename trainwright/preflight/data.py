"""Data: the same shapes at every step, a part for each process, the same start on all of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.script_facts import ScriptFacts
from trainwright.preflight.syntax import Call, at

XLA_GUIDE = "AWS guide for the SageMaker Training Compiler, best practices"
PADDING = Rule(
    code="TW170",
    severity="warning",
    title="batches are padded to their longest sample, so every shape is compiled anew",
    source=f"{XLA_GUIDE}: padding to a fixed length",
    remedy='padding="max_length" with max_length=… and truncation=True',
)
NO_SAMPLER = Rule(
    code="TW171",
    severity="warning",
    title="several processes train, and each of them reads all of the data",
    source="PyTorch's documentation of torch.utils.data: DistributedSampler gives each process its part",
    remedy="DataLoader(…, sampler=DistributedSampler(dataset))",
)
NO_DEVICE_LOADER = Rule(
    code="TW172",
    severity="warning",
    title="torch_xla on several devices without MpDeviceLoader",
    source="AWS guide for the SageMaker Training Compiler: wrap the loader, which also marks the end of each step",
    remedy="loader = pl.MpDeviceLoader(loader, xm.xla_device())",
)
NO_SEED = Rule(
    code="TW173",
    severity="warning",
    title="several processes train, and no constant seed makes them start alike",
    source="AWS guide for distributed training scripts: the same seed on all workers",
    remedy="torch.manual_seed(args.seed) before the model is made.",
)
SAME_ORDER = Rule(
    code="TW174",
    severity="note",
    title="set_epoch is never called, so every epoch has the same order",
    source="PyTorch's documentation of DistributedSampler",
    remedy="sampler.set_epoch(epoch) at the beginning of each epoch.",
)
RULES = (PADDING, NO_SAMPLER, NO_DEVICE_LOADER, NO_SEED, SAME_ORDER)
SPLITS = (
    "split_dataset_by_node",
    "batch_sampler",
    "IterableDataset",
    "DistributedLengthGroupedSampler",
    "shard",
    "StatefulDataLoader",
    "WebLoader",
    "SubsetRandomSampler",
    "make_private",
)
SEEDS = (
    "manual_seed",
    "manual_seed_all",
    "seed_everything",
    "set_seed",
    "set_rng_state",
    "random_seed",
    "init_seeds",
    "init_random_seed",
    "set_random_seed",
)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """The rules of this family."""
    if code.xla:
        yield from _padding(code)
    if not code.distributed or code.managed or not code.cooperates:
        return
    training = bool(code.backwards)
    loaders = [c for c in code.called("DataLoader") if "torch" in c.name or c.name == "DataLoader"]
    if training and loaders:
        yield from _loaders(code, loaders)
    place = code.group or code.wraps or code.spawns or next(iter(code.backwards), None)
    seeded = code.mentions(*SEEDS) or code.mentions_like("seed_all|set_.*seed|seed_every|init_seed")
    # DistributedDataParallel sends the first process's parameters to all, so the start is alike without a seed.
    if training and place is not None and not seeded and code.wraps is None:
        yield at(NO_SEED, place, "nothing sets a seed")


def _padding(code: ScriptFacts) -> Iterator[Finding]:
    for call in code.calls:
        value = call.constant("padding")
        if (value == "longest" or value is True) and call.last not in ("pad_sequence",):
            yield at(PADDING, call, f"{call.last}(padding={value!r})")


def _splits(call: Call) -> bool:
    return (
        call.given("sampler") is not None
        or call.given("batch_sampler") is not None
        or any(k.arg is None for k in call.node.keywords)
    )


def _loaders(code: ScriptFacts, loaders: list[Call]) -> Iterator[Finding]:
    split = code.mentions_like(r"distributed.*sampler|sampler.*distributed|DistSampler|shard_?id|num_shards")
    split = split or code.mentions(*SPLITS) or any(_splits(loader) for loader in loaders)
    if not split and not _by_hand(code):
        yield at(NO_SAMPLER, loaders[0], "DataLoader without a DistributedSampler")
    if code.torch_xla and code.xla_distributed and not code.mentions("MpDeviceLoader", "ParallelLoader", "use_spmd"):
        yield at(NO_DEVICE_LOADER, loaders[0], "DataLoader without MpDeviceLoader")
    for call in code.called("DistributedSampler"):
        shuffled = call.constant("shuffle") is not False
        if shuffled and not code.mentions("set_epoch"):
            yield at(SAME_ORDER, call, "DistributedSampler without set_epoch")
            return


def _by_hand(code: ScriptFacts) -> bool:
    """Data divided without a sampler: an index, a file name or a seed made from the rank."""
    for module in code.modules:
        for node in module.nodes:
            if not isinstance(node, ast.Subscript | ast.JoinedStr | ast.BinOp):
                continue
            text = ast.unparse(node)
            if "rank" in text and isinstance(node, ast.Subscript) and ":" in text:
                return True
    return False
