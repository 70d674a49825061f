"""Which version of a library a job has, as far as its image's name and its requirements.txt say."""

from __future__ import annotations

import re

from trainwright.preflight.requirements import FILE, asked_for
from trainwright.preflight.script_facts import ScriptFacts


def before(code: ScriptFacts, package: str, limit: str) -> bool | None:
    """Return whether a job has a version of a package before this one; None if that is not known.

    pip keeps the version of the image where the requirements admit it, and takes the newest that they admit else.
    AWS's images have the version of transformers in their names.
    """
    from packaging.version import Version

    first = Version(limit)
    asked = next((found for m in code.modules if (found := asked_for(m.path.parent / FILE, package))), None)
    named = re.search(rf"-{package}(\d+(?:\.\d+)+)", code.job.image or "") if code.job is not None else None
    if named is not None and (asked is None or asked.contains(named[1])):
        return Version(named[1]) < first
    if asked is None:
        return None
    exact = [Version(each.version) for each in asked if each.operator == "==" and not each.version.endswith(".*")]
    if exact:
        return exact[0] < first
    least = [Version(each.version) for each in asked if each.operator in (">=", ">", "~=")]
    return not (asked.contains(limit) or asked.contains("999") or any(version >= first for version in least))
