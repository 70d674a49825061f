"""Which version of a library a job has, as far as the name of its image and its requirements.txt tell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainwright.preflight.requirements import FILE, asked_for
from trainwright.script.script_facts import ScriptFacts

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet


def before(code: ScriptFacts, package: str, limit: str) -> bool | None:
    """Return whether a job has a version of a package before this one; None if that is not known.

    pip keeps the version of the image where the requirements admit it, and takes the newest that they admit else.
    AWS's images have the version of transformers in their names.
    """
    from packaging.version import Version

    folders = dict.fromkeys(module.path.parent for module in code.modules)
    asked = next((found for folder in folders if (found := asked_for(folder / FILE, package))), None)
    named = re.search(rf"-{package}(\d+(?:\.\d+)+)", code.job.image or "") if code.job is not None else None
    if named is not None and (asked is None or asked.contains(named[1])):
        return Version(named[1]) < Version(limit)
    return None if asked is None else not admits(asked, limit)


def admits(asked: SpecifierSet, limit: str) -> bool:
    """Return whether requirements admit this version or a later one, which pip would then install."""
    from packaging.version import Version

    first = Version(limit)
    pins = [Version(each.version) for each in asked if each.operator == "==" and not each.version.endswith(".*")]
    if pins:
        return pins[0] >= first
    least = [each.version.removesuffix(".*") for each in asked if each.operator in ("==", ">=", ">", "~=")]
    return asked.contains(limit) or asked.contains("999") or any(Version(version) >= first for version in least)
