"""The text of a pipeline's files, from ``templates/pipeline``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainwright.core.paths import templates_dir


def render(template: str, values: Mapping[str, Any]) -> str:
    """A file of a pipeline.

    Args:
        template: file name in ``templates/pipeline``.
        values: all values of the template.

    Raises:
        jinja2.TemplateError: the template is broken or uses an unknown value (``StrictUndefined``).
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_dir()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - YAML, not HTML
    )
    text = environment.get_template(f"pipeline/{template}").render(values)
    # Macros end with an empty line. Blank lines stay only before a comment or a key of the top level.
    return re.sub(r"\n\s*\n(?=[ ])", "\n", re.sub(r"\n{3,}", "\n\n", text)).strip() + "\n"


def dump(part: object) -> str:
    """A part of a file as YAML, in the given order."""
    import yaml

    text: str = yaml.safe_dump(part, sort_keys=False, default_flow_style=False, width=120)
    return text
