"""Loaders and samplers: what their arguments exclude, whose epoch is set, and what worker processes cannot do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.data import (
    SAME_ORDER,
    SAMPLER_DOCS,
    SHUFFLED_TWICE,
    WRONG_SHARE,
    divided_model,
    for_training,
    of_all_processes,
)
from trainwright.script.events import Event
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, meant
from trainwright.script.values import Value

IN_WORKERS = Rule(
    code="TW486",
    severity="error",
    title="worker processes of a DataLoader use CUDA",
    source=f"{SAMPLER_DOCS}, multi-process data loading: it is not recommended to return CUDA tensors; torch/cuda: "
    '"Cannot re-initialize CUDA in forked subprocess"',
    remedy="Return tensors in main memory, pin_memory=True, and move each batch in the training loop.",
)
GLOBAL_BATCH = Rule(
    code="TW487",
    severity="warning",
    title="the batch of each process is multiplied by the number of processes",
    source=f"{SAMPLER_DOCS} and of DistributedDataParallel: batch_size is that of one process, and the global batch is "
    "as many times larger as there are processes",
    remedy="DataLoader(…, batch_size=global_batch // world_size)",
)
TWICE_SHARED = Rule(
    code="TW488",
    severity="error",
    title="data are divided among the processes twice, so most of them are never read",
    source="transformers, trainer.py, and Accelerate's guide: the Trainer and prepare() give each process its share",
    remedy="Give the whole data set to the Trainer.",
)
REPEATED = Rule(
    code="TW501",
    severity="warning",
    title="each worker process of a DataLoader yields the whole stream",
    source=f"{SAMPLER_DOCS}, IterableDataset: each worker has its own copy of the data set, so get_worker_info() or a "
    "worker_init_fn has to configure the copies differently",
    remedy="info = get_worker_info(); take every info.num_workers-th file or row, from info.id on.",
)
REPLAYED = Rule(
    code="TW550",
    severity="warning",
    title="itertools.cycle keeps the batches of the first pass in memory, and repeats them",
    source="Python's documentation of itertools.cycle: it saves a copy of each element; pytorch/pytorch#23900, "
    "microsoft/nni#3428: the memory grows, and the data are neither shuffled nor transformed again",
    remedy="A generator that begins anew: while True: sampler.set_epoch(epoch); yield from loader; epoch += 1",
)
RULES = (IN_WORKERS, GLOBAL_BATCH, TWICE_SHARED, REPEATED, REPLAYED)
# They need worker processes (torch/utils/data/dataloader.py).
_OF_WORKERS = ("prefetch_factor", "persistent_workers")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or code.tensorflow:
        return
    loaders = [e for e in code.ran("DataLoader") if e.name.startswith("torch.")]
    for event in loaders:
        workers = event.arg("num_workers", 5)
        none = (workers is None and not event.opened) or (workers is not None and _zero(workers))
        wrong = [name for name in _OF_WORKERS if none and _set(event.arg(name))]
        if wrong:
            yield _at(SHUFFLED_TWICE, event, f"{wrong[0]} without num_workers: ValueError")
            break
    yield from _cuda(code, loaders)
    yield from _repeated(loaders)
    yield from _replayed(code)
    if code.several:
        yield from _samplers(code)
        yield from _batches(loaders)
        yield from _twice(code)


def _at(rule: Rule, event: Event, message: str, severity: Severity | None = None) -> Finding:
    return at(rule, event, f"`{ast.unparse(event.node)[:60]}`: {message}", severity=severity)


def _zero(value: Value) -> bool:
    return value.single() == 0 and "flag" not in value.tags


def _set(value: Value | None) -> bool:
    known = value.single() if value is not None else None
    return value is not None and "flag" not in value.tags and known is not ... and bool(known)


def _samplers(code: ScriptFacts) -> Iterator[Finding]:
    """Report samplers whose order is not the same in all processes, or whose share is that of a host."""
    layers = [e for e in code.ran("parallelize_module", live=True) if e.name.startswith("torch.distributed.tensor")]
    for event in code.ran("DistributedSampler", live=True):
        seed, count, rank = event.arg("seed", 4), event.arg("num_replicas", 1), event.arg("rank", 2)
        what = ""
        if seed is not None and seed.tags & {"rank", "local_rank"}:
            what = "each process shuffles with another seed, so their shares overlap"
        elif _of_group(count) and rank is not None and rank.tags & {"rank", "local_rank"} and divided_model(code):
            what = "num_replicas counts the data-parallel groups, and the rank is that of all processes"
        elif rank is not None and "host_rank" in rank.tags and "rank" not in rank.tags and _by_host(code, event):
            what = "the rank of the host: the same share for all processes of a host"
        if what:
            yield _at(WRONG_SHARE, event, what)
            return
        if layers and (count is None or of_all_processes(count, code.launch.processes)):
            what = f"`{ast.unparse(event.node)[:60]}`: the processes that share a layer need the same samples"
            remedy = 'DistributedSampler(dataset, mesh["dp"].size(), mesh["dp"].get_local_rank())'
            yield at(WRONG_SHARE, event, what, remedy=remedy)
            return
    yield from _same_draws(code)
    yield from _divided_channel(code)
    yield from _of_batches(code)
    loader = code.training_loader()
    mine = loader.arg("sampler", 3) if loader is not None else None
    epochs = [e.receiver for e in code.ran("set_epoch", live=True)]
    shuffled = mine is not None and mine.made == {"torch.utils.data.distributed.DistributedSampler"}
    shuffled = shuffled or (mine is not None and mine.made_by("DistributedSampler") and len(mine.made) == 1)
    makers = [code.maker(value) if value is not None else None for value in epochs]
    own = code.maker(mine) if mine is not None else None
    if shuffled and own is not None and makers and all(e is not None and e.last == own.last for e in makers):
        mixed = any(e is not None and e.node is own.node for e in makers)
        if not mixed:
            number = code.ran("set_epoch", live=True)[0]
            yield at(SAME_ORDER, number, f"`{ast.unparse(number.node)[:50]}`: another sampler")
    order = own.arg("shuffle", 3) if own is not None else None
    mixes = shuffled and not code.managed and (order is None or order.single() is not False)
    told = code.ran("set_epoch", live=True) if mixes and loader is not None else []
    data = loader.arg("dataset", 0) if loader is not None else None
    if told and all(e.receiver is data or ast.unparse(e.node.func).endswith(".dataset.set_epoch") for e in told):
        what = f"`{told[0].text}` is of the data set; the sampler keeps the order of its first epoch"
        yield at(SAME_ORDER, told[0], what, severity="warning")


def _of_batches(code: ScriptFacts) -> Iterator[Finding]:
    """Report set_epoch of ``loader.sampler`` where the sampler that divides the data is inside of a batch_sampler.

    Such a loader's ``sampler`` is a SequentialSampler (torch/utils/data/dataloader.py), which has no set_epoch.
    """
    numbers = code.ran("set_epoch", live=True)
    for event in numbers:
        loader = event.receiver.of if event.receiver is not None else None
        made = code.maker(loader) if loader is not None else None
        batches = made.arg("batch_sampler", 4) if made is not None and made.last == "DataLoader" else None
        if batches is None or not batches.part_of("DistributedSampler") or len(numbers) > 1:
            continue
        if ast.unparse(event.node.func).endswith(".sampler.set_epoch"):
            what = f"`{event.text}`: with batch_sampler, it is another sampler, which has no set_epoch"
            remedy = "loader.batch_sampler.sampler.set_epoch(epoch), which is that of the BatchSampler"
            yield at(SAME_ORDER, event, what, severity="warning" if event.guards else "error", remedy=remedy)


def _same_draws(code: ScriptFacts) -> Iterator[Finding]:
    """Report a sampler that draws by chance, with a generator that all processes seed alike."""
    if code.imports("accelerate") is not None:
        return  # each process takes its share of the same draws (accelerate/data_loader.py, BatchSamplerShard)
    for event in code.ran("WeightedRandomSampler", "RandomSampler", live=True):
        generator = event.arg("generator", 3 if event.last == "WeightedRandomSampler" else 4)
        seeds = [e for e in code.ran("manual_seed", live=True) if generator is not None and e.result is generator]
        own = any(value.tags & {"rank", "local_rank"} for e in code.ran("manual_seed") for value in e.args)
        if seeds and not own and event.name.startswith("torch.") and not code.mentions("DistributedSamplerWrapper"):
            what = f"`{ast.unparse(event.node)[:60]}`: each process draws the same samples, as its seed is the same"
            remedy = "torch.Generator().manual_seed(seed + dist.get_rank())"
            yield at(WRONG_SHARE, event, what, remedy=remedy)
            return


def _divided_channel(code: ScriptFacts) -> Iterator[Finding]:
    """Report a DistributedSampler over all processes where each host has a share of the files already."""
    if code.job is None or not code.job.host_has_its_own_files or not code.several_hosts:
        return
    for event in code.ran("DistributedSampler", live=True):
        count = event.arg("num_replicas", 1)
        if count is None or ("world" in count.tags and "gpus" not in count.tags):
            what = f"`{ast.unparse(event.node)[:60]}`: the channels are ShardedByS3Key, so it reads a part of a part"
            remedy = (
                "num_replicas and rank of the host's own processes (LOCAL_WORLD_SIZE, LOCAL_RANK), or FullyReplicated."
            )
            yield at(WRONG_SHARE, event, what, remedy=remedy)
            return


def _of_group(count: Value | None) -> bool:
    return count is not None and "dp_size" in count.tags


def _by_host(code: ScriptFacts, event: Event) -> bool:
    """Return whether a share is that of a host, in a job with several processes on each."""
    return code.several_per_host and bool(re.search("host|node", ast.unparse(event.node), re.I))


def _batches(loaders: list[Event]) -> Iterator[Finding]:
    for event in loaders:
        size = event.arg("batch_size", 1)
        node = next((k.value for k in event.node.keywords if k.arg == "batch_size"), None)
        node = node or (event.node.args[1] if len(event.node.args) > 1 else None)
        if size is None or not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
            continue
        divided = event.arg("sampler", 3)
        if "world" in size.tags and divided is not None and divided.made_by("DistributedSampler"):
            yield _at(GLOBAL_BATCH, event, "every process takes the batch of all of them")
            return


def _cuda(code: ScriptFacts, loaders: list[Event]) -> Iterator[Finding]:
    """Report what moves tensors to a GPU in a data set's items or in a collate function, with workers that fork."""
    if code.mentions("set_start_method", "multiprocessing_context", "get_context") or code.launch.gpus == 0:
        return
    for event in loaders:
        workers, data = event.arg("num_workers", 5), event.arg("dataset", 0)
        number = workers.single() if workers is not None else 0
        if not isinstance(number, int) or number <= 0 or data is None:
            continue
        codes = [data.code.method("__getitem__") if data.code is not None and data.instance else None]
        collate = event.arg("collate_fn", 6)
        codes.append(collate.code if collate is not None else None)
        transforms = [e for e in code.ran("Lambda", live=True) if e.node.args]
        bodies: list[tuple[Module, ast.AST]] = [
            (e.module, e.node.args[0]) for e in transforms if isinstance(e.node.args[0], ast.Lambda)
        ]
        bodies += [(each.module, each.node) for each in codes if each is not None]
        for module, body in bodies:
            for node in ast.walk(body):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _to_gpu(node, module):
                    what = f"`{ast.unparse(node)[:50]}` runs in the {number} workers of line {event.line}"
                    yield at(IN_WORKERS, (module, node), what)
                    return
        made = code.maker(data)
        tensors = made.node.args if made is not None and made.last == "TensorDataset" else []
        if made is not None and tensors and all(isinstance(n, ast.Call) and _to_gpu(n, made.module) for n in tensors):
            yield _at(IN_WORKERS, made, f"its tensors are on a GPU, and line {event.line} has {number} workers")
            return


def _to_gpu(node: ast.Call, module: Module) -> bool:
    assert isinstance(node.func, ast.Attribute)
    if node.func.attr == "cuda" and not ast.unparse(node.func.value).startswith("torch"):
        return True
    given = (*node.args, *(k.value for k in node.keywords))
    text = " ".join(ast.unparse(meant(module, each)) for each in given)
    return node.func.attr == "to" and bool(re.search(r"""^['"]cuda|^torch\.device\(['"]cuda""", text))


# Shuffling divides nothing: each worker still reads to the end.
_BY_CHANCE = re.compile(r"worker|sampl|permut|choice|randint|rand\(|\brandom\(\)|while True|islice", re.I)


def _repeated(loaders: list[Event]) -> Iterator[Finding]:
    """Report a stream of the script's own that its workers do not divide: neither by their number nor by chance."""
    for event in loaders:
        workers, data = event.arg("num_workers", 5), event.arg("dataset", 0)
        number = workers.single() if workers is not None and "flag" not in workers.tags else 0
        node = data.code.node if data is not None and data.instance and data.code is not None else None
        if not isinstance(node, ast.ClassDef) or not isinstance(number, int) or number < 2 or event.opened:
            continue
        stream = any(ast.unparse(base).endswith("IterableDataset") for base in node.bases)
        if stream and event.arg("worker_init_fn") is None and not _BY_CHANCE.search(ast.unparse(node)):
            yield _at(REPEATED, event, f"each sample comes {number} times")
            return


def _replayed(code: ScriptFacts) -> Iterator[Finding]:
    """Report a loader that is read once for all epochs; a cycle that is made anew in each of them is short."""
    for event in code.ran("cycle"):
        loader = code.loader_of(event.args[0]) if event.name == "itertools.cycle" and event.args else None
        if loader is None:
            continue
        listed = isinstance(event.node.args[0], ast.Call) and ast.unparse(event.node.args[0].func) == "list"
        if not (listed or event.loops) and code.backwards and for_training(loader):
            yield _at(REPLAYED, event, "the loader is read once, so neither its order nor its transforms change")
            return


def _twice(code: ScriptFacts) -> Iterator[Finding]:
    """Report a share of the data that goes to a Trainer, which divides what it gets."""
    for event in code.ran("Trainer", "Seq2SeqTrainer", "SFTTrainer", live=True):
        data = event.arg("train_dataset", 3)
        if not event.name.startswith(("transformers.", "trl.")) or data is None or event.opened:
            continue
        for share in code.ran("shard", live=True):
            index = share.arg("index", 1)
            own = index is not None and index.tags & {"rank", "process_index"} and "world" in _count(share).tags
            if own and share.order < event.order and (share.result is data or _made_of(data, share.result)):
                yield _at(TWICE_SHARED, share, f"{event.last} in line {event.line} divides the rest again")
                return


def _count(share: Event) -> Value:
    return share.arg("num_shards", 0) or Value()


def _made_of(value: Value, origin: Value) -> bool:
    inner: Value | None = value
    while inner is not None and inner is not origin:
        inner = inner.of
    return inner is origin
