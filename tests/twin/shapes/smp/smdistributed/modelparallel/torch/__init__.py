"""The PyTorch side: it loads the library, and with that METIS, RMM and the driver, so it takes a host that has one."""

import ctypes
import pathlib

import torch  # noqa: F401

library = ctypes.CDLL(str(pathlib.Path(__file__).parents[1] / "libsmplib.so"))


def init():
    """Nothing to do."""


def facts():
    """What the library found in METIS and RMM."""
    return {"metis": library.smp_metis(), "rmm": library.smp_rmm()}
