"""Where proofs are: beside the shipped image lines, and beside a user's own."""

from __future__ import annotations

from pathlib import Path

from trainwright.core.paths import data_root, own_catalog


def roots() -> list[Path]:
    """The folders of proofs; new ones go into the last."""
    own = own_catalog()
    return [root / "proofs" for root in (data_root(), *([own] if own is not None else []))]


def files(framework: str | None = None) -> dict[tuple[str, str], Path]:
    """The files of proofs by framework and line; a user's own replaces the shipped one of the same line."""
    found = (path for root in roots() for path in sorted(root.glob(f"{framework or '*'}/*.json")))
    return {(path.parent.name, path.stem): path for path in found}
