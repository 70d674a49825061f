"""Manifests of Jobs as tests fill them in, held to the published schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "tests/support/manifest_schemas/job.json").read_text())
DIGEST = "sha256:" + "d" * 64
CPU = "pytorch-2.13.0-cpu-debian"
REGISTRY = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
CACHE = f"{REGISTRY}/trainwright/cache"
VALUES = {
    "REGISTRY": REGISTRY,
    "BUILDKIT_IMAGE": "mirror.example.com/moby/buildkit@sha256:" + "b" * 64,
    "AWS_CLI_IMAGE": "mirror.example.com/aws-cli@sha256:" + "c" * 64,
    "POLL": "0.05",
}


def filled(text: str) -> dict[str, Any]:
    """A manifest of a Job as a run fills it in; fails if it does not keep to the schema."""
    values = {**VALUES, "DEADLINE": "7200", "KEPT": "86400", "DIGEST": DIGEST, "CACHE": CACHE, "BUILD_CPU": "4"}
    values |= {"REPOSITORY_PREFIX": "trainwright", "SERVICE_ACCOUNT": "trainwright", "RUN": "20261125-020007-1"}
    for name, value in values.items():
        text = text.replace(f"${{{name}}}", value)
    document: dict[str, Any] = yaml.safe_load(text)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return document
