"""Stands in for smdistributed-modelparallel."""

__version__ = "@VERSION@"
