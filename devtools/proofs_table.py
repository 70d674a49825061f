"""The table of what was proven in ``docs/proven.md``, made from the files in ``proofs/``."""

from __future__ import annotations

import re

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.standing import Standing
from trainwright.core.errors import RequestError
from trainwright.core.layout import size
from trainwright.proofs.home import known_lines
from trainwright.proofs.places import files
from trainwright.proofs.proof import LineProof, read
from trainwright.proofs.standing import of_lines

_TABLE = re.compile(r"(<!-- proofs -->\n).*?(<!-- end -->)", re.DOTALL)
_HEAD = ["| line | proven | image | image tests | rehearsal |", "| --- | --- | --- | --- | --- |"]


def with_proofs(page: str, catalog: Catalog) -> str:
    """A page with the table between its marks as the proofs have it now.

    Raises:
        RequestError: a proof was edited, is of an unknown line, or is not in the place of its line.
    """
    lines, standings, rows = known_lines(catalog), of_lines(catalog.lines, catalog), []
    for key, path in files().items():
        proof = read(path)
        if (proof.framework, proof.line) != key or key not in lines:
            raise RequestError(
                f"{path}: a proof of {proof.framework}/{proof.line}"
                + (", not of the line of this place" if key in lines else "; there is no line of this place"),
                remedy="Remove the file; ./invoke prove --import FILE puts a proof in its place.",
            )
        rows.append(_row(proof, standings[lines[key].path]))
    states = [each.state for each in standings.values()]
    told = f"{states.count('proven')} of {len(lines)} lines are proven"
    told += "".join(f", {states.count(word)} {text}" for word, text in _ALSO.items() if word in states)
    text = "\n".join([f"{told}.", *(["", *_HEAD, *rows] if rows else [])])
    return _TABLE.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page)


_ALSO = {"twin": "as a twin", "failed": "failed", "stale": "changed since their proof"}


def _row(proof: LineProof, standing: Standing) -> str:
    counts = (("passed", proof.tests.passed), ("failed", proof.tests.failed), ("skipped", proof.tests.skipped))
    tests = ", ".join(f"{len(names)} {word}" for word, names in counts if names)
    job = proof.rehearsal
    hosts = (
        "-" if job is None else f"{job.hosts} hosts, {job.launcher}" + ("" if job.outcome == "passed" else ": failed")
    )
    image = "-" if proof.size_bytes is None else size(proof.size_bytes)
    return f"| `{proof.framework}/{proof.line}` | {standing.text} | {image} | {tests or '-'} | {hosts} |"
