"""The documentation as a site of static pages: ``python -m devtools.site [FOLDER]`` (default: ``reports/site``).

The pages are those of the repository, as they lie, so that a link works there and on the site; the page of verbs and
flags is made from the program. Nothing is fetched. A link to nowhere, or a page that the menu lacks, is an error
(decision 83).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from trainwright.cli.flags import Shelf
from trainwright.cli.pages import of_verb
from trainwright.verbs.find import FAMILIES, find

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("*.md", "docs/*.md", "docs/decisions/*.md", "bench/README.md", "examples/README.md", "proofs/README.md")
# What pages show or link to.
SHOWN = ("docs/pictures/*", "infra/*.yaml", "trainwright/push/repository.yaml", "LICENSE",
         "templates/components/sagemaker-toolkit/training-init", "examples/*/*")  # fmt: skip
VERBS = "docs/verbs.md"
DECISIONS = "docs/decisions/0"  # their own list has them


class SiteFailed(Exception):
    """A link leads nowhere, or the menu lacks a page."""


def build_site(folder: Path) -> None:
    """Write the site of this repository.

    Args:
        folder: for the site; what an earlier run left there is replaced.

    Raises:
        SiteFailed: a link leads nowhere, or a page is missing in the menu of ``mkdocs.yml``.
    """
    with tempfile.TemporaryDirectory(prefix="trainwright-site-") as scratch:
        pages = Path(scratch, "pages")
        stage(pages)
        make(pages, (ROOT / "mkdocs.yml").read_text())
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(Path(scratch, "site"), folder)


def make(pages: Path, settings: str) -> None:
    """Make a site, in the folder ``site`` beside that of the pages.

    Args:
        pages: their folder.
        settings: the text of ``mkdocs.yml``.

    Raises:
        SiteFailed: a link leads nowhere, or a page is missing in the menu.
    """
    found = {str(path.relative_to(pages)) for path in pages.rglob("*.md")}
    loose = [page for page in sorted(found) if f": {page}\n" not in settings and not page.startswith(DECISIONS)]
    if loose:
        raise SiteFailed(f"mkdocs.yml: nav lacks {', '.join(loose)}")
    (pages.parent / "mkdocs.yml").write_text(f"{settings}\ndocs_dir: {pages.name}\nsite_dir: site\n")
    argv = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(argv, cwd=pages.parent, capture_output=True, text=True, check=False)  # noqa: S603 - argv is ours
    if done.returncode:
        raise SiteFailed(re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr))


def stage(folder: Path) -> None:
    """Copy the pages, and what they show, into a folder of the same layout; add the page of verbs."""
    for pattern in (*PAGES, *SHOWN):
        for path in ROOT.glob(pattern):
            if path.is_file():
                copy = folder / path.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
    (folder / VERBS).write_text(verbs_page(Shelf(FAMILIES, find)))


def verbs_page(shelf: Shelf) -> str:
    """The help of every verb, family by family; not of what maintainers run in a checkout."""
    parts = ["# Verbs and flags", "What `./invoke help VERB` shows, for each verb."]
    for family in shelf.families:
        parts.append(f"## {family.heading}")
        for name in family.names:
            if verb := shelf.find(name):
                shown = "\n".join(f"    {line}".rstrip() for line in of_verb(verb).splitlines())
                parts.append(f"### {name}\n\n{shown}")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Write the site into the folder that is named, or ``reports/site``."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "reports" / "site"
    try:
        build_site(folder)
    except SiteFailed as failed:
        sys.exit(str(failed))
    print(folder / "index.html")


if __name__ == "__main__":
    main()
