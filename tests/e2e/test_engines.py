"""The same plan by another way: through buildx with machine-readable progress, and on a base image that is there."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.doubles.remote_builder import buildx_configuration
from tests.support import builds
from trainwright.build.options import BuildOptions
from trainwright.core.errors import BuildFailed, EngineError
from trainwright.engine.engine import connect
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import load_site
from trainwright.sources.debian_base import make_base
from trainwright.sources.gather import gather

TAG = "trainwright-test/engines:1"
BASE = "trainwright-test/base:12"


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch, docker):
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    yield
    docker("rmi", "--force", TAG, check=False)
    docker("rmi", "--force", BASE, check=False)


def build(catalog, site=None, base_image=None, engine=None):
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), catalog, base_image)
    plan = plan.replace(tags=(TAG,))
    options = BuildOptions(progress="none")
    engine = engine or connect(setup=False)
    return builds.build(gather(plan, catalog, site or load_site()), engine, options=options, say=lambda _: None)


@pytest.fixture
def buildx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The buildx plugin of Debian's release after bookworm, in a client configuration of the test's own."""
    monkeypatch.setenv("DOCKER_CONFIG", str(buildx_configuration(tmp_path / "client")))


@pytest.mark.usefixtures("buildx")
def test_buildx_is_preferred_and_builds_the_same(small_catalog):
    engine = connect(setup=False)
    assert engine.client.buildkit == "buildx"
    assert engine.client.progress == "rawjson"
    record = build(small_catalog)
    assert record.engine.buildkit == "buildx"
    rows = {row.name: row for row in record.ledger}
    assert rows["python"].bytes > 0
    assert record.total_steps >= 9
    assert build(small_catalog).cached
    # The builder that a site names; "default" is the engine's own.
    assert build(small_catalog, load_site().replace(builder="default")).cached
    path = small_catalog.components["ssh"].path / "Dockerfile.j2"
    path.write_text(path.read_text().replace("{% endmacro %}", "RUN echo the last words; exit 42\n{% endmacro %}"))
    with pytest.raises(BuildFailed) as refused:
        build(small_catalog)
    assert refused.value.details["component"] == "ssh"
    assert refused.value.details["step_exit_code"] == 42
    assert any("the last words" in line for line in refused.value.details["last_lines"])


def test_a_builder_needs_buildx(small_catalog):
    engine = connect(setup=False)
    plain = dataclasses.replace(engine, client=dataclasses.replace(engine.client, buildkit="builtin"))
    with pytest.raises(EngineError, match="buildx"):
        build(small_catalog, load_site().replace(builder="farm"), engine=plain)


def test_a_base_image_of_the_site(small_catalog, docker):
    """What `base_image` in a site file does: FROM a reference, here one that the engine already has."""
    docker("import", str(make_base("bookworm", load_site(), say=lambda _: None).path), BASE)
    site = load_site().replace(base_image=BASE)
    record = build(small_catalog, site, BASE)
    assert record.plan.base.image == BASE
    assert f"ARG BASE_IMAGE={BASE}\n" in (record.folder / "Dockerfile").read_text()
    rows = {row.name: row for row in record.ledger}
    assert rows["base"].bytes > 50_000_000
    assert sum(row.bytes for row in record.ledger) == pytest.approx(record.size_bytes, rel=0.01)
    assert rows["ssh"].bytes > 0
