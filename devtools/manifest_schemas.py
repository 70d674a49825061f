"""Extracts of the published schemas of cluster jobs, against which the tests hold manifests.

    python -m devtools.manifest_schemas pytorchjob CRD.yaml MANIFEST.yaml …
    python -m devtools.manifest_schemas job swagger.json MANIFEST.yaml …
    python -m devtools.manifest_schemas hyperpod hyperpod_pytorch_job_unified_config.py MANIFEST.yaml …

The whole of Kubeflow's definition has 8,000 lines. An extract has every level that the manifests reach, closed, with
all of its names, so that a wrong name or type is still found; what they do not reach is left open. The sources are in
each extract's ``$comment``.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from trainwright.core.layout import json_lines

FOLDER = Path(__file__).parents[1] / "tests" / "support" / "manifest_schemas"
SOURCES = {
    "pytorchjob": "kubeflow/training-operator v1.9.0, manifests/base/crds/kubeflow.org_pytorchjobs.yaml (Apache-2.0)",
    "job": "Kubernetes' own definitions (api/openapi-spec), as kubernetes-client/python 36.0.0 has them in "
    "kubernetes/swagger.json.unprocessed (Apache-2.0)",
    "hyperpod": "sagemaker-hyperpod 3.12.0, sagemaker/hyperpod/training/config/hyperpod_pytorch_job_unified_config.py "
    "(Apache-2.0), as pydantic's JSON schema",
}
KINDS = {"job": "Job", "pytorchjob": "PyTorchJob", "hyperpod": "HyperPodPyTorchJob"}
KEPT = ("type", "required", "enum", "pattern", "minimum", "maximum", "anyOf")


def extract(schema: Mapping[str, Any], values: Sequence[Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a schema says about values, and the names of every level that one of them reaches.

    Args:
        schema: a schema of JSON or of OpenAPI.
        values: what manifests have there.
        whole: the schema in which ``$ref`` are looked up.
    """
    schema = _resolved(schema, whole)
    made = {key: schema[key] for key in KEPT if key in schema}
    if schema.get("x-kubernetes-int-or-string"):
        made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    tables = [value for value in values if isinstance(value, Mapping)]
    lists = [each for value in values if isinstance(value, list) for each in value]
    if "properties" in schema and tables:
        made["additionalProperties"] = False
        made["properties"] = {
            name: extract(part, [table[name] for table in tables if name in table], whole)
            for name, part in schema["properties"].items()
        }
    elif isinstance(schema.get("additionalProperties"), Mapping) and tables:
        inner = [each for table in tables for each in table.values()]
        made["additionalProperties"] = extract(schema["additionalProperties"], inner, whole)
    if "items" in schema and lists:
        made["items"] = extract(schema["items"], lists, whole)
    return made


def _resolved(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema behind references, and behind pydantic's union with null: a manifest leaves a value out instead."""
    if "$ref" in schema:
        return _resolved((whole.get("$defs") or whole["definitions"])[schema["$ref"].rpartition("/")[2]], whole)
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    return _resolved(choices[0], whole) if len(choices) == 1 else schema


def _published(kind: str, path: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The schema of the whole resource, and of where its references are looked up."""
    if kind == "pytorchjob":
        definition = yaml.safe_load(path.read_text())
        whole = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        return whole, whole
    if kind == "job":
        whole = json.loads(path.read_text())
        return whole["definitions"]["io.k8s.api.batch.v1.Job"], whole
    spec = importlib.util.spec_from_file_location("published", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["published"] = module
    spec.loader.exec_module(module)
    whole = module._HyperPodPytorchJob.model_json_schema(by_alias=False)
    text = {"type": "string"}
    resource = {"apiVersion": text, "kind": text, "metadata": {"type": "object"}, "spec": {**whole, "type": "object"}}
    return {"type": "object", "properties": resource, "required": ["spec"]}, whole


def main(kind: str, published: str, *manifests: str) -> None:
    """Write the extract of a published schema."""
    read = [each for name in manifests for each in yaml.safe_load_all(Path(name).read_text())]
    schema, whole = _published(kind, Path(published))
    made = extract(schema, [each for each in read if each["kind"] == KINDS[kind]], whole)
    comment = f"Extract of {SOURCES[kind]}. Written by devtools/manifest_schemas.py."
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{kind}.json").write_text(json_lines({"$comment": comment, **made}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
