"""Many image lines in one run: what may start when, how far each is, and what came of it."""
