"""``python -m trainwright``."""

from __future__ import annotations

from trainwright.cli import main

main()
