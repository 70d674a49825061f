"""The order of a whole job: nothing is fetched for its checksum before every source was asked."""

from __future__ import annotations

import pytest

from trainwright.build.build import BuildOptions
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import SourceError
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site
from trainwright.verbs.build import build_image


def test_sources_are_asked_before_a_first_use_fetches_anything(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    catalog = load_catalog()
    plan = resolve(make_request(framework="pytorch", cuda="cu113", version="1.10.2"), catalog)
    assert any(source.sha256 is None for component in plan.components for source in component.archives)

    def dead(*_: object, **__: object) -> None:
        raise SourceError("nothing answers")

    def fetch(*_: object, **__: object) -> None:
        pytest.fail("fetched before the sources were asked")

    monkeypatch.setattr("trainwright.engine.engine.connect", lambda **_: None)
    monkeypatch.setattr("trainwright.sources.reachability.check_sources", dead)
    monkeypatch.setattr("trainwright.sources.fetch.first_use", fetch)
    with pytest.raises(SourceError, match="nothing answers"):
        build_image(plan, catalog, Site(), BuildOptions(), flags="", locked=False, smoke=False, say=lambda _: None)
