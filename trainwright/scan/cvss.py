"""Base scores of CVSS vectors, versions 3.0, 3.1 and 4.0, by Red Hat's library ``cvss``.

Only base metrics count: what a vulnerability is, not how it is exploited today or where.
"""

from __future__ import annotations

# FIRST's specifications of CVSS v3.1 and v4.0, section 2.
_BASE = {
    "3": ("AV", "AC", "PR", "UI", "S", "C", "I", "A"),
    "4": ("AV", "AC", "AT", "PR", "UI", "VC", "VI", "VA", "SC", "SI", "SA"),
}


def base_score(vector: str) -> float | None:
    """The base score of a vector, 0.0 to 10.0; ``None`` if it is not a vector of these versions, or lacks a metric."""
    head, *metrics = vector.strip().split("/")
    if head not in ("CVSS:3.0", "CVSS:3.1", "CVSS:4.0"):
        return None
    from cvss import CVSS3, CVSS4, CVSSError  # type: ignore[import-untyped]

    base = _BASE[head[5]]
    plain = "/".join([head, *(each for each in metrics if each.partition(":")[0] in base)])
    try:
        return float((CVSS4 if head[5] == "4" else CVSS3)(plain).base_score)
    except CVSSError:
        return None
