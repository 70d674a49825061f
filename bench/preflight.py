"""Preflight on the corpus of planted mistakes: recall, false findings and CPU time, in all and per rule.

.venv/bin/python bench/preflight.py [NAME …]     # NAME: a file of tests/corpus, without its ending
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.corpus import report

if __name__ == "__main__":
    hits, planted, false = report(sys.argv[1:])
    sys.exit(int(hits < planted or false > 0))
