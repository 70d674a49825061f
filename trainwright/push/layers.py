"""The stream of a push, read into the state of its layers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

LayerState = Literal["waiting", "pushing", "pushed", "present"]
_STATES: tuple[tuple[str, LayerState], ...] = (
    ("Layer already exists", "present"),
    ("Mounted from", "present"),
    ("Pushed", "pushed"),
    ("Pushing", "pushing"),
    ("Retrying", "pushing"),
    ("Preparing", "waiting"),
    ("Waiting", "waiting"),
)
_DIGEST = re.compile(r"digest: (sha256:[0-9a-f]{64})")


@dataclass
class Layer:
    """One layer. ``sent`` and ``size`` in bytes as the engine holds it, before compression; 0 until it says."""

    id: str
    state: LayerState = "waiting"
    sent: int = 0
    size: int = 0
    says: str = ""


@dataclass
class Push:
    """What a push said so far. ``digest`` is the manifest's, once the registry has it; ``error`` ends it."""

    layers: dict[str, Layer] = field(default_factory=dict)
    digest: str = ""
    error: str = ""

    def feed(self, event: Mapping[str, Any]) -> Layer | None:
        """Read one event; returns the layer that it is about."""
        if error := event.get("error") or (event.get("errorDetail") or {}).get("message"):
            self.error = str(error)
            return None
        status = str(event.get("status", ""))
        aux = event.get("aux")
        if isinstance(aux, Mapping) and aux.get("Digest"):
            self.digest = str(aux["Digest"])
        elif found := _DIGEST.search(status):
            self.digest = found[1]
        state = next((state for word, state in _STATES if status.startswith(word)), None)
        if not event.get("id") or state is None:
            return None
        layer = self.layers.setdefault(str(event["id"]), Layer(str(event["id"])))
        layer.state, layer.says = state, status
        detail = event.get("progressDetail") or {}
        # Sizes are estimates of the engine, and what is sent may come to a little more.
        layer.sent = int(detail.get("current") or 0) if state == "pushing" else layer.sent
        layer.size = max(layer.size, int(detail.get("total") or 0), layer.sent)
        if state == "pushed":
            layer.sent = layer.size
        return layer

    def count(self, state: LayerState) -> int:
        """How many layers are in a state."""
        return sum(layer.state == state for layer in self.layers.values())

    @property
    def sent(self) -> int:
        """Bytes sent so far."""
        return sum(layer.sent for layer in self.layers.values())

    @property
    def size(self) -> int:
        """Bytes of the layers that are sent, as far as the engine has said."""
        return sum(layer.size for layer in self.layers.values() if layer.state != "present")
