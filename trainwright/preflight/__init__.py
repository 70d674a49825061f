"""A training script read for known mistakes before it costs a job; nothing of it is run."""
