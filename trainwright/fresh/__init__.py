"""Which image lines are to be built again, and why."""
