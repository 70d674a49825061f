"""What belongs to a site travels as a secret: nothing of it is in a layer, in the history or in the configuration."""

from __future__ import annotations

import base64
import http.server
import json
import tarfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import builds
from tests.support.small_wheel import NAME, wheel
from trainwright.build.options import BuildOptions
from trainwright.core.paths import state_dir
from trainwright.engine.engine import connect
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site, load_site
from trainwright.sources.gather import gather

USER, PASSWORD = "builder", f"pw-{uuid.uuid4().hex}"
TAG = "trainwright-test/secrets:1"


@pytest.fixture
def private_index() -> Iterator[str]:
    """A package index on loopback that wants a user and a password; gives its address with both."""
    content = wheel()
    expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") != expected:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="test"')
                self.end_headers()
                return
            pages = {
                "/simple/twprivate/": f'<a href="/files/{NAME}">{NAME}</a>'.encode(),
                f"/files/{NAME}": content,
            }
            body = pages.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/zip")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{USER}:{PASSWORD}@127.0.0.1:{server.server_address[1]}/simple"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def occurrences(docker, image: str, words: list[bytes], tmp_path: Path) -> list[str]:
    """Where any of the words occurs in a saved image: its configuration, its history, every file of every layer."""
    saved = tmp_path / "image.tar"
    docker("save", "--output", str(saved), image)
    found = []
    with tarfile.open(saved) as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is None:
                continue
            tail = b""
            while chunk := stream.read(1 << 22):
                # Layers are plain tar archives here, so their files are found as they are.
                window = tail + chunk
                found += [f"{member.name}: {word!r}" for word in words if word in window]
                tail = chunk[-200:]
    saved.unlink()
    return found


def test_neither_ca_nor_credentials_are_in_the_image(tmp_path, monkeypatch, docker, private_index, small_catalog):
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    here = load_site()
    marker = f"trainwright-test-{uuid.uuid4().hex}"
    system = Path("/etc/ssl/certs/ca-certificates.crt")
    bundle = tmp_path / "ca.pem"
    authorities = here.ca_bundle or (system if system.is_file() else None)
    bundle.write_text((authorities.read_text() if authorities else "") + f"\n# {marker}\n")
    site = Site(
        extra_index_urls=(*here.extra_index_urls, private_index),
        index_url=here.index_url,
        find_links=here.find_links,
        local_indexes=here.local_indexes,
        ca_bundle=bundle,
        build_network="host",
    )
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("twprivate==1.0\n")
    plan = resolve(make_request(framework="pytorch", cuda="cpu", requirements=str(requirements)), small_catalog)
    plan = plan.replace(tags=(TAG,))
    options = BuildOptions(progress="none")
    try:
        record = builds.build(gather(plan, small_catalog, site), connect(), options=options, say=lambda _: None)
        # The secret was needed: without it the package could not have been had.
        assert record.probe["distributions"]["twprivate"] == "1.0"
        assert not occurrences(docker, TAG, [marker.encode(), PASSWORD.encode()], tmp_path)
        history = docker("history", "--no-trunc", TAG) + docker("image", "inspect", TAG)
        assert marker not in history
        assert PASSWORD not in history
        written = [p for p in state_dir().rglob("*") if p.is_file() and p.stat().st_size < 50_000_000]
        leaks = [str(p) for p in written if PASSWORD.encode() in p.read_bytes()]
        assert not leaks, "nor in a log, a record or the journal"
        # The same look does find what is there.
        label = json.loads(docker("image", "inspect", "--format", "{{json .Config.Labels}}", TAG))
        assert occurrences(docker, TAG, [label["io.trainwright.plan"].encode()], tmp_path)
    finally:
        docker("rmi", "--force", TAG, check=False)
