"""Proves what is in an image: the probe, the smoke tests, and the distribution's packages."""
