"""One file per verb: its flags, its wiring and its text."""
