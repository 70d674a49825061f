"""The lists of modules in ``docs/architecture.md``, made from the first sentences of their docstrings."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from trainwright.core.errors import RequestError

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
_LIST = re.compile(r"(<!-- modules of (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def architecture_page(page: str) -> str:
    """The page with its lists as the modules have them now.

    Args:
        page: the text with the marks ``<!-- modules of NAME -->`` and ``<!-- end -->``; NAME is a package of
            ``trainwright``, or a folder from the root of the checkout.

    Raises:
        RequestError: a mark names no folder of modules, or a module does not say what it is for.
    """
    return _LIST.sub(lambda found: f"{found[1]}{_table(found[2])}\n{found[3]}", page)


def _table(name: str) -> str:
    folder = ROOT / name if "/" in name else ROOT / "trainwright" / name
    modules = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    if not modules:
        raise RequestError(f"{PAGE.relative_to(ROOT)}: no modules in {name}", remedy="Correct the mark.")
    rows = [f"| `{path.stem}` | {purpose(path)} |" for path in modules]
    return "\n".join(["| module | |", "| --- | --- |", *rows])


def purpose(path: Path) -> str:
    """The first sentence of a module's docstring, on one line of Markdown.

    Raises:
        RequestError: the module has no docstring.
    """
    said = ast.get_docstring(ast.parse(path.read_text()))
    if not said:
        raise RequestError(
            f"{path.relative_to(ROOT)}: no docstring", remedy="Say in a sentence what the module is for."
        )
    text = " ".join(said.partition("\n\n")[0].split())
    text = re.sub(r":\w+:`[.~]*([^`]*)`", r"`\1`", text).replace("``", "`").replace("|", "\\|")
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`])", text, maxsplit=1)[0].rstrip(".")
