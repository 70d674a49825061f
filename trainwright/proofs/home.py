"""Puts proofs in their places: those made here, and those made elsewhere, as by a CodeBuild batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.image_line import Line
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.owned import write_atomically
from trainwright.proofs.places import roots
from trainwright.proofs.proof import LineProof, ProofHead, dump, read


def save(proof: LineProof, root: Path | None = None) -> Path:
    """Write a proof to its place in a folder of proofs (default: where new ones go); returns the path."""
    path = (root or roots()[-1]) / proof.path
    write_atomically(path, dump(proof))
    return path


def save_own(proof: LineProof, root: Path) -> Path | None:
    """Write a proof that was made here; None if it is a failure and the proof that is there proves the same plan."""
    with suppress(RequestError):  # none is there, or it was edited
        if _outweighs(read(root / proof.path), proof):
            return None
    return save(proof, root)


def _outweighs(proof: ProofHead, other: ProofHead) -> bool:
    """Whether a proof stays, even if the other is newer: a later failure, such as an unreachable source, does not undo
    that a plan was proven."""
    return proof.proves == other.proves and (proof.outcome, other.outcome) == ("proven", "failed")


def take(given: Iterable[str], catalog: Catalog, root: Path | None = None) -> list[tuple[LineProof, Line, bool]]:
    """Read proofs and check them all, then write those that are newer than what is there, or outweigh it.

    Args:
        given: files, or folders that hold some at any depth; other JSON files are not expected there.
        catalog: has their lines.
        root: the folder of proofs (default: where new ones go).

    Returns:
        Each with its line and whether it was written.

    Raises:
        RequestError: a file is missing, is not a proof, was edited, or is of an unknown line; nothing was written.
    """
    lines = known_lines(catalog)
    found = [(proof, _line_of(proof, path, lines)) for path in _files(given) for proof in [read(path)]]
    taken = []
    for proof, entry in sorted(found, key=lambda row: row[0].date):
        path = (root or roots()[-1]) / proof.path
        there = read(path) if path.is_file() else None
        new = there is None or _outweighs(proof, there) or (there.date < proof.date and not _outweighs(there, proof))
        if new:
            save(proof, root)
        taken.append((proof, entry, new))
    return taken


def known_lines(catalog: Catalog) -> dict[tuple[str, str], Line]:
    """The lines of a catalog by framework and name, as proofs name them."""
    return {(entry.path.parent.parent.name, entry.name): entry for entry in catalog.lines}


def _line_of(proof: LineProof, path: Path, lines: Mapping[tuple[str, str], Line]) -> Line:
    if (entry := lines.get((proof.framework, proof.line))) is None:
        hint = did_you_mean(f"{proof.framework}/{proof.line}", ("/".join(key) for key in lines))
        raise RequestError(
            f"{path}: a proof of {proof.framework}/{proof.line}, which is not an image line here. {hint}",
            remedy="./invoke list shows the lines; --catalog DIR adds your own.",
        )
    return entry


def _files(given: Iterable[str]) -> list[Path]:
    found = []
    for name in given:
        path = Path(name)
        if "://" in name:
            raise RequestError(
                f"--import {name}: takes files and folders on this machine",
                remedy=f"Copy it here first: aws s3 cp --recursive {name} proofs-home"
                if name.startswith("s3://")
                else "Download it first.",
            )
        if not path.is_dir():
            found.append(path)
        elif inside := sorted(path.rglob("*.json")):
            found += inside
        else:
            raise RequestError(f"--import {name}: no proofs (*.json) in this folder", remedy="docs/proofs.md")
    return found
