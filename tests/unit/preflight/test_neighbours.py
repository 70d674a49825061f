"""Beside a mistake, the right way that public scripts have in its place: the first is reported, the second is not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.neighbour_scripts import (
    ADDRESS,
    ALONE,
    BUILT,
    COMPILED,
    FILES,
    HALF,
    HVD,
    HVD_LOOP,
    KEEPS,
    KERAS,
    MADE,
    MIRRORED,
    PARSER,
    RANKED,
    REQUIRED,
    SCALED,
    SHARES,
    TAPE,
    TENSORFLOW,
    TWO,
    VERSIONED,
)
from tests.support.training_scripts import DDP, LOOP, P4D, SAVE, TORCHRUN, codes, findings, parser, write
from trainwright.preflight.preflight import preflight

NEIGHBOURS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    # Lightning's fabric example of meta learning: cherry.optim.Distributed averages the gradients.
    "gradients averaged by another library": (
        "TW124",
        ALONE + LOOP,
        ALONE + "import cherry\noptimizer = cherry.optim.Distributed(model.parameters(), opt=optimizer)\n" + LOOP,
        TWO,
    ),
    # NVIDIA/DeepLearningExamples, VAE-CF: a profiler's hook.
    "a profiler at every step": (
        "TW153",
        "import tensorflow as tf\nhook = tf.train.CheckpointSaverHook('/opt/ml/checkpoints', save_steps=1)\n",
        "import tensorflow as tf\nhook = tf.train.ProfilerHook(save_steps=1, output_dir='.')\n",
        TENSORFLOW,
    ),
    # facebookresearch/deit, utils.py: a checkpoint in memory.
    "saved into memory": (
        "TW141",
        DDP + LOOP + SAVE,
        DDP + LOOP + "import io\nmemory = io.BytesIO()\ntorch.save(model.state_dict(), memory)\n",
        TWO,
    ),
    # NVIDIA/DeepLearningExamples, TensorFlow ConvNets: the other ranks never save.
    "an Estimator that saves on one rank": (
        "TW141",
        HVD + "tf.estimator.Estimator(model_fn=f, model_dir='/opt/ml/model')\n",
        HVD
        + "run = tf.estimator.RunConfig(save_checkpoints_steps=1000 if hvd.rank() == 0 else None)\n"
        + "tf.estimator.Estimator(model_fn=f, model_dir='/opt/ml/model', config=run)\n",
        TENSORFLOW,
    ),
    # aws-samples/amazon-sagemaker-script-mode, tf-horovod-inference-pipeline: a function that writes the model.
    "a saver that is not known": (
        "TW145",
        KERAS,
        KERAS + "import exporter\nexporter.write(model, where)\n",
        {"instance_type": P4D, "plan": {"framework": "tensorflow"}},
    ),
    "Keras's saver of TensorFlow 1": (
        "TW145",
        KERAS,
        KERAS + "tf.contrib.saved_model.save_keras_model(model, where)\n",
        {"instance_type": P4D, "plan": {"framework": "tensorflow"}},
    ),
    # microsoft/Swin-Transformer, main.py: required for PyTorch 1 alone.
    "required under a condition": (
        "TW194",
        PARSER + REQUIRED + "args = p.parse_args()\n",
        PARSER + VERSIONED + REQUIRED + "args = p.parse_args()\n",
        TWO,
    ),
    # huggingface/peft, train_gsm8k_llama.py: the value only becomes a part of a text.
    "a number in a text": (
        "TW195",
        parser('"--split", default=5') + "print(args.split + 1)\n",
        parser('"--split", default=5') + 'print(f"train[:{args.split}%]")\n',
        TWO,
    ),
    # NVIDIA/DeepLearningExamples, wav2vec2: the scaler is there, but switched off.
    "half with a scaler that is off": (
        "TW139",
        HALF + "scaler = torch.cuda.amp.GradScaler()\n" + SCALED,
        HALF + "scaler = torch.cuda.amp.GradScaler(enabled=False)\n" + SCALED,
        {"instance_type": P4D},
    ),
    # facebookresearch/swav: the argument is ignored, the device follows from the rank.
    "a local rank that nobody needs": (
        "TW123",
        RANKED + "torch.cuda.set_device(args.local_rank)\n" + LOOP,
        RANKED + "torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())\n" + LOOP,
        {"instance_type": P4D, "distribution": TORCHRUN},
    ),
    # facebookresearch/swav, src/utils.py: the arguments are written down.
    "arguments in a pickle": (
        "TW141",
        DDP + LOOP + "import pickle\npickle.dump(model.state_dict(), open('/opt/ml/model/m.pkl', 'wb'))\n",
        DDP + LOOP + "import pickle\npickle.dump(args, open('/opt/ml/model/args.pkl', 'wb'))\n",
        TWO,
    ),
    # NVIDIA/DeepLearningExamples, BART: a class of the script's own that is called device.
    "another device": (
        "TW129",
        DDP + "where = torch.device(dist.get_rank())\n" + LOOP,
        DDP + "class device:\n    def __init__(self, n):\n        self.n = n\nwhere = device(dist.get_rank())\n" + LOOP,
        TWO,
    ),
    # zzh8829/yolov3-tf2: one function, called with and without a strategy.
    "compiled with and without a strategy": (
        "TW189",
        MIRRORED + "with strategy.scope():\n    tf.Variable(1)\nmake()\n",
        MIRRORED + "if args.multi:\n    with strategy.scope():\n        make()\nelse:\n    make()\n",
        {"instance_type": P4D, "plan": {"framework": "tensorflow"}},
    ),
    # NVIDIA/DeepLearningExamples, UNet3P: made inside the scope, compiled after it.
    "compiled after the scope": (
        "TW189",
        BUILT + "opt = tf.keras.optimizers.Adam()\nmodel = build()\n" + COMPILED,
        BUILT + f"if multi:\n    with strategy.scope():\n    {MADE}else:\n{MADE}" + COMPILED,
        {"instance_type": P4D, "plan": {"framework": "tensorflow"}},
    ),
    # NVIDIA/DeepLearningExamples, ELECTRA, run_tf_squad.py: the tape averages, compile names the metrics.
    "compiled beside a tape": (
        "TW185",
        HVD_LOOP + "opt2 = hvd.DistributedOptimizer(opt)\nmodel.compile(optimizer=opt, loss='mse')\nmodel.fit(data)\n",
        HVD_LOOP + TAPE + "model.compile(optimizer=opt, loss='mse')\n",
        TENSORFLOW,
    ),
    # ultralytics/yolov5, segment/train.py: only where no launcher has started several processes.
    "all GPUs without a launcher": (
        "TW124",
        ALONE + "model = torch.nn.DataParallel(model)\n" + LOOP,
        ALONE
        + "if dist.get_rank() == -1:\n    model = torch.nn.DataParallel(model)\nmodel = smart_DDP(model)\n"
        + LOOP,
        TWO,
    ),
    # aws/deep-learning-containers, the test of TensorFlow: a branch for each strategy, and one for none.
    "compiled without a strategy": (
        "TW189",
        MIRRORED + "make()\n",
        MIRRORED + "if args.mirrored:\n    with strategy.scope():\n        make()\n"
        "else:\n    model = tf.keras.Sequential([])\n    model.compile(optimizer='adam', loss='mse')\n",
        {"instance_type": P4D, "plan": {"framework": "tensorflow"}},
    ),
    # rentainhe/pytorch-distributed-training: the sum of one step's pieces.
    "a sum that each step starts anew": (
        "TW149",
        "import torch\ntotal = 0\n" + LOOP + "    total += loss\n",
        "import torch\n" + LOOP + "    total = 0\n    for part in x:\n        total = 0\n        total += loss\n",
        {"instance_type": P4D},
    ),
    # aws-samples/sagemaker-distributed-training-pytorch-kr: a folder that the script makes.
    "a folder that is made": (
        "TW180",
        "import os\nconfig = open('/root/.aws/config')\n",
        "import os\nos.makedirs('/root/.aws/', exist_ok=True)\nconfig = open('/root/.aws/config', 'w')\n",
        {"instance_type": P4D},
    ),
    "a folder that is made by itself": (
        "TW180",
        "import os\nconfig = open('/data/out/a.txt')\n",
        "import os\nos.mkdir('/data/out')\nconfig = open('/data/out/a.txt', 'w')\n",
        {"instance_type": P4D},
    ),
    "a path of a class": (
        "TW180",
        "data = Pictures('/data/train')\n",
        "data = describe('/data/train')\n",
        {"instance_type": P4D},
    ),
    "a text of several lines": (
        "TW180",
        "where = '/data/train'\n",
        "where = '/data/train\\nis where it was'\n",
        {"instance_type": P4D},
    ),
    "places to choose from": (
        "TW180",
        parser('"--data", default="/mnt/data"'),
        parser('"--data", choices=["/mnt/a", "/mnt/b"]'),
        {"instance_type": P4D},
    ),
    "a channel that is filled in": (
        "TW181",
        "data = open('/opt/ml/input/data/train/x.csv')\n",
        "data = open('/opt/ml/input/data/{}/x.csv'.format(name))\n",
        {"inputs": {"training": "s3://b/d"}},
    ),
    # tom5610/sagemaker-training-job-wandb-samples: /opt/ml/checkpoint is not the folder that is kept.
    "checkpoints of Lightning": (
        "TW142",
        KEEPS.format("/opt/ml/checkpoint"),
        KEEPS.format("/opt/ml/checkpoints"),
        {"instance_type": P4D},
    ),
    # LambdaLabsML/distributed-training-guide: the rank within a dimension of a mesh.
    "the rank of a mesh": (
        "TW175",
        DDP + SHARES.format(rank="int(os.environ['LOCAL_RANK'])"),
        DDP
        + "mesh = dist.device_mesh.init_device_mesh('cuda', (2, 8), mesh_dim_names=('dp', 'tp'))\n"
        + SHARES.format(rank="mesh['dp'].get_local_rank()"),
        TWO,
    ),
    # nreimers/se-pytorch-xla: the weights are loaded in each process.
    "weights that are loaded": (
        "TW173",
        "import torch.distributed as dist\ndist.init_process_group('nccl')\n" + LOOP,
        "import torch.distributed as dist\ndist.init_process_group('nccl')\n"
        "from transformers import AutoModel\nmodel = AutoModel.from_pretrained('bert-base-uncased')\n" + LOOP,
        TWO,
    ),
    # daekeun-ml/sagemaker-distributed-training: a file for each rank, a part for each rank, and an upload.
    "a file for each rank": (
        "TW171",
        DDP + FILES.format(file="files[0]") + LOOP,
        DDP + FILES.format(file="files[dist.get_rank()]") + LOOP,
        TWO,
    ),
    "a part for each rank": (
        "TW171",
        DDP + "data = Parts()\nloader = DataLoader(data)\n" + LOOP,
        DDP + "data = Parts()\ndata.select(f'{dist.get_rank()}')\nloader = DataLoader(data)\n" + LOOP,
        TWO,
    ),
    "a folder that is uploaded": (
        "TW142",
        "import torch\ntorch.save(model.state_dict(), 'out/model.pt')\n",
        "import torch\ntorch.save(model.state_dict(), 'out/model.pt')\nsync_checkpoints_to_s3('out')\n",
        {"instance_type": P4D},
    ),
    # eljandoubi/distributed-training-framework: a checkpointer that shards.
    "a checkpointer of its own": (
        "TW141",
        DDP + "torch.save(model.state_dict(), '/opt/ml/model/m.pt')\n" + LOOP,
        DDP + "from training import CheckpointManager\nkeep = CheckpointManager(model)\nkeep.save(step)\n" + LOOP,
        TWO,
    ),
    # NVIDIA/DeepLearningExamples, ELECTRA: a schedule that is made elsewhere.
    "a schedule as the rate": (
        "TW125",
        HVD + "opt = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(learning_rate=0.1))\n",
        HVD + "opt = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(learning_rate=learning_rate_fn))\n",
        {**TENSORFLOW, "instance_count": 2},
    ),
}


@pytest.mark.parametrize("name", list(NEIGHBOURS))
def test_the_mistake_is_reported_and_its_neighbour_is_not(name):
    code, wrong, right, job = NEIGHBOURS[name]
    assert code in codes(wrong, job)
    assert code not in codes(right, job)


def test_a_default_that_the_job_sets_is_not_reported():
    text = parser('"--data", default="/mnt/data"')
    assert "TW180" in codes(text, {"hyperparameters": {"other": "x"}})
    assert "TW180" not in codes(text, {"hyperparameters": {"data": "s3"}})


def test_a_default_that_is_kept_under_its_name_is_reported_once():
    text = parser('"--data_dir", default="/mnt/data"')
    again = "options = Options(data_dir='/mnt/data')\n"
    for kept, count in ((again, 1), (again.replace("data_dir", "other"), 2)):
        assert [f.code for f in findings(text + kept, {})].count("TW180") == count


def test_an_address_is_reported_once():
    port = [f.message for f in findings(ADDRESS + DDP + LOOP, TWO) if f.code == "TW163"]
    both = [
        f.message
        for f in findings('import os\nos.environ["MASTER_ADDR"] = "::1"\n' + ADDRESS, TWO)
        if f.code == "TW163"
    ]
    assert port == ["os.environ[\"MASTER_PORT\"] = '12345'"]
    assert both == ["os.environ[\"MASTER_ADDR\"] = '::1'"]


def test_what_a_loop_repeats_is_one_finding():
    more = LOOP + "    total += loss.item()\n    print(loss.item())\n    print(loss.item())\n"
    told = [f for f in findings(DDP + more, TWO) if f.code in ("TW150", "TW151")]
    assert [(f.code, f.message.partition("(and")[2]) for f in told] == [
        ("TW150", " 2 more like it)"),
        ("TW151", " 1 more like it)"),
    ]


def test_an_imported_file_is_not_started(tmp_path):
    helper = 'import os\nif __name__ == "__main__":\n    os.environ["N"] = 4\n'
    write(tmp_path, train="import helper\n", helper=helper)
    assert preflight([str(tmp_path / "train.py")]).findings == ()
    assert [f.code for f in preflight([str(tmp_path / "helper.py")]).findings] == ["TW160"]


def test_a_tuner_passes_its_hyperparameters():
    text = parser('"--epochs", type=int, default=1')
    tuner = {"metric": "loss", "goal": "Minimize", "ranges": {"lr": {"min": 0.001, "max": 0.1}}}
    assert "TW193" not in codes(text, TWO)
    assert "TW193" in codes(text, {**TWO, "tuner": tuner})
    choice = {**tuner, "ranges": {"lr": {"values": ["a", "b"]}}}
    assert "TW198" in codes(parser('"--lr", type=float'), {**TWO, "tuner": choice})


@pytest.mark.parametrize(
    ("instance", "where"), [("ml.g5.2xlarge", "to the GPU"), ("ml.p4d.24xlarge", "to one of the 8 GPUs")]
)
def test_a_model_that_stays_in_main_memory_beside_one_gpu_or_more(instance, where):
    (found,) = [each for each in findings("import torch" + LOOP, {"instance_type": instance}) if each.code == "TW411"]
    assert found.message.endswith(f"nothing moves the model {where}")


def test_a_missing_argument_is_named_by_its_long_name():
    text = parser('"-d", "--dataset-name", required=True')
    assert [f.message for f in findings(text, TWO) if f.code == "TW194"] == ["--dataset-name is required"]
