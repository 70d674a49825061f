"""The command line of a build through BuildKit, as this site and this engine need it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trainwright.engine.builders import needs_buildx
from trainwright.engine.engine import Engine
from trainwright.site.site import Site


def command(engine: Engine, site: Site, secrets: Mapping[str, Path], arguments: Mapping[str, str]) -> list[str]:
    """``docker build`` with the site's secrets, proxies and network; the caller appends the context folder.

    Args:
        engine: its client builds.
        site: builder, proxies and network. Proxies are passed by name: their values belong in the client's environment
            (``site.build_args()``), where no process list shows them.
        secrets: files by secret id.
        arguments: build arguments without secrets.

    Raises:
        EngineError: the site names a builder, and the client has no buildx.
    """
    words = ["buildx", "build"] if engine.client.buildkit == "buildx" else ["build"]
    if site.builder:
        if engine.client.buildkit != "buildx":
            raise needs_buildx(engine, site.builder)
        words += ["--builder", site.builder]
    argv = [engine.client.path, *words]
    for name, path in secrets.items():
        argv += ["--secret", f"id={name},src={path}"]
    for name in site.build_args():
        argv += ["--build-arg", name]
    for name, value in arguments.items():
        argv += ["--build-arg", f"{name}={value}"]
    if site.build_network:
        argv += ["--network", site.build_network]
        if site.builder and site.build_network == "host":
            argv += ["--allow", "network.host"]  # other builders than the engine's own require it
    return argv
