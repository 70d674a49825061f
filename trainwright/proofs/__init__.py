"""Proofs of image lines: what was built, tested and rehearsed of which line, when, and whether that still holds."""
