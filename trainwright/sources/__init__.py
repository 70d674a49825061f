"""Every byte that a build takes in: where it lies, whether it answers, and that it is the right one."""
