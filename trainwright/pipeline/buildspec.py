"""CodeBuild's buildspec 0.2: renders the files, and checks each before it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from trainwright.core.data_files import parse_yaml
from trainwright.core.errors import RequestError
from trainwright.pipeline.text import render as text_of

SCHEMA_FILE = "buildspec-0.2.json"


def render(template: str, values: Mapping[str, Any]) -> str:
    """The text of a buildspec from ``templates/pipeline``, checked.

    Args:
        template: file name there.
        values: all values of the template.

    Raises:
        RequestError: the result is not a valid buildspec.
        jinja2.TemplateError: as :func:`trainwright.pipeline.text.render`.
    """
    text = text_of(template, values)
    check(text, template)
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
