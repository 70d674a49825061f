"""Proves what is in an image: the probe, the smoke tests, and the packages of its distribution."""
