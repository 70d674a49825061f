"""Images of a few bytes, for tests about moving images and not about their contents."""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from docker.errors import NotFound


@contextmanager
def tiny_image(engine: Any, tag: str, *layers: bytes, labels: Mapping[str, str] | None = None) -> Iterator[str]:
    """An image with one file per layer, under ``tag`` while this is open; yields its id.

    Args:
        engine: a client of the docker SDK.
        tag: its name in the engine.
        layers: the content of each layer's file. Bytes that do not compress make a layer that takes long to push.
        labels: of the image.
    """
    files = {str(number): content for number, content in enumerate(layers)}
    files["Dockerfile"] = "".join(["FROM scratch\n", *(f"COPY {name} /{name}\n" for name in files)]).encode()
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    context.seek(0)
    image, _ = engine.images.build(
        fileobj=context, custom_context=True, tag=tag, labels=dict(labels or {}), rm=True, forcerm=True
    )
    try:
        yield str(image.id)
    finally:
        with contextlib.suppress(NotFound):  # the test has removed it
            engine.images.remove(tag)
