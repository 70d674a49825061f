"""Data: the same shapes at every step, a share for each process, and a common seed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.smp import of_prescaled_batch
from trainwright.preflight.streams import every_process_reads_all, of_process
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, enclosing_loop
from trainwright.script.values import Value

XLA_GUIDE = "AWS guide for the SageMaker Training Compiler, best practices"
SAMPLER_DOCS = "PyTorch's documentation of torch.utils.data"
PADDING = Rule(
    code="TW170",
    severity="warning",
    title="batches are padded to their longest sample, so every new shape is compiled",
    source=f"{XLA_GUIDE}: padding to a fixed length",
    remedy='Use padding="max_length" with max_length=… and truncation=True.',
)
NO_SAMPLER = Rule(
    code="TW171",
    severity="warning",
    title="several processes train, and each reads all of the data",
    source=f"{SAMPLER_DOCS}: DistributedSampler gives each process its share; huggingface/datasets #5360: a stream "
    "that only worker processes divide",
    remedy="DataLoader(…, sampler=DistributedSampler(dataset)); an IterableDataset must divide its own stream.",
)
NO_SEED = Rule(
    code="TW173",
    severity="warning",
    title="several processes train without a common seed",
    source="AWS guide for distributed training scripts: the same seed on all workers",
    remedy="Call torch.manual_seed(args.seed) before the model is created.",
)
SAME_ORDER = Rule(
    code="TW174",
    severity="note",
    title="set_epoch is never called, so every epoch uses the same order",
    source="PyTorch's documentation of DistributedSampler",
    remedy="Call sampler.set_epoch(epoch) at the start of each epoch.",
)
WRONG_SHARE = Rule(
    code="TW175",
    severity="error",
    title="the sampler divides the data by the wrong number of processes, or by the wrong rank",
    source="PyTorch's documentation of DistributedSampler: num_replicas and rank count the processes of the whole job",
    remedy="DistributedSampler(dataset): it takes both from the process group.",
)
SHUFFLED_TWICE = Rule(
    code="TW176",
    severity="error",
    title="a DataLoader has a sampler and shuffle=True, or a batch_sampler and what it decides",
    source=f"{SAMPLER_DOCS}: sampler and shuffle exclude each other; DataLoader raises ValueError",
    remedy="Remove shuffle=True; DistributedSampler shuffles.",
)
LAST_BATCH = Rule(
    code="TW177",
    severity="warning",
    title="the last batch is smaller than the others",
    source=f"{XLA_GUIDE}: every new shape is compiled; AWS guide for model-parallel training scripts: the batch is "
    "split into microbatches of one size",
    remedy="DataLoader(…, drop_last=True); dataset.batch(size, drop_remainder=True)",
)
RULES = (
    PADDING,
    NO_SAMPLER,
    NO_SEED,
    SAME_ORDER,
    WRONG_SHARE,
    SHUFFLED_TWICE,
    LAST_BATCH,
)
_MULTIPLE = re.compile(r"// ([\w.]+) \* \1$|^([\w.]+) \* \([\w.()]+ // \2\)$|^(\S+) -=? \3 % ")
SPLITS = (
    "split_dataset_by_node",
    "batch_sampler",
    "DistributedLengthGroupedSampler",
    "StatefulDataLoader",
    "WebLoader",
    "SubsetRandomSampler",
    "make_private",
    "random_split_by_rank",
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
    """Check the rules of this family."""
    loaders = [e for e in code.ran("DataLoader") if "torch" in e.name or e.name.startswith("?")]
    if code.xla:
        yield from _padding(code)
        yield from _collated(loaders)
        yield from _shuffled(loaders)
        yield from _last_batch(code, loaders, "every new shape is compiled")
    else:
        yield from _shuffled(loaders)
    if code.imports("smdistributed.modelparallel.torch") is not None and not cuts(code):
        yield from _last_batch(code, loaders, "SMP splits each batch into microbatches")
    yield from _shares(code)
    if not code.distributed or code.managed or not code.cooperates or not code.several:
        return
    if not code.backwards:
        return
    yield from _loaders(code, loaders)
    seeded = code.mentions(*SEEDS) or code.mentions_like("seed_all|set_.*seed|seed_every|init_seed|^seed$")
    # DistributedDataParallel and Horovod send the first process's parameters to all: they start alike without a seed.
    alike = code.wraps is not None or code.horovod or code.mentions("broadcast_parameters", "broadcast")
    alike = alike or _loaded(code)
    if not seeded and not alike:
        yield at(NO_SEED, code.group or code.spawns or code.backwards[0], "nothing sets a seed")


def _padding(code: ScriptFacts) -> Iterator[Finding]:
    for event in code.events:
        padding = event.arg("padding")
        value = padding.single() if padding is not None else None
        fixed = event.arg("pad_to_multiple_of") is not None
        if (value == "longest" or value is True) and not fixed:
            yield at(PADDING, event, f"{event.last}(padding={value!r})")
        elif event.last in ("DataCollatorWithPadding", "DataCollatorForSeq2Seq", "DataCollatorForTokenClassification"):
            if padding is None and not fixed:
                yield at(PADDING, event, f"{event.last} pads each batch to its longest sample")
        elif padding is None and _tokenizes(event):
            yield at(PADDING, event, f"`{ast.unparse(event.node)[:60]}` without padding=")


def _collated(loaders: list[Event]) -> Iterator[Finding]:
    """Report a loader whose collate function pads each batch to its own longest sample."""
    for event in loaders:
        collate = event.arg("collate_fn", 6)
        text = ast.unparse(collate.code.node) if collate is not None and collate.code is not None else ""
        if _TO_LONGEST.search(text) and not _TO_LENGTH.search(text) and for_training(event):
            yield at(PADDING, event, "the loader's collate_fn pads each batch to its longest sample")
            return


_TO_LONGEST = re.compile(
    r"\bpad_sequence\(|\bmax\(\[?\(?len\(|\bmax\(\w+\.(size|shape|numel)|\bmax\(map\(len|\bmax\(lengths?\)"
)
_TO_LENGTH = re.compile("max_?len|max_seq|seq_?len|max_?size|bucket|multiple|block_size|ceil|//", re.I)


def _tokenizes(event: Event) -> bool:
    """Return whether a call tokenizes texts for training: truncated, but not padded."""
    named = "tokeniz" in ast.unparse(event.node.func).lower()
    return named and event.arg("truncation") is not None and event.last != "from_pretrained"


def for_training(event: Event) -> bool:
    """Return whether a loader is not clearly one for evaluation."""
    names = (ast.unparse(event.node), *(code.name for code in event.stack))
    return not any(_HELD_OUT.search(name) for name in names)


_HELD_OUT = re.compile("test|val|dev(?!ice)", re.I)


def _last_batch(code: ScriptFacts, loaders: list[Event], why: str) -> Iterator[Finding]:
    for event in () if _skips(code) else loaders:
        last = event.arg("drop_last")
        off = last is None or (last.single() is False and last.sure)
        if event.opened or not off or event.arg("batch_sampler") is not None:
            continue
        if for_training(event) and not event.detached:
            yield at(LAST_BATCH, event, f"DataLoader without drop_last=True: {why}")
            return


_OF_BATCH = r"(len\([^()]+\)|\.size\((dim=)?0\)|\.shape\[0\])"
_IS_SHORT = re.compile(rf"{_OF_BATCH} (%|!=|<) ")
_IS_WHOLE = re.compile(rf"{_OF_BATCH} (% [\w.]+ )?== ")


def _skips(code: ScriptFacts) -> bool:
    """Return whether the script leaves out a short batch by hand: ``if len(x) % parts: continue``."""
    for module in code.modules:
        for node in (n for n in module.nodes if isinstance(n, ast.If)):
            loop = enclosing_loop(module, node)
            if not isinstance(loop, ast.For) or code.loader(loop) is None:
                continue
            test, given = ast.unparse(node.test), {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
            left = isinstance(node.body[-1], ast.Continue | ast.Break) and _IS_SHORT.search(test)
            if (left or _IS_WHOLE.search(test)) and any(re.search(rf"\b{name}\b", test) for name in given):
                return True
    return False


def cuts(code: ScriptFacts) -> bool:
    """Return whether the script trims its batches to a multiple of another number, `size // parts * parts`."""
    nodes = (n for m in code.modules for n in m.nodes if isinstance(n, ast.BinOp | ast.AugAssign))
    return any(_MULTIPLE.search(ast.unparse(node)) for node in nodes)


def _shuffled(loaders: list[Event]) -> Iterator[Finding]:
    for event in loaders:
        sampler, shuffle = event.arg("sampler", 3), event.arg("shuffle", 2)
        batches = event.arg("batch_sampler", 4)
        beside = [name for name in ("batch_size", "shuffle", "sampler", "drop_last") if name in event.keywords]
        if batches is not None and "sampler" in batches.tags and batches.single() is not None and not event.opened:
            size = event.keywords.get("batch_size")
            beside = [name for name in beside if name != "batch_size" or (size is not None and size.single() != 1)]
            # False and None are the defaults, which DataLoader takes for not given.
            beside = [name for name in beside if event.keywords[name].single() not in (False, None)]
            if beside:
                yield at(SHUFFLED_TWICE, event, f"batch_sampler together with {beside[0]}")
                continue
        if sampler is None or shuffle is None or shuffle.single() is not True or "flag" in shuffle.tags:
            continue
        if "sampler" in sampler.tags and not {"maybe-none", "sometimes"} & (sampler.tags | shuffle.tags):
            yield at(SHUFFLED_TWICE, event, f"`{ast.unparse(event.node)[:60]}`: the sampler shuffles")


def _loaded(code: ScriptFacts) -> bool:
    """Return whether every process loads all its weights: a classifier's head would be new, and drawn by each."""
    classes = {event.name.rpartition(".")[0].rpartition(".")[2] for event in code.ran("from_pretrained")}
    models = {name for name in classes if "Model" in name}
    whole = {"AutoModel", "AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForSeq2SeqLM"}
    return bool(models) and models <= whole and not code.mentions("from_config", "Linear", "Sequential", "LoraConfig")


def _of_count(event: Event) -> bool:
    """Return whether the rank is ``rank % half`` of ``half`` shares: several processes read one share on purpose."""
    given = {k.arg: k.value for k in event.node.keywords}
    rank, count = given.get("rank"), given.get("num_replicas")
    if not isinstance(rank, ast.BinOp) or not isinstance(rank.op, ast.Mod) or count is None:
        return False
    return ast.unparse(rank.right) == ast.unparse(count)


def _shares(code: ScriptFacts) -> Iterator[Finding]:
    for event in code.ran("DistributedSampler"):
        count, rank = event.arg("num_replicas", 1), event.arg("rank", 2)
        if (wrong := of_prescaled_batch(code, count, rank)) is not None and not event.detached:
            yield at(WRONG_SHARE, event, wrong[0], wrong[1], remedy=wrong[2])
            return
        what = of_partitions(code, count, rank)
        fits = _of_count(event) or (code.job is not None and code.job.host_has_its_own_files)
        if not what and code.several_hosts and not fits:
            if rank is not None and "local_rank" in rank.tags and "rank" not in rank.tags:
                what = "the local rank: the same share on every host"
            elif count is not None and "gpus" in count.tags and "world" not in count.tags:
                # not hosts * gpus
                what = "the GPUs of one host as num_replicas" if count.single() in (..., code.launch.gpus) else ""
        grouped = rank is not None and "dp_rank" in rank.tags  # ranks of groups, not of processes
        if not (what or grouped) and code.several and code.launch.processes is not None and count is not None:
            number = count.single()
            if isinstance(number, int) and count.sure and 0 < number != code.launch.processes and not count.tags:
                what = f"num_replicas={number}, but the job has {code.launch.processes} processes"
        asks = (count is None or rank is None) and event.name.startswith("torch.")
        none = code.several and code.group is None and not any(code.roles("group"))
        if asks and none and (code.horovod or (code.torch_xla and not code.managed)):
            instead = "hvd.size(), hvd.rank()" if code.horovod else "xm.xrt_world_size(), xm.get_ordinal()"
            what = f"DistributedSampler asks torch.distributed, which has no group here: pass {instead}"
        elif not what and (count is None or of_all_processes(count, code.launch.processes)) and _tensor_parallel(code):
            what = "the ranks of one tensor-parallel group need the same data: pass tsm.state.dp_size and dp_rank"
        whole = count is not None and count.single() == 1  # one share: all of the data, as for an evaluation
        fixed = rank is not None and isinstance(rank.single(), int) and not rank.tags and not whole
        if not what and code.several and rank is not None and fixed:
            what = f"rank={rank.single()} in every process"
        if what:
            yield at(WRONG_SHARE, event, what)
            return


def of_partitions(code: ScriptFacts, count: Value | None, rank: Value | None) -> str:
    """Return what is wrong with a share that SMP's partitions of one model do not have in common."""
    if code.imports("smdistributed.modelparallel") is None:
        return ""
    if any(v is not None and v.tags & {"world", "rank"} for v in (count, rank)):
        partitioned = code.job is None or code.job.model_parallel
        if partitioned and not (count is not None and "dp_size" in count.tags):
            return "smp.size() and smp.rank() count the partitions of one model, too; use dp_size() and dp_rank()"
    elif count is None and rank is None and divided_model(code):
        return "without a rank it counts the partitions of one model, too; pass smp.dp_size() and smp.dp_rank()"
    return ""


def divided_model(code: ScriptFacts) -> bool:
    """Return whether SMP divides one model over several processes in this job."""
    names = ("pipeline_parallel_degree", "tensor_parallel_degree", "partitions")
    degrees = [code.job.smp_parameters.get(name, 1) for name in names] if code.job is not None else []
    return any(isinstance(degree, int) and degree > 1 for degree in degrees)


def of_all_processes(count: Value, processes: int | None) -> bool:
    """Return whether a number is that of all processes, not of groups of them."""
    number = count.single()
    return "world" in count.tags and "part" not in count.tags and (number is ... or number == processes)


def _tensor_parallel(code: ScriptFacts) -> bool:
    """Return whether SMP v2 splits layers over several processes in this job."""
    degree = code.job.smp_parameters.get("tensor_parallel_degree", 1) if code.job is not None else 1
    return isinstance(degree, int) and degree > 1 and code.imports("torch.sagemaker") is not None


def _loaders(code: ScriptFacts, loaders: list[Event]) -> Iterator[Finding]:
    given = [e for e in loaders if _divides(e)]
    by_name = code.mentions_like(r"DistSampler|shard_?id|num_shards|sampler_?class|get_\w*sampler") or code.mentions(
        *SPLITS
    )
    alike = every_process_reads_all(code)
    by_name = by_name or (code.mentions("IterableDataset") and not alike)
    by_name = by_name or code.mentions("resampled")  # WebDataset: each worker draws from all shards
    samplers = [e for e in code.events if "sampler" in e.result.tags and "istributed" in e.last]
    live = [e for e in loaders if not e.detached]
    reads = [e for e in live if for_training(e)] or live
    sharded = any(map(_of_share, loaders))
    trained = code.training_loader()
    if trained in loaders and not _divides(trained) and not _of_share(trained):
        given, reads, sharded = [], [trained], False
    plain = _plain_batches(trained) if trained is not None and samplers else False
    if (plain or (not given and not by_name)) and not sharded and not divided_by_index(code) and reads:
        what = "DataLoader without a DistributedSampler"
        if alike:
            what = "every process reads the whole stream of its IterableDataset"
        if samplers:
            what = f"the DistributedSampler of line {samplers[0].line} is not given to the DataLoader"
        yield at(NO_SAMPLER, reads[0], what)
    for event in code.ran("DistributedSampler"):
        shuffle = event.arg("shuffle", 3)
        if shuffle is not None and shuffle.single() is False:
            continue
        seed = event.arg("seed", 4)
        if seed is not None and (seed.single() is ... or "counted" in seed.tags):
            continue  # a seed of its own for each part or epoch
        if not code.mentions("set_epoch") and _epochs(code) and for_training(event):
            yield at(SAME_ORDER, event, "DistributedSampler without set_epoch")
            return
    for event in code.ran("set_epoch", live=True):
        if (guard := event.by_rank) is not None and event.receiver is not None:
            what = f"`{ast.unparse(event.node)[:50]}` only where `{ast.unparse(guard.node)[:40]}`: the shares overlap"
            yield at(SAME_ORDER, event, what, severity="warning")
            return
        number = event.node.args[0] if event.node.args else None
        if event.loops and isinstance(number, ast.Constant) and isinstance(number.value, int):
            yield at(SAME_ORDER, event, f"`{ast.unparse(event.node)[:50]}`: the same number in every epoch")
            return


def _of_share(loader: Event) -> bool:
    """Return whether a loader gets a share of the data."""
    return any(value.tags & {"sharded"} for value in (*loader.args, *loader.keywords.values(), loader.result))


def _epochs(code: ScriptFacts) -> bool:
    """Return whether the data is read more than once: backward is in a loop inside a loop, or that cannot be seen."""
    steps = [e for e in code.ran("backward") if not e.detached]
    return not steps or any(len(e.loops) > 1 for e in steps) or all(not e.loops for e in steps)


def _plain_batches(event: Event) -> bool:
    """Return whether a loader's batches come from a sampler that divides nothing."""
    batches = event.arg("batch_sampler", 4)
    inner = batches.of if batches is not None and batches.made_by("BatchSampler") else None
    return inner is not None and inner.made_by("RandomSampler", "SequentialSampler")


def _divides(event: Event) -> bool:
    sampler = event.arg("sampler", 3)
    if sampler is not None:
        made = {name.rpartition(".")[2] for name in sampler.made}
        return not (sampler.single() is None or (made and made <= {"RandomSampler", "SequentialSampler"}))
    return "**" in event.keywords and event.keywords["**"].attrs is None


def divided_by_index(code: ScriptFacts) -> bool:
    """Return whether the data is divided without a sampler: by an index made from the rank."""
    for module in code.modules:
        for node in module.nodes:
            if isinstance(node, ast.Subscript):
                text = ast.unparse(node)
                if "rank" in text and ":" in text:
                    return True
    return any(_divides_by_process(event) for event in code.ran("shard"))


def _divides_by_process(event: Event) -> bool:
    """Return whether a call of ``shard`` may be by the rank: not a function of the script that names no process."""
    code = event.called.code if event.called is not None else None
    return code is None or event.called is None or event.called.instance or of_process(code.node)
