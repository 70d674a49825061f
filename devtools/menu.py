"""The list of all pages, ``docs/README.md``: the site's menu (``mkdocs.yml``) for those who read in the repository."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainwright.core.data_files import read_yaml

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "README.md"
# The one page that only the site has, and what shows the same without it.
VERBS, _INSTEAD = "docs/verbs.md", "`./invoke help VERB`"
_HEAD = "# All pages\n\nMade from the menu of the site in `mkdocs.yml` by `./invoke generate`."


def menu_page() -> str:
    """The content of ``docs/README.md``."""
    return "\n".join([_HEAD, *_listed(read_yaml(ROOT / "mkdocs.yml")["nav"], 2), ""])


def _listed(entries: list[dict[str, Any]], level: int) -> Iterator[str]:
    yield ""
    for entry in entries:
        for title, leads_to in entry.items():
            if isinstance(leads_to, list):
                yield f"{'#' * level} {title}"
                yield from _listed(leads_to, level + 1)
                yield ""
            elif leads_to == VERBS:
                yield f"- {title}: {_INSTEAD}"
            elif ROOT / leads_to != PAGE:
                yield f"- [{title}]({os.path.relpath(ROOT / leads_to, PAGE.parent)})"
