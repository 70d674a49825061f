"""What all verbs share at the command line: flags, failures with their exit codes, JSON."""

from trainwright.core.lean import import_msgspec

import_msgspec()  # before the first record
