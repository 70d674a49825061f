"""Shapes, shares and seeds of the data: each mistake and the nearest correct code.

Arguments are those of PyTorch's documentation of torch.utils.data, and of Hugging Face's of tokenizers and collators.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, LOOP, P4D, SMP, SMP_JOB, TORCHRUN, XLA, XLA_JOB, codes, findings, parser

ALONE: dict[str, Any] = {"instance_type": P4D}
ONE: dict[str, Any] = {**ALONE, "distribution": TORCHRUN}
TWO: dict[str, Any] = {**ONE, "instance_count": 2}
SINGLE: dict[str, Any] = {**ONE, "instance_type": "ml.g5.xlarge"}
MPI: dict[str, Any] = {**ALONE, "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}}
TENSORS: dict[str, Any] = {"modelparallel": {"enabled": True, "parameters": {"tensor_parallel_degree": 2}}}
SMP_V2: dict[str, Any] = {**ONE, "distribution": {**TORCHRUN, "smdistributed": TENSORS}}
LOCAL = "int(os.environ['LOCAL_RANK'])"
RANK = "int(os.environ['RANK'])"
GROUP = "import os\nimport torch\nimport torch.distributed as dist\ndist.init_process_group('nccl')\n"
TOOLS = "from torch.utils.data import *\nfrom torch.utils.data import DataLoader, RandomSampler, SequentialSampler\n"
HVD = (
    "import torch\nfrom torch.utils.data import DataLoader, DistributedSampler\n"
    "import horovod.torch as hvd\nhvd.init()\ntorch.cuda.set_device(hvd.local_rank())\n"
)
XLA_LOADER = XLA + "from torch.utils.data import DataLoader\nworld = xm.xrt_world_size()\n"


def loaded(words: str = "data", *before: str) -> str:
    """A training on several GPUs with a loader."""
    lines = "\n".join(before)
    return f"{DDP}{TOOLS}{lines}\nloader = DataLoader({words})\n{LOOP}"


def streamed(body: str, base: str = "IterableDataset") -> str:
    return loaded("Rows()", f"class Rows({base}):\n    def __init__(self):\n        self.files = []\n    {body}")


MINE = "import torch.distributed as dist\ndef mine(files):\n    return {}\n"
TAKEN = "[file for place, file in enumerate(files) if place % 8 == dist.get_rank()]"
ITERATES = "def __iter__(self):\n        {}\n        yield from self.files"
SHARES: list[tuple[str, bool, str, dict[str, Any] | None]] = [
    ("TW171", True, loaded(), ONE),
    ("TW171", True, loaded(), None),
    ("TW171", False, loaded(), SINGLE),
    ("TW171", False, loaded() + "import accelerate\n", ONE),
    ("TW171", False, DDP + "loader = DataLoader(data)\n", ONE),
    ("TW171", False, GROUP + "from work import DataLoader\nloader = DataLoader(data)\n" + LOOP, ONE),
    ("TW171", True, GROUP + "from work import *\nloader = utils.DataLoader(data)\n" + LOOP, ONE),
    ("TW171", True, loaded("test_data"), ONE),
    *(
        ("TW171", found, loaded(words), ONE)
        for words, found in (
            ("data, sampler=DistributedSampler(data)", False),
            ("data, 8, False, DistributedSampler(data)", False),
            ("data, sampler=given", False),
            ("data, sampler=None", True),
            ("data, sampler=RandomSampler(data)", True),
            ("data, sampler=SequentialSampler(data)", True),
            ("data, batch_sampler=given", False),
            ("data, **options", False),
            ("data, **{'batch_size': 8}", True),
            ("data[dist.get_rank()::dist.get_world_size()]", False),
            ("data[rows.rank:]", False),
            ("data[0:10]", True),
            ("data['rank']", True),
            ("data.shard(8, n)", False),
            ("Part(files[dist.get_rank()]), batch_size=8", False),
        )
    ),
    *(
        ("TW171", False, loaded("data", f"print(work.{name})"), ONE)
        for name in ("DistSampler", "shard_id", "shardid", "num_shards", "sampler_class", "get_sampler", "make_private")
    ),
    # The loader that is trained on decides.
    ("TW171", True, loaded("data", "other = DataLoader(rows, sampler=DistributedSampler(rows))"), ONE),
    ("TW171", False, loaded("data[files[dist.get_rank()]]"), ONE),
    # A custom stream that uses neither the rank nor random numbers.
    ("TW171", True, streamed(ITERATES.format("pass")), ONE),
    ("TW171", True, streamed(ITERATES.format("torch.utils.data.get_worker_info()")), ONE),
    ("TW171", False, streamed(ITERATES.format("print(dist.get_rank())")), ONE),
    ("TW171", False, streamed(ITERATES.format("random(1)")), ONE),
    # Chance with one seed is the same in every process.
    *(
        ("TW171", found, streamed(ITERATES.format(f"chance = {made}\n        {drawn}")), ONE)
        for made, drawn, found in (
            ("random.Random(7)", "chance.shuffle(self.files)", True),
            ("np.random.default_rng(self.seed)", "start = chance.permutation(len(self.files))", True),
            ("torch.Generator().manual_seed(7)", "start = torch.randint(9, (8,), generator=chance)", True),
            ("random.Random(self.seed + dist.get_rank())", "chance.shuffle(self.files)", False),
            ("np.random.default_rng()", "start = chance.permutation(len(self.files))", False),
            ("random.Random(get_worker_info().seed)", "chance.shuffle(self.files)", False),
            ("random.Random(7)", "random.shuffle(self.files)", False),
            ("torch.Generator()", "chance.manual_seed(7); start = torch.randperm(9, generator=chance)", True),
            ("torch.Generator()", "chance.manual_seed(time()); start = torch.randperm(9, generator=chance)", False),
            ("torch.Generator()", "start = torch.randperm(9, generator=chance)", False),
            ("5", "start = torch.randperm(9, generator=torch.Generator().manual_seed(self.seed + self.epoch))", True),
            ("5", "start = torch.randperm(9, generator=torch.Generator().manual_seed(torch.initial_seed()))", False),
            ("5", "start = torch.randperm(9)", False),
        )
    ),
    # Words that say nothing of the stream, but of one of its samples.
    ("TW171", True, streamed(ITERATES.format("for sample in self.files:\n            yield sample.split('\\t')")), ONE),
    ("TW171", False, streamed(ITERATES.format("self.files = sample(self.files, 9)")), ONE),
    ("TW171", False, streamed(ITERATES.format("self.files = self.files.split(number)")), ONE),
    # Its share may be taken in a function of the script.
    ("TW171", True, MINE.format("files[:9]") + streamed(ITERATES.format("self.files = mine(self.files)")), ONE),
    ("TW171", False, MINE.format(TAKEN) + streamed(ITERATES.format("self.files = mine(self.files)")), ONE),
    # Another loader's share is not that of the training.
    ("TW171", True, loaded() + "held_out = DataLoader(Subset(rows, range(dist.get_rank(), 9, 8)))\n", ONE),
    ("TW171", False, loaded("Subset(rows, range(dist.get_rank(), 9, 8))"), ONE),
    ("TW171", False, streamed("def rows(self):\n        yield from self.files"), ONE),
    ("TW171", False, loaded("Rows()", "from work import Rows", "print(IterableDataset)"), ONE),
    ("TW171", False, loaded("IterableDataset(files)"), ONE),
    ("TW171", False, streamed(ITERATES.format("pass")) + "more = IterableDataset(files)\n", ONE),
    ("TW171", True, streamed(ITERATES.format("pass")) + "class Other:\n    def shard(self):\n        pass\n", ONE),
    # --- the same order in each epoch
    *(
        ("TW174", found, f"{DDP}{line}\nfor epoch in range(3):" + LOOP.replace("\n", "\n    "), ONE)
        for line, found in (
            ("s = DistributedSampler(data)", True),
            ("s = DistributedSampler(data, shuffle=False)", False),
            ("s = DistributedSampler(data, 8, None, False)", False),
            ("s = DistributedSampler(data, seed=4)", True),
            ("s = DistributedSampler(data, seed=draw())", False),
            ("s = DistributedSampler(data, 8, None, True, draw())", False),
            ("seed = 1\nfor part in parts:\n    s = DistributedSampler(part, seed=seed)\n    seed += 1", False),
            ("s = DistributedSampler(val_data)", False),
            ("s = DistributedSampler(data)\ns.set_epoch(1)", False),
        )
    ),
    ("TW174", True, DDP + "s = DistributedSampler(data)\nloss.backward()\n", ONE),
    ("TW174", True, DDP + "s = DistributedSampler(data)\ndef never_called(loss):\n    loss.backward()\n", ONE),
    ("TW174", False, DDP + "s = DistributedSampler(data)\n" + LOOP + "loss.backward()\n", ONE),
    # --- DistributedSampler(dataset, num_replicas, rank)
    *(
        ("TW175", found, DDP + f"s = DistributedSampler(data{words})\n", ONE)
        for words, found in (
            ("", False),
            (", num_replicas=4", True),
            (", num_replicas=1", True),
            (", 4", True),
            (", num_replicas=8", False),
            (", num_replicas=size()", False),
            (", rank=0", True),
            (", 8, 0", True),
            (f", rank={LOCAL}", False),
            (f", rank={RANK}", False),
        )
    ),
    *(
        ("TW175", found, DDP + f"s = DistributedSampler(data{words})\n", TWO)
        for words, found in (
            (f", rank={LOCAL}", True),
            (f", rank={RANK}", False),
            (f", rank={RANK} if args.a else {LOCAL}", False),
            (f", torch.cuda.device_count(), {RANK}", True),
            (f", 2 * torch.cuda.device_count(), {RANK}", False),
            (f", dist.get_world_size(), {RANK}", False),
        )
    ),
    ("TW175", False, parser('"--n", type=int, default=4') + DDP + "s = DistributedSampler(data, args.n)\n", ONE),
    ("TW175", False, parser('"--r", type=int, default=0') + DDP + "s = DistributedSampler(data, rank=args.r)\n", ONE),
    ("TW175", False, DDP + "s = DistributedSampler(data, num_replicas=1, rank=0)\n", None),
    ("TW175", True, DDP + "s = DistributedSampler(data, num_replicas=2, rank=0)\n", None),
    ("TW175", False, DDP + "s = DistributedSampler(data, rank=0)\n", SINGLE),
    # Horovod: torch.distributed, which is asked for what is not given, has no group.
    ("TW175", True, HVD + "s = DistributedSampler(data)\n", MPI),
    ("TW175", True, HVD + "s = DistributedSampler(data, rank=hvd.rank())\n", MPI),
    ("TW175", True, HVD + "s = DistributedSampler(data, num_replicas=hvd.size())\n", MPI),
    ("TW175", False, HVD + "s = DistributedSampler(data, hvd.size(), hvd.rank())\n", MPI),
    ("TW175", False, HVD + "from work import DistributedSampler\ns = DistributedSampler(data)\n", MPI),
    ("TW175", False, HVD + "torch.distributed.init_process_group('nccl')\ns = DistributedSampler(data)\n", MPI),
    ("TW175", False, HVD + "import torch.distributed as dist\nstart = dist.init_process_group\nstart('nccl')\n"
     "s = DistributedSampler(data)\n", MPI),
    # SMP counts the partitions of a model, too.
    *(
        ("TW175", found, f"{SMP}sampler = torch.utils.data.DistributedSampler(data{words})\n", job)
        for words, found, job in (
            (", smp.size(), smp.rank()", True, SMP_JOB),
            (", num_replicas=smp.size()", True, SMP_JOB),
            (", rank=smp.rank()", True, SMP_JOB),
            (", smp.dp_size(), smp.dp_rank()", False, SMP_JOB),
            (", smp.dp_size(), smp.rank()", False, SMP_JOB),
            (", smp.size(), smp.rank()", True, None),
            (", smp.size(), smp.rank()", False, MPI),
        )
    ),
    *(
        ("TW175", found, f"{head}{DDP}s = DistributedSampler(data{words})\n", job)
        for head in ("import torch.sagemaker as tsm\ntsm.init()\n",)
        for words, found, job in (
            ("", True, SMP_V2),
            (f", dist.get_world_size(), {RANK}", True, SMP_V2),
            (", dist.get_world_size() // 2, tsm.state.dp_rank", False, SMP_V2),
            (", tsm.state.dp_size, tsm.state.dp_rank", False, SMP_V2),
            ("", False, ONE),
        )
    ),
    ("TW175", False, DDP + "s = DistributedSampler(data)\n", SMP_V2),
    # --- a sampler and shuffle=True
    *(
        ("TW176", found, loaded(words, "s = DistributedSampler(data)"), ONE)
        for words, found in (
            ("data, sampler=s, shuffle=True", True),
            ("data, 8, True, s", True),
            ("data, sampler=s, shuffle=False", False),
            ("data, sampler=s", False),
            ("data, shuffle=True", False),
            ("data, sampler=given, shuffle=True", False),
            ("data, sampler=s if args.several else None, shuffle=True", False),
        )
    ),
    ("TW176", False, parser('"--mix", default=True')
     + loaded("data, sampler=DistributedSampler(data), shuffle=args.mix"), ONE),
    ("TW176", False, loaded("data, **more", "more = {'shuffle': True}", "if args.several:",
     "    more = {'sampler': DistributedSampler(data)}"), ONE),
]  # fmt: skip

UNSEEDED = GROUP + "{}\n" + LOOP
FROM = "from transformers import {0}\nmodel = {0}.from_pretrained('b')"
WHOLE = ("AutoModel", "AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForSeq2SeqLM")
SEEDS: list[tuple[str, bool, str, dict[str, Any] | None]] = [
    ("TW173", True, UNSEEDED.format(""), ONE),
    ("TW173", False, GROUP, ONE),
    *(
        ("TW173", False, UNSEEDED.format(f"import work\nwork.{name}(1)"), ONE)
        for name in ("manual_seed", "seed_all", "set_my_seed", "seed_every_process", "my_init_seed", "seed")
    ),
    ("TW173", True, UNSEEDED.format("seeds = 1\nprint(seeds)"), ONE),
    *(
        ("TW173", False, UNSEEDED.format(f"import work\nwork.{name}(model)"), ONE)
        for name in ("broadcast", "broadcast_parameters", "DistributedDataParallel")
    ),
    ("TW173", False, HVD + LOOP, MPI),
    *(("TW173", False, UNSEEDED.format(FROM.format(name)), ONE) for name in WHOLE),
    ("TW173", True, UNSEEDED.format(FROM.format("AutoModelForSequenceClassification")), ONE),
    ("TW173", True, UNSEEDED.format(FROM.format("AutoTokenizer")), ONE),
    ("TW173", False, UNSEEDED.format(FROM.format("AutoModel") + "\n" + FROM.format("AutoTokenizer")), ONE),
    *(
        ("TW173", True, UNSEEDED.format(FROM.format("AutoModel") + f"\nimport work\nwork.{name}(1)"), ONE)
        for name in ("from_config", "Linear", "Sequential", "LoraConfig")
    ),
]  # fmt: skip

COLLATORS = ("DataCollatorWithPadding", "DataCollatorForSeq2Seq", "DataCollatorForTokenClassification")
SHAPES: list[tuple[str, bool, str, dict[str, Any] | None]] = [
    *(
        ("TW170", found, f"{XLA}from transformers import {', '.join(COLLATORS)}\n{line}\n", None)
        for line, found in (
            ("tokenizer(x, padding='longest')", True),
            ("tokenizer(x, padding=True)", True),
            ("tokenizer(x, padding='max_length')", False),
            ("tokenizer(x, padding=True, pad_to_multiple_of=64)", False),
            ("tokenizer(x, truncation=True)", True),
            ("tokenizer.encode_plus(x, truncation=True)", True),
            ("make_tokenizer()(x, truncation=True)", True),
            ("tokenizer(x, truncation=True, padding='max_length')", False),
            ("tokenizer(x)", False),
            ("words(x, truncation=True)", False),
            ("tokenizer = AutoTokenizer.from_pretrained('b', truncation=True)", False),
            *((f"{name}(words)", True) for name in COLLATORS),
            *((f"{name}(words, padding=True)", True) for name in COLLATORS),
            *((f"{name}(words, padding='max_length')", False) for name in COLLATORS),
            *((f"{name}(words, pad_to_multiple_of=64)", False) for name in COLLATORS),
            ("DataCollatorForLanguageModeling(words)", False),
        )
    ),
    ("TW170", False, "tokenizer(x, padding=True)\n", None),
    # --- the last batch
    *(
        ("TW177", found, f"{XLA_LOADER}{line}\n", None)
        for line, found in (
            ("DataLoader(data)", True),
            ("DataLoader(data, pin_memory_device=device)", True),
            ("DataLoader(data, drop_last=True)", False),
            ("DataLoader(data, **options)", False),
            ("DataLoader(data, batch_sampler=given)", False),
            ("DataLoader(test_data)", False),
            ("DataLoader(data.val)", False),
            ("DataLoader(dev)", False),
            ("DataLoader(test)\nDataLoader(data)", True),
            ("def evaluate():\n    DataLoader(data)\nevaluate()", False),
            ("def train():\n    DataLoader(data)\ntrain()", True),
            ("def never_called():\n    DataLoader(data)", False),
        )
    ),
    ("TW177", True, SMP + "from torch.utils.data import DataLoader\nDataLoader(data)\n", SMP_JOB),
    # Short batches may be left out by hand.
    *(
        ("TW177", found, f"{SMP}loader = torch.utils.data.DataLoader(data)\nfor x, y in loader:\n    {text}", SMP_JOB)
        for text, found in (
            ("if len(x) % 4:\n        continue\n", False),
            ("if x.size(0) < args.batch_size:\n        break\n", False),
            ("if x.shape[0] != 8:\n        print('short')\n        continue\n", False),
            ("if len(y) % parts == 0:\n        step(x, y)\n", False),
            ("if step % 4:\n        continue\n", True),
            ("for part in open('d'):\n        if len(part) == 3:\n            step(part)\n", True),
            ("if len(x) % 4:\n        print(x)\n", True),
        )
    ),
    ("TW177", False, "import torch.sagemaker as tsm\nimport torch\ntorch.utils.data.DataLoader(data)\n", SMP_V2),
    ("TW177", False, loaded(), ONE),
    # --- MpDeviceLoader
    ("TW172", True, XLA_LOADER + "loader = DataLoader(data)\n" + LOOP, None),
    ("TW172", False, XLA_LOADER + "loader = DataLoader(data)\n", None),
    ("TW172", False, XLA_LOADER.replace("world", "# ") + "loader = DataLoader(data)\n" + LOOP, None),
    ("TW172", False, XLA_LOADER + "import accelerate\nloader = DataLoader(data)\n" + LOOP, None),
    ("TW172", False, "from torch.utils.data import DataLoader\nloader = DataLoader(data)\n" + LOOP, XLA_JOB),
    *(
        ("TW172", False, XLA_LOADER + f"loader = pl.{name}(DataLoader(data), device)\n" + LOOP, None)
        for name in ("MpDeviceLoader", "ParallelLoader")
    ),
    ("TW172", False, XLA_LOADER + "xr.use_spmd()\nloader = DataLoader(data)\n" + LOOP, None),
    *(
        ("TW172", found, f"{XLA_LOADER}loader = DataLoader(data)\ntest = pl.MpDeviceLoader(other, d)\n{text}", None)
        for text, found in (
            (LOOP, True),
            ("model.to(device)\n" + LOOP, True),
            (LOOP.replace("in loader", "in enumerate(loader)"), True),
            (LOOP.replace("in loader", "in test"), False),
            (LOOP.replace("for data in loader", "while True"), False),
            (f"model.to(device)\n{LOOP}    data.to(device)\n", False),
            (f"{LOOP}    data.cuda()\n", False),
            (f"{LOOP}    xm.send_cpu_data_to_device(data, device)\n", False),
            ("for epoch in range(3):" + f"{LOOP}    data.to(device)".replace("\n", "\n    ") + "\n", False),
            ("def never_called():" + LOOP.replace("\n", "\n    ") + "\n", False),
            ("xr.use_spmd()\n" + LOOP, False),
        )
    ),
]  # fmt: skip


CYCLES: list[tuple[str, bool, str, dict[str, Any] | None]] = [
    *(
        ("TW550", found, loaded("data, shuffle=True", "import itertools", "from itertools import cycle") + more, ALONE)
        for more, found in (
            ("for x in itertools.cycle(loader):\n    pass\n", True),
            ("batches = iter(cycle(loader))\n", True),
            ("batches = cycle(enumerate(loader))\n", True),
            ("class Batches:\n    def __init__(self, loader):\n        self.loader = loader\n"
             "    def __iter__(self):\n        yield from cycle(self.loader)\nbatches = Batches(loader)\n", True),
            ("def forever(loader):\n    while True:\n        yield from loader\nbatches = forever(loader)\n", False),
            ("for x in itertools.chain.from_iterable(itertools.repeat(loader)):\n    pass\n", False),
            ("def cycle(loader):\n    while True:\n        yield from loader\nbatches = cycle(loader)\n", False),
            ("batches = cycle(list(loader))\n", False), ("colours = cycle(['red', 'blue'])\n", False),
            ("for epoch in range(9):\n    for x, y in zip(loader, cycle(loader)):\n        pass\n", False),
            ("val_batches = cycle(DataLoader(val_data))\n", False),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("code", "reported", "script", "job"), [*SHARES, *SEEDS, *SHAPES, *CYCLES])
def test_a_mistake_is_reported_and_what_is_near_to_it_is_not(
    code: str, reported: bool, script: str, job: dict[str, Any] | None
) -> None:
    found = codes(script, job)
    assert (code in found) == reported, (found, script)


@pytest.mark.parametrize(
    ("made", "told"), [("DistributedSampler(data)", True), ("RandomSampler(data)", False), ("Distributed(data)", False)]
)
def test_a_sampler_that_no_loader_gets_is_named(made: str, told: bool) -> None:
    (found,) = [each for each in findings(loaded("data", f"s = {made}"), ONE) if each.code == "TW171"]
    assert ("DistributedSampler of line" in found.message) == told


def test_the_loader_of_the_training_is_named() -> None:
    script = f"{DDP}test = DataLoader(test_data)\ntrain = DataLoader(data)\ndef step(loss):\n    loss.backward()\n"
    (found,) = [each for each in findings(script, ONE) if each.code == "TW171"]
    assert found.line == 1 + script[: script.index("train =")].count("\n")


@pytest.mark.parametrize(
    ("script", "place"),
    [(UNSEEDED.format(""), "dist.init"), (UNSEEDED.format("").replace("dist.init", "# "), "loss.b")],
)
def test_the_start_of_the_processes_is_named_where_no_seed_is_set(script: str, place: str) -> None:
    lines = [each.line for each in findings(script, ONE) if each.code == "TW173"]
    assert lines == ([1 + script[: script.index(place)].count("\n")] if place == "dist.init" else [])
