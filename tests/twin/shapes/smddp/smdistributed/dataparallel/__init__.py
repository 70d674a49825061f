"""Stands in for smdistributed-dataparallel: loading it loads its library, and with that all that it is linked to."""

import ctypes

__version__ = "@VERSION@"
# By its name: dataparallel/lib has to be on the loader path.
library = ctypes.CDLL("libsmddpcpp.so")
library.smddp_boost.restype = ctypes.c_char_p
