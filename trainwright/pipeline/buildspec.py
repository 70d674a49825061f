"""CodeBuild's buildspec 0.2: renders the files, and checks each before it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from trainwright.core.data_files import parse_yaml
from trainwright.core.errors import RequestError
from trainwright.core.paths import templates_dir

SCHEMA_FILE = "buildspec-0.2.json"


def render(template: str, values: Mapping[str, Any]) -> str:
    """The text of a buildspec from ``templates/pipeline``, checked.

    Args:
        template: file name there.
        values: all values of the template.

    Raises:
        RequestError: the result is not a valid buildspec.
        jinja2.TemplateError: the template is broken or uses an unknown value (``StrictUndefined``).
    """
    import re

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
    text = re.sub(r"\n\s*\n(?=[ ])", "\n", re.sub(r"\n{3,}", "\n\n", text)).strip() + "\n"
    check(text, template)
    return text


def dump(document: Mapping[str, Any]) -> str:
    """A part of a buildspec as YAML, in the given order."""
    import yaml

    text: str = yaml.safe_dump(document, sort_keys=False, default_flow_style=False, width=120)
    return text


def parse(text: str, where: str) -> dict[str, Any]:
    """A buildspec as data.

    Args:
        text: YAML.
        where: what to name in an error.

    Raises:
        RequestError: it is not YAML, or violates the schema of buildspec 0.2; the message names the place.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    document = parse_yaml(text, where)
    wrong = best_match(Draft202012Validator(schema()).iter_errors(document))
    if wrong is not None:
        place = ".".join(str(part) for part in wrong.absolute_path) or "document"
        raise RequestError(f"{where}: {place}: {wrong.message}", remedy="docs/pipeline.md describes a pipeline.")
    found: dict[str, Any] = document
    return found


def check(text: str, where: str) -> None:
    """Check a buildspec against the schema, and its batch graph.

    Raises:
        RequestError: as :func:`parse` and :func:`order_of`.
    """
    document = parse(text, where)
    nodes = document.get("batch", {}).get("build-graph", ())
    order_of(nodes, where)


def order_of(nodes: Sequence[Mapping[str, Any]], where: str) -> list[str]:
    """The identifiers of a build graph, each after those that it depends on.

    Raises:
        RequestError: an identifier is duplicate or missing, or some depend on each other.
    """
    from graphlib import CycleError, TopologicalSorter

    names = [node["identifier"] for node in nodes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RequestError(f"{where}: batch.build-graph: duplicate identifier {', '.join(twice)}")
    waits = {node["identifier"]: tuple(node.get("depend-on", ())) for node in nodes}
    for name, needed in waits.items():
        for other in needed:
            if other not in waits:
                raise RequestError(f"{where}: batch.build-graph: {name} depends on {other}, which does not exist")
    try:
        return list(TopologicalSorter(waits).static_order())
    except CycleError as cycle:
        raise RequestError(f"{where}: batch.build-graph: {' -> '.join(cycle.args[1])} depend on each other") from None


def schema() -> dict[str, Any]:
    """The JSON schema of buildspec 0.2 (``trainwright/schemas``)."""
    text = resources.files("trainwright").joinpath("schemas", SCHEMA_FILE).read_text()
    document: dict[str, Any] = json.loads(text)
    return document
