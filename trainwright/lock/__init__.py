"""Locks: pins every input of a plan (wheels, archives, base, apt packages), and fills mirrors from a lock."""
