"""What all verbs share at the command line: flags, failures with their exit codes, JSON."""
