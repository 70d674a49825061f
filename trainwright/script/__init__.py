"""Read a training script as syntax trees, and follow what it does without running it."""
