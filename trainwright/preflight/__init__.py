"""Check a training script for known mistakes before it costs a job; the script is never run."""
