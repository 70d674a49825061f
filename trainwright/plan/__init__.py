"""Resolves a request to a plan, the one record from which everything else is made, or to a conflict with offers."""
