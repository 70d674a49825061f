"""Stands in for smdistributed-modelparallel: loading it loads its library, and with that METIS and RMM."""

import ctypes
import pathlib

__version__ = "@VERSION@"
library = ctypes.CDLL(str(pathlib.Path(__file__).with_name("libsmplib.so")))
