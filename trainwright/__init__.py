"""Trainwright builds, proves, rehearses and ships custom Amazon SageMaker training containers."""

__version__ = "0.2.0"
