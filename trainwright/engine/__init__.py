"""The container engine of this machine and its builders: found, set up, and their progress shown."""
