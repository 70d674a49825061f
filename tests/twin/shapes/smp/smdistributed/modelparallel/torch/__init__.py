"""The PyTorch side; like the real one it is of no use without torch."""

import torch  # noqa: F401
from smdistributed.modelparallel import library


def facts():
    """What the library found in METIS and RMM."""
    return {"metis": library.smp_metis(), "rmm": library.smp_rmm()}
