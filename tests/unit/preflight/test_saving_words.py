"""What a job saves: each mistake and the nearest correct code.

Functions and their arguments are those of the documentation of PyTorch, Keras, Hugging Face's libraries and SMP;
folders those of SageMaker's container contract.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, LOOP, P4D, SAVE, SMP_JOB, XLA, codes, findings, parser, read
from trainwright.preflight.preflight import examine
from trainwright.script.reader import Script

ALONE: dict[str, Any] = {"instance_type": P4D}
ONE: dict[str, Any] = {**ALONE, "distribution": {"torch_distributed": {"enabled": True}}}
SINGLE: dict[str, Any] = {**ONE, "instance_type": "ml.g5.xlarge"}
PAIR: dict[str, Any] = {**ALONE, "instance_count": 2}
TENSORFLOW: dict[str, Any] = {**ALONE, "plan": {"framework": "tensorflow"}}
TWO: dict[str, Any] = {**TENSORFLOW, "instance_count": 2}
KEEPS: dict[str, Any] = {"checkpoint": {"s3_uri": "s3://b/c"}}
OWN: dict[str, Any] = {"checkpoint": {"s3_uri": "s3://b/c", "local_path": "/opt/ml/ckpt/"}}
MPI: dict[str, Any] = {**TENSORFLOW, "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}}
MODEL = "import os\nimport torch\nmodel = torch.nn.Linear(1, 1)\n"
GROUP = DDP.replace("model = DDP(model)\n", "")
BERT = "from transformers import AutoModel, AutoTokenizer\nmodel = AutoModel.from_pretrained('b')\n"


def under(*tests: str, head: str = "", save: str = SAVE) -> str:
    """A script that saves under conditions."""
    inner = "".join(f"{'    ' * depth}if {test}:\n" for depth, test in enumerate(tests))
    return f"{head}{DDP}{inner}{'    ' * len(tests)}{save}\n"


MODE = parser('"--mode", default="train"')
BRANCHES = "if args.{first}:\n    if is_chief:\n        {one}\nelse:\n    {other}\n"
STATE = "torch.save(model.state_dict(), '/opt/ml/model/m.pt')"
PRETRAINED = "model.save_pretrained('/opt/ml/model')"
PICKLE = "import pickle\nnet = torch.nn.Linear(1, 1)\npickle.dump({what}, open('/opt/ml/model/a', 'wb'))\n"
DCP = "import torch.distributed.checkpoint as dcp\ndcp.save(state, checkpoint_id='/opt/ml/model')\n"
CHOSEN = "try:\n    import torch_xla.core.xla_model as xm\n    xm.save(s, '/opt/ml/model/m')\nfinally:\n    pass\n"
FULL = "from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel\n"
WHOLE = FULL + "FullyShardedDataParallel.set_state_dict_type(model, config=FullStateDictConfig({words}))\n"
UNCALLED = "def never_called():\n    FullStateDictConfig(rank0_only=True)\n"
HVD = "import os\nimport tensorflow as tf\nimport horovod.tensorflow as hvd\nhvd.init()\n"
HOSTS = "import tensorflow as tf\nstrategy = tf.distribute.{name}()\n"
CHECKPOINT = "last = tf.keras.callbacks.ModelCheckpoint('/opt/ml/model/m.h5')\n"
MANAGER = "manager = tf.train.CheckpointManager(tf.train.Checkpoint(), '/opt/ml/checkpoints', 3)\n"
SMP = "import smdistributed.modelparallel.torch as smp\nsmp.init()\nmodel = smp.DistributedModel(model)\n"
RANKS: list[tuple[str, bool, str, dict[str, Any] | None]] = [
    ("TW141", True, DDP + SAVE, ONE),
    ("TW141", False, DDP + SAVE, SINGLE),
    ("TW141", False, "import os\nimport torch\n" + SAVE, ONE),
    ("TW141", False, GROUP + SAVE, None),
    ("TW141", True, GROUP + SAVE, PAIR),
    ("TW141", True, GROUP + SAVE, ONE),
    *(
        ("TW141", False, f"try:\n    import {name}\nexcept ImportError:\n    pass\n{DDP}{SAVE}", ONE)
        for name in ("accelerate", "pytorch_lightning", "lightning")
    ),
    # What differs by process, as a condition or in the path.
    ("TW141", True, under("epoch > 3"), ONE),
    *(
        ("TW141", False, under(test), ONE)
        for test in ("is_chief", "local_zero", "worker_id > 3", "dist.get_rank() == 0")
    ),
    ("TW141", True, under("not is_chief"), ONE),  # seven of eight
    ("TW141", False, DDP + "def keep(number):\n    if number == 0:\n        " + SAVE + "keep(smp.dp_rank())\n", ONE),
    ("TW141", False, DDP + "torch.save(model.state_dict(), f'/opt/ml/model/{uuid}.pt')\n", ONE),
    ("TW141", False, DDP + "torch.save(model.state_dict(), f'/opt/ml/model/{worker}.pt')\n", ONE),
    ("TW141", True, DDP + "torch.save(model.state_dict(), f'/opt/ml/model/{epoch}.pt')\n", ONE),
    # Of the two sides of `if distributed`, one is for a single process.
    ("TW141", False, DDP + BRANCHES.format(first="several", one=STATE, other=STATE), ONE),
    ("TW141", True, DDP + BRANCHES.format(first="several", one=PRETRAINED, other=STATE), ONE),
    ("TW141", True, DDP + f"if args.a:\n    {STATE}\nelse:\n    {STATE}\n", ONE),
    # A mode that is not the job's.
    ("TW141", False, under("args.mode == 'export'", head=MODE), ONE),
    ("TW141", True, under("args.mode == 'train'", head=MODE), ONE),
    ("TW141", True, under("args.mode != 'export'", head=MODE), ONE),
    ("TW141", True, under("args.mode == other", head=MODE), ONE),
    ("TW141", True, under("mode == 'export'", head=MODE), ONE),
    ("TW141", True, under("args.mode", head=MODE), ONE),
    ("TW141", True, under("args.mode == 'export'", head=MODE), None),
    ("TW141", True, under("args.mode == 'train'", "args.other == 'export'", head=MODE), ONE),
    ("TW141", True, DDP + MODE + f"if args.mode == 'export':\n    pass\nelse:\n    {STATE}\n", ONE),
    # Files that are not models.
    ("TW141", False, DDP + BERT + "AutoTokenizer.from_pretrained('b').save_pretrained('/opt/ml/model')\n", ONE),
    ("TW141", True, DDP + BERT + "model.save_pretrained('/opt/ml/model')\n", ONE),
    *(
        ("TW141", found, DDP + PICKLE.format(what=what), ONE)
        for what, found in (("net", True), ("best_Model", True), ("args", False))
    ),
    # Calls that every process makes.
    ("TW141", False, DDP + DCP, ONE),
    ("TW141", False, DDP + "import shutil\nshutil.copytree(model_folder, '/opt/ml/model')\n", ONE),
    ("TW141", False, DDP + CHOSEN, ONE),
    *(
        ("TW141", False, f"{DDP}from work import {name}\n{name}(model)\n{SAVE}", ONE)
        for name in ("fully_shard", "FullyShardedDataParallel", "distributed_checkpoint")
    ),
    ("TW141", False, f"{DDP}def never_called():\n    import deepspeed\n    deepspeed.initialize()\n{SAVE}", ONE),
    # The whole state of a sharded model is on rank 0 alone.
    *(
        ("TW141", found, DDP + WHOLE.format(words=words) + SAVE, ONE)
        for words, found in (
            ("rank0_only=True", True), ("True, True", True), ("True", False), ("rank0_only=False", False), ("", False)
        )
    ),
    *(
        ("TW141", False, f"{DDP}{WHOLE.format(words='rank0_only=True')}print(fsdp.{name})\n{SAVE}", ONE)
        for name in ("ShardedStateDictConfig", "LocalStateDictConfig", "SHARDED_STATE_DICT", "LOCAL_STATE_DICT")
    ),
    ("TW141", False, f"{DDP}{FULL}print(FullyShardedDataParallel)\n{UNCALLED}{SAVE}", ONE),
    ("TW141", False, DDP + BERT + WHOLE.format(words="True, True") + "model.save_pretrained('/opt/ml/model')\n", ONE),
    *(
        ("TW141", found, MODEL + SMP + line, SMP_JOB)
        for line, found in (
            ("smp.save(model.state_dict(), '/opt/ml/model/m.pt', partial=False)\n", True),
            ("smp.save(model.state_dict(), '/opt/ml/model/m.pt', partial=False, v3=True)\n", False),
            ("smp.save(model.state_dict(), '/opt/ml/model/m.pt', partial=True)\n", False),
            ("smp.save(model.state_dict(), '/opt/ml/model/m.pt')\n", False),
            ("smp.save_checkpoint('/opt/ml/checkpoints', partial=False, model=model)\n", False),
        )
    ),
    # TensorFlow
    ("TW141", True, HVD + CHECKPOINT + "model.fit(data, callbacks=[last])\n", MPI),
    ("TW141", False, HVD + CHECKPOINT + "callbacks = []\nif hvd.rank() == 0:\n    callbacks.append(last)\n", MPI),
    *(
        ("TW141", found, HOSTS.format(name=name) + line, TWO)
        for name in ("MultiWorkerMirroredStrategy", "experimental.CollectiveAllReduceStrategy")
        for line, found in ((CHECKPOINT, False), ("model.save('/opt/ml/model/1')\n", True))
    ),
    ("TW141", False, HOSTS.format(name="MirroredStrategy") + "model.save('/opt/ml/model/1')\n", TWO),
    ("TW141", True, HVD + HOSTS.format(name="MultiWorkerMirroredStrategy") + CHECKPOINT, MPI),
    ("TW141", True, HVD + MANAGER + "manager.save()\n", MPI),
    ("TW141", False, HVD + MANAGER + "if hvd.rank() == 0:\n    manager.save()\n", MPI),
    ("TW141", False, HVD + MANAGER + "save(1)\nmanager.save()\nif hvd.rank() == 0:\n    manager.save()\n", MPI),
    ("TW141", False, HVD + MANAGER + "work = Work(manager)\nif hvd.rank() == 0:\n    work.save()\n", MPI),
    # --- torch_xla
    ("TW140", True, XLA + "torch.save(state, '/opt/ml/model/m.pt')\n", None),
    ("TW140", False, XLA + "torch.save(model.cpu().state_dict(), '/opt/ml/model/m.pt')\n", None),
    *(
        ("TW140", found, XLA + BERT + f"tokenizer = AutoTokenizer.from_pretrained('b')\n{line}\n", None)
        for line, found in (
            ("model.save_pretrained('/opt/ml/model')", True),
            ("model.save_pretrained('/opt/ml/model', save_function=xm.save)", False),
            ("tokenizer.save_pretrained('/opt/ml/model')", False),
            ("model.to('cpu').save_pretrained('/opt/ml/model')", False),
            ("model.cpu()\nmodel.save_pretrained('/opt/ml/model')", False),
            ("loss.cpu()\nmodel.cpu()\nmodel.save_pretrained('/opt/ml/model')", False),
            ("loss.cpu()\nmodel.save_pretrained('/opt/ml/model')", True),
            ("xm._maybe_convert_to_cpu(model)\nmodel.save_pretrained('/opt/ml/model')", False),
        )
    ),
]  # fmt: skip


def kept(path: str, after: str = "", before: str = "", what: str = "model.state_dict()") -> str:
    imports = "import os, shutil, subprocess, tempfile, pickle\n"
    return f"{imports}{MODEL}{before}\ntorch.save({what}, {path})\n{after}\n"


TMP = "'/tmp/m.pt'"
PLACES: list[tuple[str, bool, str, dict[str, Any] | None]] = [
    *(("TW142", True, kept(path), ALONE) for path in ("'m.pt'", TMP, "'/srv/m.pt'")),
    ("TW142", False, kept("place()"), ALONE),
    ("TW142", False, parser('"--out", default="m.pt"') + kept("args.out"), ALONE),
    ("TW142", False, BERT + "model.push_to_hub('me/model')\n", ALONE),
    ("TW142", False, BERT + "AutoTokenizer.from_pretrained('b').save_pretrained('words')\n", ALONE),
    # Only some functions write to S3.
    ("TW142", True, kept("'s3://b/m.pt'"), ALONE),
    ("TW142", True, "import joblib\njoblib.dump(model, 's3://b/m')\n", ALONE),
    ("TW142", True, "import pickle\npickle.dump(model, open('s3://b/m', 'wb'))\n", ALONE),
    ("TW142", True, "from safetensors.torch import save_file\nsave_file(state, 's3://b/m')\n", ALONE),
    ("TW142", False, "import tensorflow as tf\nmodel = tf.keras.Sequential()\nmodel.save('s3://b/m')\n", TENSORFLOW),
    # What is uploaded, copied or read again was only put aside.
    *(("TW142", False, kept("'m.pt'", f"store.{call}('m')"), ALONE) for call in ("to_s3", "s3_copy", "upload_dir")),
    ("TW142", True, kept("'m.pt'", before="store.upload_dir('m')"), ALONE),
    *(
        ("TW142", False, kept(TMP, f"{call}(one, two)"), ALONE)
        for call in ("shutil.copy", "shutil.copy2", "shutil.copytree", "shutil.copyfile", "shutil.move", "os.system",
                     "subprocess.run", "subprocess.check_call", "subprocess.Popen")
    ),
    ("TW142", True, kept(TMP, before="os.system('ls')"), ALONE),
    ("TW142", True, kept("'m.pt'", "os.system('ls')"), ALONE),
    *(
        ("TW142", False, kept(TMP, f"work.{call}({TMP})"), ALONE)
        for call in ("load", "load_model", "load_file", "load_state_dict", "from_pretrained")
    ),
    ("TW142", True, kept(TMP, "torch.load('/tmp/other.pt')"), ALONE),
    ("TW142", True, kept(TMP, before=f"torch.load({TMP})"), ALONE),
    ("TW142", True, kept(TMP, "torch.load(os.path.join('/tmp', name))"), ALONE),
    ("TW142", False, kept("os.path.join('/tmp', name)", "torch.load(os.path.join('/tmp', name))"), ALONE),
    ("TW142", True, kept("os.path.join('/tmp', name)", "torch.load(os.path.join('/data', name))"), ALONE),
    ("TW142", False, kept(TMP, STATE), ALONE),
    ("TW142", True, kept(TMP, before=STATE), ALONE),
    ("TW142", True, kept("'m.pt'", STATE), ALONE),
    ("TW142", True, kept(TMP, "torch.save(x, '/opt/ml/output/data/x.pt')"), ALONE),
    ("TW142", False, kept("folder + '/m.pt'", before="folder = tempfile.TemporaryDirectory().name"), ALONE),
    ("TW142", True, kept("'m.pt'", before="folder = tempfile.TemporaryDirectory().name"), ALONE),
    ("TW142", True, "import tensorflow as tf\nback = tf.keras.callbacks.BackupAndRestore('/tmp/b')\n"
     "model.save('/opt/ml/model/1')\n", TENSORFLOW),
    # Data are prepared again by the next job.
    *(
        ("TW142", found, kept(path, what=what), ALONE)
        for what, path, found in (
            ("dataset", "'x.pt'", False), ("features", "'x.pt', pickle", False), ("rows", "'cached_x.pt'", False),
            ("rows", "'x.pt'", True), ("model_features", "'x.pt'", True), ("optim_features", "'x.pt'", True),
            ("state", "'cached_x.pt'", True),
        )
    ),
    ("TW142", False, "import joblib\njoblib.dump(vocab, 'x.pkl')\n", ALONE),
    ("TW142", True, BERT + "net = AutoModel.from_pretrained('b')\nnet.save_pretrained('dataset', 'cached_x')\n", ALONE),
    # --- checkpoints
    ("TW143", False, MODEL + "where = '/opt/ml/ckpt'\n", OWN),
    ("TW143", True, MODEL + "where = '/opt/ml/ckpt'\n", KEEPS),
    ("TW143", False, MODEL, {**KEEPS, "environment": {"KEEP": "/opt/ml/checkpoints"}}),
]  # fmt: skip


READS = 'import os, logging, argparse\nimport torch\nwhere = os.environ["SM_MODEL_DIR"]\n'
SAVED = READS + LOOP + "{before}\ntorch.save(model.state_dict(), {path})\n{after}\n"
OUTPUT = "'/opt/ml/output/data/m.pt'"


def elsewhere(after: str = "", path: str = OUTPUT, before: str = "") -> str:
    """A training that saves its model, but not where SageMaker looks for it."""
    return SAVED.format(before=before, path=path, after=after)


def trained(arguments: str, after: str = "", name: str = "TrainingArguments", of: str = "transformers") -> str:
    made = f"from {of} import {name}\nargs = {name}({arguments})\n"
    return f"{READS}from transformers import Trainer\n{made}trainer = Trainer(model, args)\ntrainer.train()\n{after}\n"


PARSED = f"{READS}from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
PARSED += "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
KERAS = 'import os\nimport tensorflow as tf\nwhere = os.environ["SM_MODEL_DIR"]\n'
CHECKPOINTS: dict[str, Any] = {**ALONE, "hyperparameters": {"output_dir": "/opt/ml/checkpoints"}}
MODELS: dict[str, Any] = {**ALONE, "hyperparameters": {"output_dir": "/opt/ml/model"}}
RESULTS: list[tuple[str, bool, str, dict[str, Any] | None]] = [
    # --- nothing is saved
    ("TW144", True, READS + LOOP, ALONE),
    ("TW144", False, READS + "print(torch.load(where))\n", ALONE),
    ("TW144", False, READS + "def never_called(loss):\n    loss.backward()\n", ALONE),
    *(
        ("TW144", False, READS + LOOP + f"work.{call}(weights)\n", ALONE)
        for call in ("save", "hook", "save_all", "do_save", "saver", "checkpointer", "checkpoint_manager", "to_csv")
    ),
    ("TW144", False, READS + LOOP + "import accelerate\n", ALONE),
    ("TW144", True, KERAS + "model.fit(data)\n", TENSORFLOW),
    ("TW144", True, KERAS + "net = tf.keras.Sequential()\nnet.fit(data)\n", TENSORFLOW),
    ("TW144", False, KERAS + "def never_called():\n    model.fit(data)\n", TENSORFLOW),
    ("TW144", False, KERAS + "fit(data)\n", TENSORFLOW),
    ("TW144", False, KERAS + "import work\nwork.fit(data)\n", TENSORFLOW),
    ("TW144", False, KERAS + "words.fit(data)\n", TENSORFLOW),
    ("TW144", False, READS + "from sklearn.svm import SVC\nrows = SVC()\nrows.fit(data)\n", ALONE),
    # Only a script that is meant for SageMaker, or says where results go, has something to save.
    ("TW144", False, "import torch" + LOOP, ALONE),
    ("TW144", True, "import torch" + LOOP, {**ALONE, "hyperparameters": {"sagemaker_program": "a.py"}}),
    ("TW144", True, parser('"--save_dir"') + "import torch" + LOOP, ALONE),
    ("TW144", False, parser('"--rows"') + "import torch" + LOOP, {**ALONE, "hyperparameters": {"rows": 1}}),
    ("TW144", True, "import torch" + LOOP, {**ALONE, "hyperparameters": {"rows": 1, "model_dir": "s3://b"}}),
    ("TW144", False, parser('"--model_dir"') + "import tensorflow as tf\nmodel.fit(data)\n", TENSORFLOW),
    # A job file that describes the whole job asks for a result; one of instances and processes alone does not.
    *(
        ("TW144", found, "import torch" + LOOP, ALONE | more)
        for found, more in (
            (True, {"image": "123456789012.dkr.ecr.us-west-2.amazonaws.com/team/pytorch:1"}),
            (True, {"role": "arn:aws:iam::123456789012:role/training"}),
            (True, {"entry_point": "train.py"}),
            (True, {"inputs": {"training": "s3://b/x"}}),
            (False, {"instance_count": 2}),
            (False, {"distribution": {"torch_distributed": {"enabled": True}}}),
            (False, {"hyperparameters": {"rows": 1}}),
        )
    ),
    ("TW144", False, "import torch" + LOOP + "torch.save(weights, place())\n", ALONE | {"entry_point": "train.py"}),
    # --- nothing of it is in SM_MODEL_DIR
    ("TW145", True, elsewhere(), ALONE),
    ("TW145", False, elsewhere(path="where + '/m.pt'"), ALONE),
    ("TW145", False, elsewhere(path="place()"), ALONE),
    ("TW145", False, elsewhere("torch.save(x, where)"), ALONE),
    ("TW145", False, elsewhere("torch.save(x, place())"), ALONE),
    ("TW145", False, elsewhere("engine.save_checkpoint()"), ALONE),
    ("TW145", False, elsewhere("import shutil\nshutil.copytree('/opt/ml/output/data', where)"), ALONE),
    ("TW145", True, elsewhere("import shutil\nshutil.copytree('/opt/ml/output/data', '/opt/ml/checkpoints')"), ALONE),
    ("TW145", True, elsewhere("tokenizer.save_pretrained(where)"), ALONE),
    ("TW145", False, elsewhere("upload_all()"), ALONE),
    *(
        ("TW145", False, elsewhere(f"work.{call}(weights)"), ALONE)
        for call in ("dump", "savez", "export", "to_csv", "save_file", "log_model", "upload_file", "save_to_disk")
    ),
    ("TW145", False, elsewhere("print(tempfile.TemporaryDirectory)"), ALONE),
    ("TW145", False, elsewhere("import smdebug\nprint(smdebug)"), ALONE),
    # A function that receives the folder may save there; print does not.
    ("TW145", False, elsewhere("work.put(where)"), ALONE),
    *(
        ("TW145", True, elsewhere(line), ALONE)
        for line in ("os.makedirs(where)", "print(where)", "logging.info(where)",
                     "p.add_argument('--m', default=where)", "argparse.Namespace(m=where)",
                     "def note(a):\n    return a\nnote(where)")
    ),
    # TW142 reports folders that are lost, but not one that an argument may change.
    ("TW145", False, elsewhere(path="'out/m.pt'"), ALONE),
    ("TW145", True, parser('"--out", default="out"') + elsewhere(path="os.path.join(args.out, 'm.pt')"), ALONE),
    ("TW145", False, parser('"--o", default="out"') + elsewhere("torch.save(x, args.o)", path="'out/m.pt'"), ALONE),
    ("TW145", True, elsewhere("torch.save(x, 'out/m.pt')"), ALONE),
    # --- Trainer
    *(
        ("TW145", found, trained(words), ALONE)
        for words, found in (
            ("'/opt/ml/checkpoints'", True),
            ("output_dir='/opt/ml/checkpoints'", True),
            ("'/opt/ml/model'", False),
            ("output(), save_strategy='no'", True),
            ("output(), save_strategy='epoch'", False),
            ("output()", False),
        )
    ),
    ("TW145", True, trained("'/opt/ml/checkpoints'", name="SFTConfig", of="trl"), ALONE),
    ("TW145", True, trained("'/opt/ml/checkpoints'", name="Seq2SeqTrainingArguments"), ALONE),
    ("TW145", True, trained("'/opt/ml/checkpoints'", "trainer.save_model()"), ALONE),
    ("TW145", False, trained("'/opt/ml/checkpoints'", "trainer.save_model(where)"), ALONE),
    ("TW145", False, trained("'/opt/ml/checkpoints'", "torch.save(x, '/srv')\nmodel.save_pretrained(where)"), ALONE),
    ("TW145", True, PARSED + "trainer = Trainer(model, args)\ntrainer.train()\n", CHECKPOINTS),
    ("TW145", False, PARSED + "trainer = Trainer(model, args)\ntrainer.train()\n", MODELS),
    ("TW145", False, PARSED + "trainer = Trainer(model, args)\ntrainer.train()\n", ALONE),
    ("TW145", False, PARSED.replace("(args,) =", "#") + "trainer = Trainer(model)\ntrainer.train()\n", CHECKPOINTS),
    ("TW145", True, PARSED + elsewhere(), MODELS),
]  # fmt: skip


@pytest.mark.parametrize(("code", "reported", "script", "job"), [*RANKS, *PLACES, *RESULTS])
def test_a_mistake_is_reported_and_what_is_near_to_it_is_not(
    code: str, reported: bool, script: str, job: dict[str, Any] | None
) -> None:
    found = codes(script, job)
    assert (code in found) == reported, (found, script)


HELPER = "import torch\nimport torch_xla.core.xla_model as xm\ndef keep(model):\n    torch.save(model, 'model.pt')\n"


@pytest.mark.parametrize("called", [True, False])
def test_a_function_of_another_file_counts_where_it_is_called(called: bool) -> None:
    main = XLA + "import helper\n" + ("helper.keep(model)\n" if called else "")
    script = Script((read(main), read(HELPER, "helper.py")), (), ("train.py", "helper.py"))
    found = {each.code for each in examine(script).findings}
    assert ({"TW140", "TW142"} <= found) == called


def test_what_a_function_never_called_saves_counts_in_the_script_itself() -> None:
    assert {"TW140", "TW142"} <= codes(HELPER)


@pytest.mark.parametrize(
    ("path", "place"), [("'m.pt'", "working folder"), (TMP, "temporary folder"), ("'/srv/m.pt'", "a folder, which")]
)
def test_the_place_that_is_lost_is_named(path: str, place: str) -> None:
    (found,) = [each for each in findings(kept(path), ALONE) if each.code == "TW142"]
    assert place in found.message


@pytest.mark.parametrize(("job", "told"), [({"spot": True}, True), (KEEPS, False)])
def test_why_checkpoints_matter_is_named(job: dict[str, Any], told: bool) -> None:
    (found,) = [each for each in findings("import torch" + LOOP, job) if each.code == "TW143"]
    assert ("spot" in found.message) == told
