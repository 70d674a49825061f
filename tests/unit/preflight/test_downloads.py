"""What a script fetches: in a job with network isolation, and in the first of several hosts alone.

Sources: AWS's API reference, CreateTrainingJob, EnableNetworkIsolation; Hugging Face's documentation of
from_pretrained, load_dataset and HF_HUB_OFFLINE; torchvision's of its data sets (download) and models (weights).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, TORCHRUN, Case, codes, parser, read, unmet
from trainwright.core.records import parse_record
from trainwright.preflight.preflight import examine
from trainwright.sagemaker.job import Job
from trainwright.script.reader import Module, Script

DLC = "763104351884.dkr.ecr.us-east-1.amazonaws.com/huggingface-pytorch-training:2.1.0-transformers4.36.0-gpu-py310"
ISOLATED: dict[str, Any] = {"instance_type": "ml.g5.2xlarge", "image": DLC, "network_isolation": True}
OWN = {**ISOLATED, "image": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/trainer:1"}
SEVERAL = {**ISOLATED, "instance_type": P4D, "distribution": TORCHRUN}
OPEN = {**ISOLATED, "network_isolation": False}
HEAD = (
    "import os\nimport subprocess\nimport sys\nimport boto3\nimport datasets\nimport evaluate\nimport requests\n"
    "import timm\nimport torch\nimport torchvision\nimport urllib.request\nimport tensorflow as tf\n"
    "from datasets import load_dataset\nfrom huggingface_hub import snapshot_download\n"
    "from transformers import AutoModel, AutoTokenizer\n"
)
ID = "AutoModel.from_pretrained('bert-base-uncased')"
MNIST = "torchvision.datasets.MNIST('/tmp/data', download=True)"
CHANNEL = "os.environ['SM_CHANNEL_TRAIN']"
NAME = parser("'--model', default='bert-base-uncased'") + "AutoModel.from_pretrained(args.model)"
NEEDED = parser("'--model', required=True") + "AutoModel.from_pretrained(args.model)"
FETCHES: list[Case] = [
    ("TW468", expected, HEAD + script, job)
    for expected, script, job in (
        ("error", ID, ISOLATED),
        (16, ID, ISOLATED),
        (True, "AutoTokenizer.from_pretrained('facebook/opt-125m')", ISOLATED),
        (True, NAME, ISOLATED),
        (True, NEEDED, {**ISOLATED, "hyperparameters": {"model": "org/name"}}),
        (True, "load_dataset('imdb')", ISOLATED),
        (True, "datasets.load_dataset('glue', 'mrpc')", ISOLATED),
        (True, "evaluate.load('accuracy')", ISOLATED),
        (True, "snapshot_download('org/name', local_dir='/tmp/m')", ISOLATED),
        (True, MNIST, ISOLATED),
        (True, "torchvision.models.resnet50(pretrained=True)", ISOLATED),
        (True, "torchvision.models.resnet50(weights='DEFAULT')", ISOLATED),
        (True, "torchvision.models.resnet50(weights=torchvision.models.ResNet50_Weights.DEFAULT)", ISOLATED),
        (True, "timm.create_model('vit', pretrained=True)", ISOLATED),
        (True, "torch.hub.load('pytorch/vision', 'resnet18')", ISOLATED),
        (True, "tf.keras.applications.ResNet50()", ISOLATED),
        (True, "tf.keras.datasets.mnist.load_data()", ISOLATED),
        (True, "requests.get('https://example.com/data.zip')", ISOLATED),
        (True, "urllib.request.urlretrieve('https://example.com/d.zip', '/tmp/d.zip')", ISOLATED),
        (True, "boto3.client('s3').download_file('b', 'k', '/tmp/d')", ISOLATED),
        (True, "boto3.resource('s3').Bucket('b').download_file('k', '/tmp/d')", ISOLATED),
        (True, "boto3.Session().client('s3').get_object(Bucket='b', Key='k')", ISOLATED),
        (True, "subprocess.check_call([sys.executable, '-m', 'pip', 'install', 'peft'])", ISOLATED),
        (True, "os.system('pip install -r requirements.txt')", ISOLATED),
        (True, "subprocess.run('aws s3 cp s3://b/d /tmp/d', shell=True)", ISOLATED),
        (True, "def main():\n    return " + ID + "\nmain()", ISOLATED),
        (True, "if int(os.environ['RANK']) == 0:\n    " + ID, {**ISOLATED, "distribution": TORCHRUN}),
        (True, "AutoModel.from_pretrained(pretrained_model_name_or_path='org/name')", ISOLATED),
        (True, "torch.hub.load('pytorch/vision', 'resnet18', source='github')", ISOLATED),
        (True, "import torch.distributed as dist\nif dist.get_rank() == 0:\n    " + ID, SEVERAL),
        (True, "d = torchvision.datasets.MNIST('/tmp/d', download=int(os.environ['LOCAL_RANK']) == 0)", SEVERAL),
        (True, "import torch.distributed as dist\nif dist.is_initialized():\n    " + ID, SEVERAL),
        # An image of one's own may hold it.
        ("warning", ID, OWN),
        ("warning", MNIST, OWN),
        ("warning", "os.system('pip install peft')", OWN),
        ("error", "requests.get('https://example.com/data.zip')", OWN),
        (False, ID, OPEN),
        (False, ID, None),
        # From a channel, or from the image.
        (False, f"AutoModel.from_pretrained({CHANNEL})", ISOLATED),
        (False, "AutoModel.from_pretrained('/opt/ml/input/data/model')", ISOLATED),
        (False, "AutoModel.from_pretrained('./model')", ISOLATED),
        (False, NEEDED, {**ISOLATED, "hyperparameters": {"model": "/opt/ml/input/data/model"}}),
        (False, NEEDED, ISOLATED),
        (False, "AutoModel.from_pretrained('bert-base-uncased', local_files_only=True)", ISOLATED),
        (False, "AutoModel.from_pretrained('bert-base-uncased', cache_dir='/opt/ml/input/data/cache')", ISOLATED),
        (False, "os.environ['HF_HUB_OFFLINE'] = '1'\n" + ID, ISOLATED),
        (False, "load_dataset('imdb')", {**ISOLATED, "environment": {"HF_DATASETS_OFFLINE": "1"}}),
        (False, ID, {**ISOLATED, "environment": {"HF_HOME": "/opt/ml/input/data/cache"}}),
        (False, "net.save_pretrained('last')\nAutoModel.from_pretrained('last')", ISOLATED),
        (False, "load_dataset('csv', data_files='/opt/ml/input/data/train/x.csv')", ISOLATED),
        (False, f"load_dataset({CHANNEL})", ISOLATED),
        (False, f"torchvision.datasets.MNIST({CHANNEL}, download=True)", ISOLATED),
        (False, "torchvision.datasets.MNIST('/tmp/data', download=False)", ISOLATED),
        (False, "torchvision.models.resnet50(weights=None)", ISOLATED),
        (False, "torchvision.models.resnet50()", ISOLATED),
        (False, "timm.create_model('vit')", ISOLATED),
        (False, "torch.hub.load('/opt/ml/input/data/hub', 'resnet18', source='local')", ISOLATED),
        (False, "tf.keras.applications.ResNet50(weights=None)", ISOLATED),
        (False, "requests.get('http://localhost:8080/ping')", ISOLATED),
        (False, "requests.get('http://169.254.170.2' + path)", ISOLATED),
        (False, "boto3.client('s3')", ISOLATED),
        (False, "os.system('pip install --no-index --find-links /opt/ml/input/data/wheels peft')", ISOLATED),
        (False, "os.system('pip install /opt/ml/code/mine.whl')", ISOLATED),
        (False, "os.system('nvidia-smi')", ISOLATED),
        # A fallback that may never be taken.
        (False, f"try:\n    {ID}\nexcept OSError:\n    pass", ISOLATED),
        (False, f"if os.path.exists(folder):\n    pass\nelse:\n    {ID}", ISOLATED),
        (False, f"def unused():\n    {ID}", ISOLATED),
    )
]
TWO: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
ALONE: dict[str, Any] = {**TWO, "instance_count": 1}
HOSTS = (
    DDP + "import urllib.request\nimport boto3\nfrom datasets import load_dataset, load_from_disk\n"
    "from huggingface_hub import snapshot_download\nfrom torchvision import datasets\n"
    "from transformers import AutoModel\n"
    "rank, local_rank = dist.get_rank(), int(os.environ['LOCAL_RANK'])\npath = '/tmp/data'\n"
)
ONE = "if {who} == 0:\n    {fetch}\ndist.barrier()\n{read}\n"


def hosts(fetch: str, read: str, who: str = "rank") -> str:
    """The first process fetches, and then every process reads."""
    return HOSTS + ONE.format(who=who, fetch=fetch, read=read)


GET, READ = "datasets.MNIST(path, download=True)", "rows = datasets.MNIST(path, download=False)"
FILE = "boto3.client('s3').download_file('b', 'k', '/tmp/rows.pt')"
SNAPSHOT = "snapshot_download('org/name', local_dir='/tmp/model')"
READS: list[Case] = [
    ("TW469", expected, script, job)
    for expected, script, job in (
        ("error", hosts(GET, READ), TWO),
        (True, hosts(GET, "rows = datasets.MNIST(path)"), TWO),
        (True, hosts(GET, f"if rank != 0:\n    {READ}"), TWO),
        (True, hosts(GET, READ, "int(os.environ['RANK'])"), TWO),
        (True, HOSTS + "rows = datasets.MNIST(path, download=(rank == 0))\n", TWO),
        (True, HOSTS + "rows = datasets.MNIST(path, download=dist.get_rank() == 0)\n", TWO),
        (True, hosts(FILE, "rows = torch.load('/tmp/rows.pt')"), TWO),
        (True, hosts("urllib.request.urlretrieve('https://a.b/c', 'rows.pt')", "rows = torch.load('rows.pt')"), TWO),
        (True, hosts(SNAPSHOT, "AutoModel.from_pretrained('/tmp/model')"), TWO),
        (True, hosts("load_dataset('imdb').save_to_disk('/tmp/rows')", "load_from_disk('/tmp/rows')"), TWO),
        (True, hosts("get(path)", READ) .replace("path =", f"def get(path):\n    {GET}\npath =", 1), TWO),
        (False, hosts(GET, READ, "local_rank"), TWO),
        (False, hosts(GET, READ), ALONE),
        (False, hosts(GET, READ), None),
        # The processes of the other hosts fetch for themselves.
        (False, hosts(GET, GET), TWO),
        (False, hosts("load_dataset('imdb')", "load_dataset('imdb')"), TWO),
        (False, hosts("AutoModel.from_pretrained('org/name')", "AutoModel.from_pretrained('org/name')"), TWO),
        (False, hosts("snapshot_download('org/name')", "AutoModel.from_pretrained('org/name')"), TWO),
        (False, HOSTS + "rows = datasets.MNIST(path, download=(local_rank == 0))\n", TWO),
        # Only the first process reads it, or nobody.
        (False, hosts(FILE + "\n    torch.load('/tmp/rows.pt')", "pass"), TWO),
        (False, hosts(FILE, "os.path.exists('/tmp/rows.pt')"), TWO),
        # The hosts share the folder, or each has it.
        (False, hosts(GET, READ).replace("'/tmp/data'", "'/fsx/data'"), TWO),
        (False, hosts(GET, READ).replace("'/tmp/data'", "os.environ['SM_CHANNEL_TRAIN']"), TWO),
        (False, hosts(GET, READ).replace("'/tmp/data'", "where()"), TWO),
    )
]  # fmt: skip


@pytest.mark.parametrize("case", FETCHES, ids=range(len(FETCHES)))
def test_an_isolated_job_fetches_nothing(case: Case) -> None:
    assert not unmet(case), unmet(case)


@pytest.mark.parametrize("case", READS, ids=range(len(READS)))
def test_each_host_has_what_it_reads(case: Case) -> None:
    assert not unmet(case), unmet(case)


def test_a_folder_beside_the_script_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    text = "from transformers import AutoModel\nAutoModel.from_pretrained('model')\n"
    assert "TW468" in codes(text, ISOLATED)
    module = read(text)
    beside = Module(tmp_path / "train.py", "train.py", module.text, module.tree)
    found = examine(Script((beside,), (), ("train.py",)), parse_record(Job, ISOLATED, "job")).findings
    assert "TW468" not in {finding.code for finding in found}
