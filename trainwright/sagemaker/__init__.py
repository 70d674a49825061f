"""Facts about SageMaker: instance types, AWS's containers, launchers, job files, and how its jobs fail."""
