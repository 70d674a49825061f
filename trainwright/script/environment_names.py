"""The environment of a script in a job: a closed list of names, from the sources of what sets them.

``SM_`` names: sagemaker-training 5.1.4, ``environment.py`` (``to_env_vars``), sagemaker-pytorch-training 3.0.0
(``SM_DLC_TORCH_VERSION``, ``MASTER_ADDR``, ``MASTER_PORT``), and the drivers of SageMaker SDK 3. Ranks: PyTorch's
documentation of torchrun, Open MPI's of mpirun.
"""

from __future__ import annotations

import ast
import re

from trainwright.script.events import JobStart
from trainwright.script.paths import root_of
from trainwright.script.values import Value, constant, unknown

RANKS = {
    "RANK": "rank",
    "LOCAL_RANK": "local_rank",
    "WORLD_SIZE": "world",
    "LOCAL_WORLD_SIZE": "gpus",
    "GROUP_RANK": "host_rank",
    "NODE_RANK": "host_rank",
    "ROLE_RANK": "rank",
}
MPI_RANKS = {
    "OMPI_COMM_WORLD_RANK": "rank",
    "OMPI_COMM_WORLD_LOCAL_RANK": "local_rank",
    "OMPI_COMM_WORLD_SIZE": "world",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "gpus",
    "OMPI_COMM_WORLD_NODE_RANK": "local_rank",
    "PMIX_RANK": "rank",
}
# torchrun does not set NODE_RANK, which other launchers do.
TORCHRUN = frozenset(RANKS) - {"NODE_RANK"}
PLACE = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TF_CONFIG")
JSON_VALUES = (
    "SM_HOSTS",
    "SM_CHANNELS",
    "SM_HPS",
    "SM_RESOURCE_CONFIG",
    "SM_INPUT_DATA_CONFIG",
    "SM_USER_ARGS",
    "SM_TRAINING_ENV",
    "SM_FRAMEWORK_PARAMS",
)
_NAMES = (
    "HOSTS CURRENT_HOST CURRENT_INSTANCE_TYPE CURRENT_INSTANCE_GROUP CURRENT_INSTANCE_GROUP_HOSTS INSTANCE_GROUPS "
    "INSTANCE_GROUPS_DICT DISTRIBUTION_INSTANCE_GROUPS IS_HETERO NETWORK_INTERFACE_NAME NUM_GPUS NUM_CPUS NUM_NEURONS "
    "HPS USER_ARGS USER_ENTRY_POINT MODULE_NAME MODULE_DIR MODEL_DIR INPUT_DIR INPUT_CONFIG_DIR OUTPUT_DIR "
    "OUTPUT_DATA_DIR OUTPUT_INTERMEDIATE_DIR CHANNELS INPUT_DATA_CONFIG RESOURCE_CONFIG FRAMEWORK_PARAMS "
    "FRAMEWORK_MODULE LOG_LEVEL TRAINING_ENV TRAINING_ENV_TOPOLOGY DLC_TORCH_VERSION STUDIO_LOCAL_MODE REGION "
    # set by the drivers of SageMaker SDK 3 (and of the last 2.x)
    "CURRENT_HOST_RANK DISTRIBUTED_CONFIG DISTRIBUTED_DRIVER_DIR EFA_NCCL_INSTANCES EFA_RDMA_INSTANCES ENTRY_SCRIPT "
    "FI_EFA_USE_DEVICE_RDMA FI_PROVIDER HOSTS_LIST HOST_COUNT INPUT_DATA_DIR MASTER_ADDR MASTER_PORT NCCL_PROTO "
    "NPROC_PER_NODE OUTPUT_FAILURE SOURCE_DIR SOURCE_DIR_PATH"
)
KNOWN = frozenset(f"SM_{name}" for name in _NAMES.split())
FREE = re.compile(r"^SM_(HP|CHANNEL)_|^SM_FRAMEWORK|^SM_SMP")


def asks(test: ast.expr) -> bool:
    """Return whether a condition asks what the job has: ``name in os.environ``, ``"test" in channels``."""
    within = any(isinstance(op, ast.In | ast.NotIn) for n in ast.walk(test) for op in getattr(n, "ops", ()))
    return within or "environ" in ast.unparse(test)


def environment(launch: JobStart, key: str, default: Value | None) -> Value:
    """Return the value of an environment variable in this job.

    Args:
        launch: how the job starts the script.
        key: the variable.
        default: what the script takes if it is not set; None if it then fails.
    """
    tags = {f"env:{key}"}
    set_to = launch.kept.get(key)
    if set_to is not None and key not in RANKS and key not in MPI_RANKS and not key.startswith("SM_"):
        folder = root_of(set_to) if "/" in set_to else ""
        return Value(tags=frozenset(tags | ({f"root:{folder}"} if folder else set())), constants=(set_to,), sure=True)
    if key in RANKS or key in MPI_RANKS:
        meaning, by = (RANKS.get(key) or MPI_RANKS[key]), ("mpi" if key in MPI_RANKS else "torchrun")
        given = key in launch.environment
        absent = launch.launcher is not None and not given and not sets(launch, by)
        if absent and default is not None:
            return default if default.constants is None else Value(constants=default.constants, sure=True)
        if meaning == "world" and launch.processes is not None and sets(launch, by) and not given:
            return constant(str(launch.processes), *tags, "world", "number")
        if meaning == "gpus" and launch.per_host is not None and sets(launch, by) and not given:
            return constant(str(launch.per_host), *tags, "gpus", "number")
        return unknown(*tags, meaning, "number")
    if key == "SM_INPUT_DIR":
        return constant("/opt/ml/input", *tags, "root:channel")
    root = _ROOTS.get(key)
    if key.startswith("SM_CHANNEL_"):
        root = "channel"
    if root:
        return unknown(*tags, f"root:{root}")
    if key == "SM_OUTPUT_DIR":  # of the folder itself nothing is kept, only what is in some folders of it
        return constant("/opt/ml/output", *tags)
    if key in JSON_VALUES:
        return unknown(*tags, "json")
    if key == "SM_NUM_GPUS":
        return (
            constant(str(launch.gpus), *tags, "gpus", "number")
            if launch.gpus is not None
            else unknown(*tags, "gpus", "number")
        )
    if key == "SM_CURRENT_HOST":
        return unknown(*tags, "host_rank")
    if key == "SM_HOST_COUNT" and launch.instances is not None:
        return constant(str(launch.instances), *tags, "number")
    if default is not None and not key.startswith("SM_"):
        return Value(tags=frozenset({*tags, "flag"}) | default.tags, constants=default.constants)
    return unknown(*tags)


_ROOTS = {
    "SM_MODEL_DIR": "model",
    "SM_OUTPUT_DATA_DIR": "output",
    "SM_OUTPUT_INTERMEDIATE_DIR": "output",
    "HOME": "elsewhere",
    "TMPDIR": "tmp",
}


def sets(launch: JobStart, by: str) -> bool:
    """Return whether the launcher sets the variables of torchrun, or those of mpirun."""
    if by == "mpi":
        return launch.launcher in ("mpi", "smddp")
    return launch.launcher in ("torchrun", "smddp")
