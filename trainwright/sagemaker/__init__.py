"""What SageMaker is: instance types, AWS's containers, launchers, job files, and how its jobs fail."""
