"""A Dockerfile whose builds are timed and whose images are weighed."""

from __future__ import annotations

import json
import time
from pathlib import Path

from trainwright.core.runner import run
from trainwright.engine.engine import Engine
from trainwright.site.site import Site


class Contestant:
    """A Dockerfile in a context, built with one engine.

    Attributes:
        layers: of the last image, the lowest first: digest and bytes (uncompressed).
    """

    def __init__(self, name: str, engine: Engine, site: Site, scratch: Path) -> None:
        self.name, self.engine, self.site, self.scratch = name, engine, site, scratch
        self.layers: dict[str, int] = {}

    def build(self, context: Path, dockerfile: Path, *words: str) -> tuple[float, int, int]:
        """Seconds, bytes of the image, bytes of the layers that the build before did not have."""
        identity = self.scratch / f"{self.name}.id"
        argv = [self.engine.client.path, "build", "--iidfile", str(identity), "-f", str(dockerfile), *words]
        for key, path in self.site.secrets(self.scratch / "secrets").items():
            argv += ["--secret", f"id={key},src={path}"]
        started = time.monotonic()
        done = run([*argv, str(context)], env=self.engine.cli_env)
        seconds = time.monotonic() - started
        if not done.ok:
            raise SystemExit(f"{self.name}: {done.tail(20)}")
        known, self.layers = self.layers, self._layers(identity.read_text())
        new = [size for digest, size in self.layers.items() if digest not in known]
        return seconds, sum(self.layers.values()), sum(new)

    def _layers(self, image: str) -> dict[str, int]:
        client = self.engine.client.path
        digests = json.loads(run([client, "image", "inspect", "--format", "{{json .RootFS.Layers}}", image]).stdout)
        rows = run([client, "history", "--human=false", "--format", "{{.Size}}\t{{.CreatedBy}}", image]).stdout
        # Instructions that only set something have no layer.
        made = [row.split("\t", 1) for row in rows.splitlines()]
        sizes = [int(size) for size, command in reversed(made) if _makes_a_layer(command)]
        if len(sizes) != len(digests):
            raise SystemExit(f"{self.name}: {len(digests)} layers, of which {len(sizes)} are in the history:\n{rows}")
        return dict(zip(digests, sizes, strict=True))


def _makes_a_layer(command: str) -> bool:
    return command.removeprefix("/bin/sh -c ").startswith(("RUN", "COPY", "ADD", "|", "WORKDIR /src"))
