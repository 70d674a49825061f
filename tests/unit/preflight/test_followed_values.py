"""Seeds, groups, batches, callbacks and variables: what becomes of them decides, each beside its nearest right way."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import followed_lists as lists
from tests.support import followed_scripts as s
from tests.support.neighbour_scripts import TWO
from tests.support.training_scripts import DDP, XLA, XLA_JOB, codes

# Name: code, wrong, right, job.
PAIRS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "a seed of its own before a split": (
        "TW436",
        DDP + s.SPLIT.format(seed="torch.manual_seed(3 + rank)"),
        DDP + s.SPLIT.format(seed="torch.manual_seed(3)"),
        TWO,
    ),
    "a seed of its own after the split": (
        "TW436",
        DDP + s.SPLIT.format(seed="torch.manual_seed(rank)"),
        DDP + s.SPLIT.format(seed="") + "torch.manual_seed(rank)\n",
        TWO,
    ),
    "a seed of NumPy decides scikit-learn's split": (
        "TW436",
        DDP + s.TABLE.format(seed="np.random.seed(dist.get_rank())"),
        DDP + s.TABLE.format(seed="np.random.seed(0)\ntorch.manual_seed(dist.get_rank())"),
        TWO,
    ),
    "a seed for each device": (
        "TW436",
        DDP + "from accelerate.utils import set_seed\n" + s.SPLIT.format(seed="set_seed(1, device_specific=True)"),
        DDP + "from accelerate.utils import set_seed\n" + s.SPLIT.format(seed="set_seed(1)"),
        TWO,
    ),
    "no_sync around backward alone": (
        "TW438",
        DDP
        + s.NO_SYNC.format(
            "loss = model(x).mean()\n    with model.no_sync() if step % 2 else nullcontext():\n        loss.backward()"
        ),
        DDP
        + s.NO_SYNC.format("with model.no_sync() if step % 2 else nullcontext():\n        model(x).mean().backward()"),
        TWO,
    ),
    "cleared before each batch, stepped at each fourth": (
        "TW138",
        DDP + s.SUMMED.format(first="optimizer.zero_grad()", then="pass"),
        DDP + s.SUMMED.format(first="pass", then="optimizer.zero_grad()"),
        TWO,
    ),
    "one optimizer of two steps at each fifth batch": (
        "TW138",
        DDP + s.SUMMED.format(first="optimizer.zero_grad()", then="pass"),
        DDP + s.CRITIC,
        TWO,
    ),
    "prepared in one process": (
        "TW439",
        s.LIGHTNING.format(**s.LIT | {"prepare": "self.rows = read()", "setup": "pass"}, end=""),
        s.LIGHTNING.format(**s.LIT | {"prepare": "self.rows = read()"}, end=""),
        TWO,
    ),
    "stopped by one process's loss": (
        "TW440",
        s.LIGHTNING.format(**s.LIT | {"log": 'self.log("val_loss", loss)'}, end=""),
        s.LIGHTNING.format(**s.LIT, end=""),
        TWO,
    ),
    "a metric reduces itself": (
        "TW440",
        s.LIGHTNING.format(**s.LIT | {"log": 'self.log("val_loss", F.mse_loss(batch, batch))'}, end=""),
        s.LIGHTNING.format(**s.LIT | {"log": 'self.log("val_loss", self.val_loss)'}, end=""),
        TWO,
    ),
    "a checkpoint of the first process": (
        "TW128",
        s.LIGHTNING.format(
            **s.LIT, end='if trainer.is_global_zero:\n    trainer.save_checkpoint("/opt/ml/model/m.ckpt")'
        ),
        s.LIGHTNING.format(**s.LIT, end='trainer.save_checkpoint("/opt/ml/model/m.ckpt")'),
        TWO,
    ),
    "a state that Fabric saves in the first process": (
        "TW128",
        s.FABRIC.format('if fabric.global_rank == 0:\n    fabric.save("/opt/ml/model/m.ckpt", {"step": 1})'),
        s.FABRIC.format('fabric.save("/opt/ml/model/m.ckpt", {"step": 1})'),
        TWO,
    ),
    "a list to gather into": (
        "TW441",
        DDP + s.GATHER.format(f"parts = {s.PARTS}"),
        DDP + s.GATHER.format(f"parts = {s.PARTS} if rank == 0 else None"),
        TWO,
    ),
    "a list that the others leave empty": (
        "TW441",
        DDP + s.GATHER.format(f"parts = {s.PARTS}"),
        DDP + s.GATHER.format(f"parts = []\nif rank == 0:\n    parts = {s.PARTS}"),
        TWO,
    ),
    "a barrier after the end": (
        "TW442",
        DDP + "dist.destroy_process_group()\ndist.barrier()\n",
        DDP + "dist.barrier()\ndist.destroy_process_group()\n",
        TWO,
    ),
    "a second group": (
        "TW442",
        DDP + "dist.destroy_process_group()\ndist.barrier()\n",
        DDP + 'dist.destroy_process_group()\ndist.init_process_group("gloo")\ndist.barrier()\n',
        TWO,
    ),
    "the GPU as rank of several hosts": (
        "TW104",
        s.SPAWN.format(address="hosts[0]", rank="gpu", size="gpus * len(hosts)"),
        s.SPAWN.format(address="hosts[0]", rank=f"{s.NODE} * gpus + gpu", size="gpus * len(hosts)"),
        s.HOSTS,
    ),
    "the GPUs of a host as size": (
        "TW104",
        s.SPAWN.format(address="hosts[0]", rank=f"{s.NODE} * gpus + gpu", size="gpus"),
        s.SPAWN.format(address="hosts[0]", rank=f"{s.NODE} * gpus + gpu", size="len(hosts) * gpus"),
        s.HOSTS,
    ),
    "each host meets itself": (
        "TW104",
        s.SPAWN.format(rank=f"{s.NODE} * gpus + gpu", size="gpus * len(hosts)", address="'localhost'"),
        s.SPAWN.format(rank=f"{s.NODE} * gpus + gpu", size="gpus * len(hosts)", address="hosts[0]"),
        s.HOSTS,
    ),
    "a loop over the loader of the CPU": (
        "TW172",
        XLA + s.XLA_LOOP.format(loader="plain", body="loss = model(x).mean()"),
        XLA + s.XLA_LOOP.format(loader="fast", body="loss = model(x).mean()"),
        XLA_JOB,
    ),
    "batches that the loop moves": (
        "TW172",
        XLA + s.XLA_LOOP.format(loader="plain", body="loss = model(x).mean()"),
        XLA + s.XLA_LOOP.format(loader="plain", body="loss = model(x.to(device)).mean()"),
        XLA_JOB,
    ),
    "a decision before the mean": (
        "TW401",
        s.KERAS.format(f"{s.STOP}, {s.AVERAGE}"),
        s.KERAS.format(f"{s.AVERAGE}, {s.STOP}"),
        s.HVD_JOB,
    ),
    "a warm-up to the rate of one process": (
        "TW125",
        s.KERAS.format(f"{s.AVERAGE}, {s.WARM.format('0.1')}"),
        s.KERAS.format(f"{s.AVERAGE}, {s.WARM.format('0.1 * hvd.size()')}"),
        s.HVD_JOB,
    ),
    "variables that are not there yet": (
        "TW184",
        s.TAPE.format(first=s.SEND, then="pass"),
        s.TAPE.format(first="pass", then=s.SEND),
        s.HVD_JOB,
    ),
    "a model that is built first": (
        "TW184",
        s.TAPE.format(first=s.SEND, then="pass"),
        s.TAPE.format(first=f"net.build((None, 2))\n{s.SEND}", then="pass"),
        s.HVD_JOB,
    ),
    "every host is worker 0": (
        "TW187",
        s.CLUSTER.format(before=s.CONFIG.format("0"), after=""),
        s.CLUSTER.format(before=s.MINE, after=""),
        s.HOSTS,
    ),
    "a cluster that is named too late": (
        "TW187",
        s.CLUSTER.format(before="", after=s.MINE),
        s.CLUSTER.format(before=s.MINE, after=""),
        s.HOSTS,
    ),
    "the global batch in a function for one replica": (
        "TW424",
        s.BATCHES.format("whole"),
        s.BATCHES.format("context.get_per_replica_batch_size(whole)"),
        s.HOSTS,
    ),
    "the global batch, divided by the replicas": (
        "TW424",
        s.BATCHES.format("whole"),
        s.BATCHES.format("whole // strategy.num_replicas_in_sync"),
        s.HOSTS,
    ),
    "results of a loader that is not prepared": (
        "TW155",
        s.ACCELERATE.format(prepare="model, optimizer, train = accelerator.prepare(model, optimizer, train)", save=""),
        s.ACCELERATE.format(prepare=s.PREPARE, save=""),
        TWO,
    ),
    "names of the wrapper": (
        "TW443",
        s.ACCELERATE.format(prepare=s.PREPARE, save="accelerator.save(model.state_dict(), where)"),
        s.ACCELERATE.format(
            prepare=s.PREPARE, save="accelerator.save(accelerator.unwrap_model(model).state_dict(), where)"
        ),
        TWO,
    ),
    "a state that is gathered": (
        "TW443",
        s.ACCELERATE.format(prepare=s.PREPARE, save="torch.save(model.state_dict(), where)"),
        s.ACCELERATE.format(prepare=s.PREPARE, save="torch.save(accelerator.get_state_dict(model), where)"),
        TWO,
    ),
    "a counter of the loop": (
        "TW128",
        DDP + s.STEPS.format(test="count", then=s.SHOWN.format("", f"{s.REDUCED}; ")),
        DDP + s.STEPS.format(test="count", then=s.SHOWN.format(f"{s.REDUCED}\n                ", "")),
        TWO,
    ),
    "a counter of an object": (
        "TW128",
        DDP + s.STEPS.format(test="self.step", then=s.SHOWN.format("", f"{s.REDUCED}; ")),
        DDP + s.STEPS.format(test="self.step", then=s.SHOWN.format(f"{s.REDUCED}\n                ", "")),
        TWO,
    ),
    "data for each rank of one group": (
        "TW175",
        s.GROUPED.format("dist.get_world_size()", "dist.get_rank()"),
        s.GROUPED.format("dist.get_world_size() // tsm.state.tp_size", "dist.get_rank() // tsm.state.tp_size"),
        s.V2,
    ),
    "parameters from before transform": (
        "TW147",
        s.TRANSFORMED.format(f"{s.ADAM}\nmodel = tsm.transform(model)", ""),
        s.TRANSFORMED.format("model = tsm.transform(model)", s.ADAM),
        s.V2,
    ),
    "a loss of a loop of one's own, in a class with a fit": (
        "TW422",
        s.CLASS.format(""),
        s.CLASS.format("reduction=tf.keras.losses.Reduction.NONE"),
        s.HOSTS | {"instance_count": 1},
    ),
    "the best of other steps": (
        "TW157",
        s.BEST.format('eval_strategy="steps", eval_steps=5, save_strategy="epoch"'),
        s.BEST.format('eval_strategy="steps", eval_steps=5, save_strategy="steps"'),
        TWO,
    ),
    "weights of a class of one's own": (
        "TW145",
        s.WEIGHTS.format('"/opt/ml/checkpoints"'),
        s.WEIGHTS.format('os.environ["SM_MODEL_DIR"]'),
        {"instance_type": "ml.g5.xlarge", "plan": {"framework": "tensorflow"}},
    ),
    "a barrier of a callback": (
        "TW128",
        s.CALLBACK.format("pass", "dist.barrier(); "),
        s.CALLBACK.format("dist.barrier()", ""),
        TWO,
    ),
    "a loader that Fabric does not know": (
        "TW155",
        s.SET_UP.format("pass"),
        s.SET_UP.format("train = fabric.setup_dataloaders(train)"),
        TWO,
    ),
    "as many tensors as a host has GPUs": (
        "TW441",
        DDP + s.ALL.format("torch.cuda.device_count()"),
        DDP + s.ALL.format("dist.get_world_size()"),
        TWO,
    ),
    "loops that begin apart": (
        "TW400",
        s.RESUMED.format("start = last() if hvd.rank() == 0 else 0"),
        s.RESUMED.format(f"start = last() if hvd.rank() == 0 else 0\n{s.AGREED}"),
        s.HVD_JOB,
    ),
    "loops that a branch lets begin apart": (
        "TW400",
        s.RESUMED.format(s.BY_IF),
        s.RESUMED.format(f"{s.BY_IF}\n{s.AGREED}"),
        s.HVD_JOB,
    ),
    "epochs that begin apart": ("TW400", s.LATER.format("", s.FIRST), s.LATER.format(s.SENT, s.FIRST), s.HVD_JOB),
    "a callback that one process uses": (
        "TW141",
        s.LATER.format(s.SENT, "[callback]"),
        s.LATER.format(s.SENT, s.FIRST),
        s.HVD_JOB,
    ),
    "weights that one process reads": (
        "TW184",
        s.LATER.replace("hvd.callbacks.BroadcastGlobalVariablesCallback(0)", "").format(s.SENT, s.FIRST),
        s.LATER.format(s.SENT, s.FIRST),
        s.HVD_JOB,
    ),
    "a barrier in what a decorator lets one process do": (
        "TW128",
        DDP + s.DECORATED.format("dist.barrier(); ", "pass"),
        DDP + s.DECORATED.format("", "dist.barrier()"),
        TWO,
    ),
    "a file that a decorator lets one process write": (
        "TW141",
        DDP + s.DECORATED.format("", "torch.save(model.module.state_dict(), '/opt/ml/model/a.pt')"),
        DDP + s.DECORATED.format("", "pass"),
        TWO,
    ),
    "an end of the first process": (
        "TW128",
        "import sys\n" + DDP + s.REFUSED.format("sys.exit()"),
        DDP + s.REFUSED.format('raise ValueError("no data")'),
        TWO,
    ),
    "a broadcast in the list of the first process": (
        "TW128",
        lists.LISTED.format(**lists.PARTS_OF_LIST | {"one": lists.BROADCAST}),
        lists.LISTED.format(**lists.PARTS_OF_LIST | {"every": lists.BROADCAST}),
        s.HVD_JOB,
    ),
    "an end in the list of the first process": (
        "TW400",
        lists.LISTED.format(**lists.PARTS_OF_LIST | {"one": lists.ENDING}),
        lists.LISTED.format(**lists.PARTS_OF_LIST | {"every": lists.ENDING}),
        s.HVD_JOB,
    ),
    "a file in the list of every process": (
        "TW141",
        lists.LISTED.format(**lists.PARTS_OF_LIST | {"every": lists.WRITTEN}),
        lists.LISTED.format(**lists.PARTS_OF_LIST | {"one": lists.WRITTEN}),
        s.HVD_JOB,
    ),
    "a validation of the first process": (
        "TW128",
        lists.LISTED.format(**lists.PARTS_OF_LIST | {"held": 'test if place["first"] else None'}),
        lists.LISTED.format(**lists.PARTS_OF_LIST),
        s.HVD_JOB,
    ),
    "an epoch of all in a name": (
        "TW426",
        lists.LISTED.format(**lists.PARTS_OF_LIST | {"share": ""}),
        lists.LISTED.format(**lists.PARTS_OF_LIST),
        s.HVD_JOB,
    ),
    "an evaluation without end": ("TW423", lists.JUDGED.format("True", ""), lists.JUDGED.format("False", ""), s.HOSTS),
    "the steps of an evaluation": (
        "TW423",
        lists.JUDGED.format("True", ""),
        lists.JUDGED.format("True", ", steps=3"),
        s.HOSTS,
    ),
    "loaded before it can be sharded": (
        "TW444",
        lists.SHARDED.format(lists.LOADED, 3, ""),
        lists.SHARDED.format("", 3, lists.LOADED),
        TWO,
    ),
    "a stage that shards no weights": (
        "TW444",
        lists.SHARDED.format(lists.LOADED, 3, ""),
        lists.SHARDED.format(lists.LOADED, 2, ""),
        TWO,
    ),
    "a collator pads": (
        "TW417",
        lists.COLLATED.format(""),
        lists.COLLATED.format("tokenizer.pad_token = tokenizer.eos_token"),
        TWO,
    ),
    "a validation without end": ("TW423", s.HELD.format(".repeat()", ""), s.HELD.format("", ""), s.HOSTS),
    "steps of a validation": (
        "TW423",
        s.HELD.format(".repeat()", ""),
        s.HELD.format(".repeat()", ", validation_steps=3"),
        s.HOSTS,
    ),
    "a seed for each epoch": ("TW174", DDP + s.SEEDED.format("1"), DDP + s.SEEDED.format("epoch"), TWO),
    "counts in main memory": (
        "TW403",
        DDP + s.COUNTS.format("(net(x).argmax(1).cpu() == y).sum()"),
        DDP + s.COUNTS.replace("torch.zeros(1)", "torch.zeros(1).cuda()").format("(net(x).argmax(1) == y).sum()"),
        TWO,
    ),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_the_mistake_is_found_and_the_nearest_right_way_is_not_one(pair):
    code, wrong, right, job = pair
    assert code in codes(wrong, job)
    assert code not in codes(right, job)


def test_one_host_has_the_ranks_of_its_gpus():
    script = s.SPAWN.format(address="hosts[0]", rank="gpu", size="gpus")
    assert [n for n in (1, 2) if "TW104" in codes(script, s.HOSTS | {"instance_count": n})] == [2]
