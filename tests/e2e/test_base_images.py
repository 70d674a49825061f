"""Base images with a real engine: from a mirror of their registry, by the digest of a lock, and out of a folder.

The registry is a small one of this test, on loopback; it has an image of one file.
"""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import json
import tarfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.loopback import Loopback, loopback
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import SourceError
from trainwright.core.runner import run
from trainwright.engine.buildkit import command
from trainwright.engine.engine import connect
from trainwright.lock import diff, mirror
from trainwright.lock.make import lock_base
from trainwright.plan.plan import Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site, load_site
from trainwright.sources import base_image
from trainwright.sources.base_image import images_of
from trainwright.sources.fetch import new_lock
from trainwright.sources.gather import gather, gather_base
from trainwright.sources.reachability import check_sources

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


def quiet(_: str) -> None:
    """Nobody listens."""


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def serve(server: Loopback, repository: str, tag: str, text: str) -> str:
    """Put an image of one file into the registry; returns the digest of its manifest."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        info = tarfile.TarInfo("word")
        info.size = len(text)
        made.addfile(info, io.BytesIO(text.encode()))
    layer, blob = out.getvalue(), gzip.compress(out.getvalue(), mtime=0)
    rootfs = {"type": "layers", "diff_ids": [digest(layer)]}
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs}).encode()
    parts = [
        {"mediaType": kind, "size": len(data), "digest": digest(data)}
        for kind, data in ((CONFIG, config), (LAYER, blob))
    ]
    body = {"schemaVersion": 2, "mediaType": MANIFEST, "config": parts[0], "layers": parts[1:]}
    manifest = json.dumps(body).encode()

    def answer(data: bytes, kind: str) -> Callable[[http.server.BaseHTTPRequestHandler], None]:
        def page(handler: http.server.BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            for key, value in (("Content-Type", kind), ("Docker-Content-Digest", digest(data))):
                handler.send_header(key, value)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            if handler.command == "GET":
                handler.wfile.write(data)

        return page

    server.pages["/v2/"] = answer(b"{}", "application/json")
    for reference in (tag, digest(manifest)):
        server.pages[f"/v2/{repository}/manifests/{reference}"] = answer(manifest, MANIFEST)
    for data in (config, blob):
        server.pages[f"/v2/{repository}/blobs/{digest(data)}"] = answer(data, "application/octet-stream")
    return digest(manifest)


class Hub:
    """A registry with an image that only a mirror of its registry has."""

    def __init__(self, server: Loopback, docker: Callable[..., str]) -> None:
        self.server, self.docker = server, docker
        self.repository = f"hub/team/base-{uuid.uuid4().hex[:8]}"
        self.host = server.url.removeprefix("http://")
        self.image = f"{self.repository.removeprefix('hub/')}:1"
        self.site = load_site().replace(registries={"docker.io": f"{self.host}/hub"})

    def publish(self, text: str) -> str:
        return serve(self.server, self.repository, "1", text)

    def plan(self) -> Plan:
        plan = resolve(make_request(framework="pytorch", cuda="cpu"), load_catalog())
        return plan.replace(base=plan.base.replace(image=self.image))


@pytest.fixture
def hub(docker, tmp_path, monkeypatch) -> Iterator[Hub]:
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    with loopback() as server:
        made = Hub(server, docker)
        try:
            yield made
        finally:
            for row in docker("images", "--quiet", "--no-trunc", f"{made.host}/{made.repository}").splitlines():
                docker("rmi", "--force", row, check=False)


def word_of(folder: Path, arguments: dict[str, str], site: Site, image: str) -> str:
    """What a build from these arguments finds in its base image."""
    folder.mkdir(exist_ok=True)
    (folder / "Dockerfile").write_text(
        f"ARG BASE_IMAGE={image}\nFROM ${{BASE_IMAGE}} AS base\nFROM scratch\nCOPY --from=base /word /word\n"
    )
    engine = connect(setup=False)
    argv = [*command(engine, site, {}, arguments), "--output", f"type=local,dest={folder}/out", str(folder)]
    done = run(argv, env=engine.cli_env)
    assert done.ok, done.stderr
    return (folder / "out" / "word").read_text()


def test_a_mirror_stands_in_and_the_digest_holds(hub, tmp_path):
    engine = connect(setup=False)
    first = hub.publish("first")
    plan = hub.plan()
    check_sources(gather(plan, load_catalog(), hub.site), engine)
    base = lock_base(gather(plan, load_catalog(), hub.site), engine, refresh=False, say=quiet)
    assert (base.image, base.digest) == (hub.image, first)
    assert base.image_id and base.image_id != first
    # The tag moves on; the lock does not.
    hub.publish("second")
    arguments = base_image.build_arguments(images_of(base.as_base(), {}, hub.site), engine, say=quiet)
    assert arguments == {"BASE_IMAGE": f"{hub.host}/{hub.repository}:1@{first}"}
    assert word_of(tmp_path / "one", arguments, hub.site, hub.image) == "first"
    unlocked = base_image.build_arguments(images_of(plan.base, {}, hub.site), engine, say=quiet)
    hub.docker("pull", unlocked["BASE_IMAGE"])
    assert word_of(tmp_path / "two", unlocked, hub.site, hub.image) == "second"
    # `lock --check` says that there is another.
    lock = new_lock(plan, "").replace(base=base)
    assert lock.base is not None
    (row,) = diff._images(gather_base(lock.base, hub.site).images, engine)
    assert (row.state, row.locked) == ("newer", first)
    newer = lock_base(gather(plan, load_catalog(), hub.site), engine, refresh=True, say=quiet)
    assert newer.digest == row.now != first


def test_a_mirror_that_lacks_the_image_ends_with_8(hub):
    with pytest.raises(SourceError) as refused:
        check_sources(gather(hub.plan(), load_catalog(), hub.site), connect(setup=False))
    assert f"{hub.host}/{hub.repository}:1" in refused.value.message
    assert "[registries]" in refused.value.remedy


def test_an_image_travels_in_a_folder(hub, tmp_path, spare_engine, monkeypatch):
    hub.publish("out of a folder")
    engine = connect(setup=False)
    lock = new_lock(hub.plan(), "")
    lock = lock.replace(base=lock_base(gather(hub.plan(), load_catalog(), hub.site), engine, refresh=False, say=quiet))
    assert lock.base is not None and lock.base.image_id
    assert mirror._base(gather_base(lock.base, hub.site), lock, tmp_path / "m", hub.site, engine=engine, say=quiet) == 1
    path = base_image.image_file(tmp_path / "m" / "images", lock.base.image_id)
    assert path.is_file()
    site = Site(image_folder=tmp_path / "m" / "images", build_network="none")
    with spare_engine() as other, monkeypatch.context() as patch:
        patch.setenv("DOCKER_HOST", other.endpoint)
        there = connect(setup=False)
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(SourceError) as cut:
            base_image.build_arguments(gather_base(lock.base, site).images, there, say=quiet)
        assert str(path) in cut.value.message
        path.write_bytes(content)
        arguments = base_image.build_arguments(gather_base(lock.base, site).images, there, say=quiet)
        assert arguments["BASE_IMAGE"].startswith("trainwright/base:")
        assert word_of(tmp_path / "built", arguments, site, hub.image) == "out of a folder"
