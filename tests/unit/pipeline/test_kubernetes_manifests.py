"""Manifests of Jobs: the published schema, what Kubernetes makes of names and texts, what a build asks for."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles import kubectl
from tests.support.kube_manifests import CPU, filled
from trainwright.catalog.catalog import load_catalog
from trainwright.pipeline.images import choose, line_name
from trainwright.pipeline.kubernetes import disk_gib, escaped, manifest, memory_gib, resource_name, smoke_job
from trainwright.plan.of_line import plan_of
from trainwright.site.site import Site

CATALOG = load_catalog()
ROOT = Path(__file__).resolve().parents[3]


def test_every_line_of_the_catalog_keeps_to_the_schema():
    for image in choose("*", CATALOG, Site()):
        text = manifest(smoke_job(image, gpus=8))
        filled(text)
        assert "&id" not in text, "a reader looks nowhere else"


def test_a_build_asks_for_the_disk_and_the_memory_that_it_needs():
    """Held against what proofs measured: the layers unpacked, the same packed, and what was downloaded."""
    by_line = {line_name(e.line.framework, e.line.version, e.line.cuda, e.line.base.kind): e for e in CATALOG.lines}
    cuda, cpu = plan_of(by_line["pytorch-2.6.0-cu124-debian"], CATALOG), plan_of(by_line[CPU], CATALOG)
    for plan, proof in ((cuda, "cu124"), (cpu, "cpu")):
        size = json.loads((ROOT / "proofs" / "pytorch" / f"{proof}.json").read_text())["size_bytes"]
        asked = disk_gib(plan)
        assert 3 * size / 2**30 + 15 < asked < 4 * size / 2**30 + 40
    for plan in (cuda, cpu):
        assert memory_gib(plan) >= 4 + max(component.compile_memory_gb for component in plan.components)


@given(st.text() | st.text(st.sampled_from("$()A{} x")))
def test_kubernetes_gives_every_text_back(text):
    assert kubectl.expanded(escaped(text), {"A": "1"}) == text


@given(st.text(min_size=1), st.text(min_size=1))
def test_every_name_is_one_that_kubernetes_takes(name, other):
    made = resource_name(name)
    # RFC 1123, and a label: with a hyphen and five characters it has at most 63.
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", made)
    assert len(made) + 6 + len("-smoke") <= 63
    if len(name) > 60 and name != other:
        assert made != resource_name(other)


TEXTS = st.recursive(
    st.text() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(TEXTS)
def test_a_manifest_says_what_it_was_made_of(value):
    assert yaml.safe_load(manifest({"a": value})) == {"a": value}
