"""A small SageMaker on one machine: a training job, run in an image as the platform would run it."""
