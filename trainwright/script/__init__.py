"""A training script as syntax trees, and what it does when it runs, found out without running it."""
