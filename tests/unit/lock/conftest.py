"""The stand-in for uv, installed."""

from __future__ import annotations

import pytest

from tests.support.uv_answers import FakeTools, Install
from trainwright.core import runner


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    for name in ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_FIND_LINKS", "UV_INDEX_STRATEGY", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)

    def put(tools: FakeTools) -> FakeTools:
        monkeypatch.setattr(runner, "run", tools)
        return tools

    return put
