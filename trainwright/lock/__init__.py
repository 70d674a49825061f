"""Every input of a plan pinned: wheels, archives, base and apt packages; and mirrors filled from a lock."""
