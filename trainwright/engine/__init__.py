"""The container engine of this machine and its builders: finds them, sets them up, shows their progress."""
