"""What all verbs share at the command line: flags, failures with their exit codes, JSON."""

from trainwright.core.lean import import_invoke

import_invoke()  # before any module of this package or of the verbs imports it whole
