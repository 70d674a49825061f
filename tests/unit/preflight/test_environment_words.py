"""Environment variables: every way to set and read one, and near misses.

Sources: Python's documentation of os.environ; sagemaker-training's ``environment.py``; PyTorch's documentation of
torchrun; Open MPI's of mpirun.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, SMP_JOB, TORCHRUN, XLA_JOB, Case, but, findings, parser, unmet

ONE: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN}
TWO = ONE | {"instance_count": 2}
ALONE: dict[str, Any] = {"instance_type": P4D}
MPI: dict[str, Any] = {"instance_type": P4D, "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}}
SMDDP: dict[str, Any] = {
    "instance_type": P4D,
    "instance_count": 2,
    "distribution": {"smdistributed": {"dataparallel": {"enabled": True}}},
}
MWMS: dict[str, Any] = {
    "instance_type": P4D,
    "instance_count": 2,
    "plan": {"framework": "tensorflow"},
    "distribution": {"multi_worker_mirrored_strategy": {"enabled": True}},
}
SERVERS = MWMS | {"distribution": {"parameter_server": {"enabled": True}}}
OS = "import json, os\nfrom os import environ, getenv, putenv\nimport torch\n"


def told(code: str, rows: list[tuple[bool | str | int, str]], job: dict[str, Any] | None = None) -> list[Case]:
    """Cases that are a few lines each."""
    return [(code, expected, f"{OS}{line}\n", job) for expected, line in rows]


TEXTS: list[Case] = [
    *told("TW160", [
        *[(4, f"os.environ['N'] = {value}") for value in (
            "4", "4.0", "True", "None", "b'4'", "int(n)", "float(n)", "len(rows)", "bool(n)", "dict(n)", "list(n)",
            "torch.cuda.device_count()", "os.cpu_count()", "n - 1", "n / 2", "n // 2", "n ** 2", "[1]", "{}", "(1, 2)",
        )],
        *[(False, f"os.environ['N'] = {value}") for value in (
            "'4'", "str(4)", "n", "f'{n}'", "json.dumps(rows)", "'a' * n", "a + b", "a % b", "max(names)",
        )],
        (4, "environ['N'] = 4"), (4, "os.environ[name] = 4"), (False, "settings['N'] = 4"), (False, "os.environ.n = 4"),
        (4, "a = os.environ['N'] = 4"), (4, "os.environ['N']: int = 4"), (False, "os.environ['N']: str"),
        (False, "os.environ['N'] += 4"), (False, "n = os.environ['N']"),
        (4, "os.environ.setdefault('N', 4)"), (4, "os.environ.setdefault(key='N', value=4)"), (4, "os.putenv('N', 4)"),
        (False, "os.environ.setdefault('N', '4')"), (False, "settings.setdefault('N', 4)"),
        (False, "os.environ.setdefault('N')"), (False, "os.environ.get('N', 4)"),
        (4, "os.environ.update({'N': 4})"), (4, "os.environ.update({'M': '1', 'N': 4})"), (4, "os.environ.update(N=4)"),
        (False, "os.environ.update(N='4')"), (False, "os.environ.update(**more)"), (False, "os.environ.update(more)"),
        (False, "settings.update({'N': 4})"), (False, "os.environ.update([('N', 4)])"),
        (4, "os.environ.update({'M': '1'}, N=4)"),
    ]),
    ("TW162", True, f"{OS}os.environ['GPU_NUM_DEVICES'] = '4'\n", ALONE),
    ("TW162", False, f"{OS}os.environ['GPU_NUM_DEVICES'] = '8'\n", ALONE),
    ("TW162", False, f"{OS}os.environ['NUM_DEVICES'] = '4'\n", ALONE),
    ("TW162", False, f"{OS}os.environ['GPU_NUM_DEVICES'] = n\n", ALONE),
    ("TW162", False, f"{OS}os.environ['GPU_NUM_DEVICES'] = '4'\n", None),
    ("TW162", False, f"{OS}os.environ['GPU_NUM_DEVICES'] = '4'\n", {"instance_count": 1}),
]  # fmt: skip
LISTS = ("SM_HOSTS", "SM_CHANNELS", "SM_HPS", "SM_RESOURCE_CONFIG", "SM_INPUT_DATA_CONFIG", "SM_USER_ARGS",
         "SM_TRAINING_ENV", "SM_FRAMEWORK_PARAMS")  # fmt: skip
HOSTS = "os.environ['SM_HOSTS']"
NUMBERS: list[Case] = told("TW161", [
    *[(4, f"n = {words}") for words in (
        "os.environ['N'] * 2", "os.environ['N'] - 1", "64 / os.environ['N']", "64 // os.environ['N']",
        "os.environ['N'] ** 2", "os.environ['N'] == 1", "1 != os.environ['N']", "os.environ['N'] > 1.5",
        "range(os.environ['N'])", f"len({HOSTS})", f"{HOSTS}[0]", f"[h for h in {HOSTS}]",
    )],
    *[(False, f"n = {words}") for words in (
        "int(os.environ['N']) * 2", "os.environ['N'] + suffix", "'-' * 2 + os.environ['N']", "folder / os.environ['N']",
        "os.environ['N'] * '2'", "os.environ['N'] == '1'", "os.environ['N'] == other", "0 < os.environ['N'] < other",
        "len(os.environ['NAME'])", "os.environ['NAME'][0]", "[c for c in os.environ['NAME']]", f"rows[{HOSTS}]",
        f"[h for h in hosts if {HOSTS}]", f"print({HOSTS})", f"json.loads({HOSTS})[0]", "range(int(os.environ['N']))",
    )],
    (4, f"for h in {HOSTS}:\n    print(h)"), (False, f"for h in hosts:\n    print({HOSTS})"),
    *[(4, f"n = os.environ['{name}'][0]") for name in LISTS],
    # By a name.
    *[(5, f"hosts = {HOSTS}\n{words}") for words in (
        "hosts.index(name)", "hosts.sort()", "hosts.append(name)", "hosts.pop()", "hosts.remove(name)", "len(hosts)",
        "sorted(hosts)", "enumerate(hosts)", "list(hosts)", "tuple(hosts)", "set(hosts)", "reversed(hosts)",
         "min(hosts)",
        "zip(hosts, names)", "iter(hosts)", "max(hosts)", "print(hosts[0])", "zip(names, hosts)",
    )],
    *[(False, f"hosts = {HOSTS}\n{words}") for words in (
        "hosts.split(',')", "hosts.strip()", "print(hosts)", "json.loads(hosts)", "str(hosts)",
        "if isinstance(hosts, list):\n    hosts.index(name)", "if isinstance(hosts, list):\n    len(hosts)",
        "def later():\n    hosts.index(name)", "def later():\n    len(hosts)",
    )],
    (False, "name = os.environ['SM_CURRENT_HOST']\nname.index('-')"), (False,
     "name = os.environ['NAME']\nsorted(name)"),
    (False, "names.index('a')"), (False, f"hosts = json.loads({HOSTS})\nhosts.index(name)"),
    (4, f"sorted({HOSTS})"),
    (5, "n = os.environ['SM_NUM_GPUS']\nrange(n)"), (5, "n = os.environ['WORLD_SIZE']\nrange(n)"),
    (False, "n = int(os.environ['SM_NUM_GPUS'])\nrange(n)"), (False, "n = os.environ['SM_NUM_GPUS']\nstr(n)"),
    (False, "n = os.environ['OTHER']\nrange(n)"), (False, "n = os.environ['SM_NUM_GPUS']\ndef later():\n    range(n)"),
    (5, "rank = os.environ['LOCAL_RANK']\ntorch.cuda.set_device(rank)"), (4,
     "torch.cuda.set_device(os.environ['LOCAL_RANK'])"),
    (False, "rank = int(os.environ['LOCAL_RANK'])\ntorch.cuda.set_device(rank)"),
    (False, "rank = os.environ['LOCAL_RANK']\ntorch.cuda.set_device(f'cuda:{rank}')"),
    (False, "rank = os.environ['LOCAL_RANK']\nprint(rank)"),
    # An argument that takes a list, or the letters of the text.
    *[(expected, f"{but(parser(words), 'import argparse', 'import argparse, os')}print(args.hosts)") for expected,
     words in (
        (6, f'"--hosts", type=list, default={HOSTS}'), (6, f'"--hosts", type=tuple, default={HOSTS}'),
        (False, f'"--hosts", type=str, default={HOSTS}'), (False, f'"--hosts", default={HOSTS}'),
        (False, '"--hosts", type=list'), (False, '"--hosts", type=list, default=os.environ["NAME"]'),
        (False, f'"--hosts", type=json.loads, default={HOSTS}'), (False, f'"--all", type=list, default={HOSTS}'),
        (False, f'"--hosts", type=list, default=json.loads({HOSTS})'),
    )],
    (6, but(parser(f'"--all-hosts", type=list, default={HOSTS}'), "argparse\n",
     "argparse, os\n") + "print(args.all_hosts)"),
])  # fmt: skip
SPAWNS = "import torch.multiprocessing as mp\nmp.spawn(work, nprocs=8)\n"
BARE = "import os\nimport torch.distributed as dist\n"
JOINED = BARE + "dist.init_process_group('gloo')\n"


def places(script: str, line: str, expected: bool | str, job: dict[str, Any] | None) -> Case:
    return ("TW163", expected, f"{script}{line}\n", job)


RANK = "os.environ['RANK'] = '0'"
ADDRESS = "os.environ['MASTER_ADDR'] = 'localhost'"
PORT = "os.environ['MASTER_PORT'] = '29500'"
CONFIG = "os.environ['TF_CONFIG'] = json.dumps(each)"
OVERWRITTEN: list[Case] = [
    *[places(JOINED, f"os.environ['{name}'] = '1'", True, ONE) for name in (
        "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    )],
    places(JOINED, "os.environ['NODE'] = '1'", False, ONE),
    places(JOINED, "os.environ['RANK'] = str(rank)", False, ONE),
    places(JOINED, "os.environ.setdefault('RANK', '1')", False, ONE),
    places(JOINED, "if alone:\n    os.environ['RANK'] = '0'", False, ONE),
    places(JOINED, RANK, "warning", ONE), places(JOINED, RANK, "error", TWO), places(JOINED, ADDRESS, "error", SMDDP),
    places(JOINED, RANK, True, MPI), places(JOINED, PORT, "warning", TWO), places(JOINED, RANK, False, ALONE),
    places(JOINED, f"{ADDRESS}\n{PORT}", "error", TWO), places(JOINED, RANK, False, None),
    places(JOINED, f"rank = os.environ['LOCAL_RANK']\n{RANK}", "warning", None),
    places(BARE, f"rank = os.environ['LOCAL_RANK']\n{RANK}", False, None),
    places(JOINED, f"name = 'MY_LOCAL_RANK'\n{RANK}", False, None),
    places("import json, os\n", CONFIG, "error", MWMS), places("import json, os\n", CONFIG, "warning", SERVERS),
    places("import json, os\n", CONFIG, "warning", MWMS | {"instance_count": 1}),
    places("import json, os\n", CONFIG, False, ONE), places("import json, os\n", RANK, False, MWMS),
    places("import json, os\n", "os.environ['TF_CONFIG'] = each", False, MWMS),
    places(JOINED, "os.environ['RANK'] = first()", False, ONE),
    # A script that starts its own processes sets the address; on several hosts, not that of itself.
    places(JOINED + SPAWNS, ADDRESS, False, ALONE), places(JOINED + SPAWNS, RANK, True, ONE),
    *[("TW104", reported, f"{JOINED}{SPAWNS}os.environ['MASTER_ADDR'] = {value}\n", job) for reported, value, job in (
        (True, "'localhost'", ALONE | {"instance_count": 2}), (True, "'127.0.0.1'", ALONE | {"instance_count": 2}),
        (False, "'localhost'", ALONE), (False, "hosts[0]", ALONE | {"instance_count": 2}),
        (False, "'localhost'", None), (False, "'algo-1'", ALONE | {"instance_count": 2}),
    )],
]  # fmt: skip
WHOLE = ALONE | {"role": "arn:aws:iam::123456789012:role/training"}
PASSED = ALONE | {"hyperparameters": {"epochs": 3, "batch-size": 8}}
DATA = ALONE | {"inputs": {"training": "s3://b/d"}}
# Helpers that read a variable: with a default, or without, or where it is set.
HELPER = "def value(name, default=None):\n    return os.getenv(f'SM_{name}', default)\n"
TESTS = parser("'--test', action='store_true'")
PLAIN = "def plain(name):\n    return os.environ[name]\n"
ASKED = "def asked(name):\n    return os.environ[name] if name in os.environ else None\n"
GIVEN = "def given(name):\n    try:\n        return os.environ[name]\n    except KeyError:\n        return None\n"
# A function that is longer than a few lines is run for each thing that it is to read.
LISTED = (
    "def folder(name):\n    return os.environ[f'SM_CHANNEL_{name.upper()}']\n"
    "def data(name):\n    rows = []\n    where = folder(name)\n    for each in sorted(os.listdir(where)):\n"
    "        with open(os.path.join(where, each)) as file:\n            rows.append(file.read())\n"
    "    print(name)\n    print(len(rows))\n    return rows\n"
)
NAMES: list[Case] = [
    *told("TW164", [
        ("error", "os.environ['SM_MODLE_DIR']"), ("warning", "os.environ.get('SM_MODLE_DIR')"),
        ("warning", "os.getenv('SM_MODLE_DIR')"), ("warning", "os.getenv(key='SM_MODLE_DIR')"),
        ("error", "os.environ['SM_COMPLETELY_ELSE']"), (False, "os.environ['MODLE_DIR']"), (False, "os.getenv(name)"),
        (False, "os.environ['SM_MODEL_DIR']"), (False, "os.environ['SM_HP_LR']"), (False, "os.environ['SM_CHANNEL_X']"),
        (False, "os.environ['SM_FRAMEWORK_X']"), (False, "os.environ['SM_SMP_X']"), (True, "os.environ['SM_X_HP_LR']"),
        (False, "settings.get('SM_MODLE_DIR')"), (False, "os.environ['SM_OWN'] = '1'\nos.environ['SM_OWN']"),
        (False, "os.environ.setdefault('SM_OWN', '1')\nos.environ['SM_OWN']"),
        (False, "os.putenv('SM_OWN', '1')\nos.environ['SM_OWN']"), (True, "os.environ['SM_OWN']\nos.environ['SM_OWN']"),
    ]),
    *told("TW164", [(False, "os.environ['SM_OWN']"), (True, "os.environ['SM_OTHER']")],
          ALONE | {"environment": {"SM_OWN": "1"}}),
    *told("TW165", [
        ("error", "os.environ['SM_CHANNEL_TRAIN']"), ("warning", "os.environ.get('SM_CHANNEL_TRAIN')"),
        (False, "os.environ['SM_CHANNEL_TRAINING']"), (False, "os.environ['SM_MODEL_DIR']"),
    ], DATA),
    *told("TW164", [
        ("warning", "def read(names=os.environ):\n    return names.get('SM_LOCAL_RANK', '0')\nread()"),
        ("error", "def read(names=os.environ):\n    return names['SM_RANK']\nread()"),
        (False, "def read(names=os.environ):\n    return names.get('LOCAL_RANK', '0')\nread()"),
        (False, "def read(names):\n    return names['SM_RANK']\nread({'SM_RANK': '0'})"),
        ("warning", f"{HELPER}value('RANK', '0')"), (False, f"{HELPER}value('NUM_GPUS')"),
        (False, f"{HELPER}value(each)"), (False, f"{HELPER}value('CHANNEL_X')"),
        ("warning", "class Place:\n    def __init__(self):\n        self.names = os.environ\n"
         "        self.rank = int(self.names.get('SM_RANK', 0))\nplace = Place()"),
        (False, f"{GIVEN}given('SM_RANK')"), (False, f"{ASKED}asked('SM_RANK')"), (True, f"{PLAIN}plain('SM_RANK')"),
    ]),
    *told("TW165", [
        ("error", f"{LISTED}data('training')\ndata('val')"), (False, f"{LISTED}data('training')\ndata(each)"),
        (False, f"{LISTED}data('training')\nif 'SM_CHANNEL_VAL' in os.environ:\n    data('val')"),
        (False, f"{LISTED}data('training')\ntry:\n    data('val')\nexcept KeyError:\n    pass"),
        (False, f"{LISTED}data('training')\nif 'val' in json.loads(os.environ['SM_CHANNELS']):\n    data('val')"),
        (False, f"{HELPER}value('CHANNEL_VAL')"), (False, f"{GIVEN}given('SM_CHANNEL_VAL')"),
        (False, f"{ASKED}asked('SM_CHANNEL_VAL')"), ("error", f"{PLAIN}plain('SM_CHANNEL_VAL')"),
        (False, f"{TESTS}{PLAIN}if args.test:\n    plain('SM_CHANNEL_VAL')"),
    ], DATA),
    *told("TW165", [(False, "os.environ['SM_CHANNEL_TRAIN']")], ALONE),
    *told("TW165", [(False, "os.environ['SM_CHANNEL_TRAIN']")]),
    *told("TW165", [(False, "os.environ['SM_CHANNEL_TRAIN']")], DATA | {"environment": {"SM_CHANNEL_TRAIN": "/d"}}),
    # A job file with all but inputs: they may still be passed when the job is started.
    *told("TW165", [
        ("warning", "os.environ['SM_CHANNEL_TRAIN']"), (False, "os.environ.get('SM_CHANNEL_TRAIN')"),
        (False, "if args.local:\n    os.environ['SM_CHANNEL_TRAIN']"), (False, "os.environ['SM_MODEL_DIR']"),
        (False, "try:\n    os.environ['SM_CHANNEL_TRAIN']\nexcept KeyError:\n    pass"),
        (False, "def never_called():\n    os.environ['SM_CHANNEL_TRAIN']"),
        ("warning", "def folder():\n    return os.environ['SM_CHANNEL_TRAIN']\nfolder()"),
    ], WHOLE),
    # Hyperparameters as variables: sagemaker-training's to_env_vars, and SDK 3's driver, which replaces dashes.
    *told("TW164", [
        ("error", "os.environ['SM_HP_LR']"), (False, "os.environ['SM_HP_EPOCHS']"), (False, "os.environ['SM_HPS']"),
        (False, "os.environ['SM_HP_BATCH_SIZE']"), (False, "os.environ['SM_HP_BATCH-SIZE']"),
        ("error", "os.environ['SM_HP_epochs']"), (False, "os.environ.get('SM_HP_LR')"),
        (False, "os.getenv('SM_HP_LR')"),
        (False, "os.environ['SM_HP_LR'] = '1'\nos.environ['SM_HP_LR']"),
        (False, "if 'SM_HP_LR' in os.environ:\n    os.environ['SM_HP_LR']"),
        (False, "try:\n    os.environ['SM_HP_LR']\nexcept KeyError:\n    pass"),
        ("error", "os.environ['SM_HP_MODEL_DIR']"), ("error", "os.environ['SM_HP_MP_PARAMETERS']"),
    ], PASSED),
    *told("TW164", [(False, "os.environ['SM_HP_LR']")], PASSED | {"environment": {"SM_HP_LR": "1"}}),
    *told("TW164", [("warning", "os.environ['SM_HP_LR']")], WHOLE),
    # Of a tuner, the container gets a value of each range; SDK 2 adds two hyperparameters of its own.
    *told("TW164", [(False, "os.environ['SM_HP_LR']")], PASSED | {
        "tuner": {"metric": "loss", "goal": "Minimize", "ranges": {"lr": {"min": 0.001, "max": 0.1}}},
    }),
    *told("TW164", [(False, "os.environ['SM_HP_MODEL_DIR']")], PASSED | {"plan": {"framework": "tensorflow"}}),
    *told("TW164", [(False, "os.environ['SM_HP_MP_PARAMETERS']")], SMP_JOB | {"hyperparameters": {"epochs": 3}}),
]  # fmt: skip
READ = "rank = os.environ['{}']"
TORCH_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK")
MPI_NAMES = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
             "OMPI_COMM_WORLD_NODE_RANK", "PMIX_RANK")  # fmt: skip
UNSET: list[Case] = [
    *[("TW166", reported, f"{OS}{READ.format(name)}\n", job) for name in TORCH_NAMES
      for reported, job in ((True, ALONE), (True, MPI), (False, ONE), (False, SMDDP), (False, None))],
    *[("TW166", reported, f"{OS}{READ.format(name)}\n", job) for name in MPI_NAMES
      for reported, job in ((True, ALONE), (False, MPI), (True, ONE), (False, SMDDP), (False, None))],
    *[("TW166", reported, f"{OS}{READ.format('NODE_RANK')}\n", job)
      for reported, job in ((True, ONE), (True, ALONE), (True, MPI), (False, SMDDP))],
    *told("TW166", [
        (False, "rank = os.environ.get('RANK', 0)"), (False, "rank = os.getenv('RANK')"), (False,
         "x = os.environ['OTHER']"),
        (False, "os.environ['RANK'] = '0'\nrank = os.environ['RANK']"),
        (False, "if started:\n    rank = os.environ['RANK']"),
        (False, "try:\n    rank = os.environ['RANK']\nexcept KeyError:\n    rank = 0"),
        (True, "def main():\n    rank = os.environ['RANK']"), (True,
         "def setup():\n    return os.environ['RANK']\nsetup()"),
        (False, "def setup():\n    return os.environ['RANK']"), (False, f"{SPAWNS}rank = os.environ['RANK']"),
        (False, "import torch_xla.core.xla_model as xm\nrank = os.environ['RANK']"),
    ], ALONE),
    *told("TW166", [(False, "rank = os.environ['RANK']")], ALONE | {"environment": {"RANK": "0"}}),
    *told("TW166", [(False, "rank = os.environ['RANK']")], XLA_JOB),
    *told("TW166", [
        (False, "import torch.sagemaker as tsm\nrank = os.environ['RANK']"),
        (True, "import smdistributed.modelparallel.torch as smp\nrank = os.environ['RANK']"),
    ], ALONE),
]  # fmt: skip
CASES: list[Case] = [*TEXTS, *NUMBERS, *OVERWRITTEN, *NAMES, *UNSET]


@pytest.mark.parametrize("case", CASES)
def test_a_variable_of_the_environment(case: Case) -> None:
    """Check that a rule reports the script or not, with the severity or the line that the case names."""
    assert not unmet(case)


def test_a_hyperparameter_that_is_no_variable_is_named_with_those_that_are() -> None:
    found = findings(f"{OS}os.environ['SM_HP_LR']\n", PASSED)
    assert [each.message.rpartition("SM_HP_LR: ")[2] for each in found] == ["the job passes batch-size, epochs"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("SM_FOO", "SM_FOO: SageMaker sets no such variable"),
        ("SM_WORLD_SIZE", "SM_WORLD_SIZE: SageMaker sets no such variable"),
        ("SM_HOST", "SM_HOST: did you mean SM_HOSTS?"),
        ("SM_NUM_GPU", "SM_NUM_GPU: did you mean SM_NUM_GPUS?"),
        ("SM_OUTPUT_DATADIR", "SM_OUTPUT_DATADIR: did you mean SM_OUTPUT_DATA_DIR?"),
    ],
)
def test_only_a_similar_variable_is_suggested(name: str, said: str) -> None:
    (found,) = findings(f"{OS}os.environ['{name}']\n", None)
    assert found.message.endswith(said)
