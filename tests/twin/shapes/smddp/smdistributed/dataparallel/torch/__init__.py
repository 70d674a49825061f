"""The PyTorch side; like the real one it is of no use without torch."""

import torch  # noqa: F401
from smdistributed.dataparallel import library


def facts():
    """What the library found in what it is linked to."""
    return {"nccl": library.smddp_nccl(), "boost": library.smddp_boost().decode(), "mpi": library.smddp_mpi()}
