"""Shows a push on standard error: a bar per layer on a terminal, else a line per finished layer, or JSON lines."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from trainwright.core.layout import duration, size
from trainwright.engine.build_display import Mode
from trainwright.push.layers import Layer, Push

if TYPE_CHECKING:
    from rich.progress import TaskID

PAUSE = 10.0  # seconds between two lines about slow layers
_OVER = ("pushed", "present")


class UploadView(Protocol):
    """Shows a push."""

    def update(self, push: Push, layer: Layer) -> None:
        """A layer has changed."""

    def close(self) -> None:
        """Restore the terminal."""


def make_upload_view(mode: Mode = "auto", stream: TextIO | None = None) -> UploadView:
    """A view of a push, in the modes of a build's view (:mod:`trainwright.engine.build_display`); on standard error."""
    out = stream if stream is not None else sys.stderr
    if mode == "auto":
        mode = "live" if out.isatty() and os.environ.get("TERM", "dumb") != "dumb" else "plain"
    if mode == "none":
        return _Silent()
    if mode == "json":
        return _Json(out)
    return _Live(out) if mode == "live" else _Plain(out)


class _Silent:
    def update(self, push: Push, layer: Layer) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class _Json:
    """An object per change of state of a layer."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._states: dict[str, str] = {}

    def update(self, push: Push, layer: Layer) -> None:
        if self._states.get(layer.id) != layer.state:
            self._states[layer.id] = layer.state
            row: dict[str, Any] = {"event": "layer", "id": layer.id, "state": layer.state, "bytes": layer.size}
            row |= {"sent_bytes": push.sent, "layers": len(push.layers)}
            _write(self._stream, json.dumps(row))

    def close(self) -> None:
        """Nothing."""


class _Plain:
    """A line for each finished layer, and one every ten seconds during slow ones."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._states: dict[str, str] = {}
        self._started = self._last = time.monotonic()

    def update(self, push: Push, layer: Layer) -> None:
        before, now = self._states.get(layer.id), time.monotonic()
        self._states[layer.id] = layer.state
        if layer.says.startswith("Retrying"):
            if before != layer.says:
                self._states[layer.id] = layer.says
                _write(self._stream, f"layer {layer.id}: the connection failed; {layer.says.lower()}")
        elif layer.state in _OVER and before != layer.state:
            done = sum(push.count(state) for state in ("pushed", "present"))
            what = f"{size(layer.size)} pushed" if layer.state == "pushed" else "there already"
            _write(self._stream, f"layer {done}/{len(push.layers)} {layer.id} {what}")
            self._last = now
        elif now - self._last >= PAUSE:
            self._last = now
            _write(self._stream, f"{size(push.sent)} of {size(push.size)} sent, {duration(now - self._started)}")

    def close(self) -> None:
        """Nothing."""


class _Live:
    """A bar per layer that is being sent, and one for the whole."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=Console(file=stream),
            redirect_stdout=False,
            refresh_per_second=4,
        )
        self._tasks: dict[str, TaskID] = {}
        self._bars.start()
        self._all = self._bars.add_task("layers", total=None)

    def update(self, push: Push, layer: Layer) -> None:
        done = sum(push.count(state) for state in ("pushed", "present"))
        self._bars.update(
            self._all, completed=push.sent, total=push.size or None, description=f"{done}/{len(push.layers)} layers"
        )
        if layer.state == "pushing" and layer.id not in self._tasks:
            self._tasks[layer.id] = self._bars.add_task(layer.id, total=layer.size or None)
        if layer.id in self._tasks:
            self._bars.update(
                self._tasks[layer.id],
                completed=layer.sent,
                total=layer.size or None,
                visible=layer.state == "pushing",
            )

    def close(self) -> None:
        self._bars.stop()


def _write(stream: TextIO, line: str) -> None:
    try:
        stream.write(line + "\n")
        stream.flush()
    except (OSError, ValueError):  # nobody reads the stream any more; the push goes on
        return
