"""What a tag of a base image names today, from a registry with tokens, and whether an image is built on it."""

from __future__ import annotations

import hashlib
import json
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.build_records import record_of
from tests.support.loopback import Loopback, status
from trainwright.catalog.catalog import load_catalog
from trainwright.fresh.base_today import BaseImages, BaseToday
from trainwright.fresh.sources_today import SourcesToday
from trainwright.pipeline.images import choose
from trainwright.site.site import Site

LAYERS = [f"sha256:{letter * 64}" for letter in "ab"]
LINE = "pytorch-2.13.0-cu130-nvidia"


def sha256(text: bytes) -> str:
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


class Hub:
    """A registry that wants a token for each repository, and has one image under an index."""

    def __init__(self, server: Loopback, name: str, tag: str, layers: list[str]) -> None:
        self.server, self.host = server, server.url.removeprefix("http://")
        configuration = json.dumps({"rootfs": {"diff_ids": layers}}).encode()
        manifest = json.dumps({"config": {"digest": sha256(configuration)}, "layers": []}).encode()
        others = [{"digest": "sha256:0", "platform": {"os": "linux", "architecture": "arm64"}}]
        own = {"digest": sha256(manifest), "platform": {"os": "linux", "architecture": "amd64"}}
        index = json.dumps({"manifests": [*others, own]}).encode()
        self.digest = sha256(index)
        self.token: Any = json.dumps({"token": "secret-token"}).encode()
        root = f"/v2/{name}"
        server.pages = {
            f"{root}/manifests/{tag}": self._guarded(index),
            f"{root}/manifests/{sha256(manifest)}": self._guarded(manifest),
            # Blobs are elsewhere, where the token must not go.
            f"{root}/blobs/{sha256(configuration)}": status(307, Location=f"{self.other}/blob"),
            "/blob": configuration,
        }
        scope = f"repository%3A{name.replace('/', '%2F')}%3Apull"
        server.pages[f"/token?scope={scope}&service=hub"] = lambda handler: self._say(handler, self.token)

    @property
    def other(self) -> str:
        """The same server under another name."""
        return self.server.url.replace("127.0.0.1", "localhost")

    @staticmethod
    def _say(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def _guarded(self, body: bytes) -> Any:
        def answer(handler: BaseHTTPRequestHandler) -> None:
            if handler.headers.get("Authorization") == "Bearer secret-token":
                self._say(handler, body)
                return
            handler.send_response(401)
            asked = f'Bearer realm="{self.server.url}/token",service="hub",scope="repository:x:pull"'
            handler.send_header("WWW-Authenticate", asked)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        return answer


@pytest.fixture
def hub(server: Loopback) -> Hub:
    return Hub(server, "nvidia/cuda", "13.0", LAYERS)


def test_a_tag_is_followed_to_the_layers_of_its_image(hub: Hub) -> None:
    images = BaseImages(Site())
    found = images.today(f"{hub.host}/nvidia/cuda:13.0")
    assert found == BaseToday(hub.digest, tuple(LAYERS))
    asked = len(hub.server.asked)
    assert images.today(f"{hub.host}/nvidia/cuda:13.0") == found
    assert len(hub.server.asked) == asked  # once
    to_blobs = [h for path, h in zip(hub.server.asked, hub.server.headers, strict=True) if path == "/blob"]
    assert [h.get("Authorization") for h in to_blobs] == [None]


def test_the_mirror_of_a_site_is_asked(hub: Hub) -> None:
    found = BaseImages(Site(registries={"docker.io": hub.host})).today("nvidia/cuda:13.0")
    assert isinstance(found, BaseToday) and found.digest == hub.digest


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda hub: hub.server.pages.clear(), "status 404"),
        (lambda hub: setattr(hub, "token", b"{}"), "access_token"),
        (lambda hub: setattr(hub, "token", b"not json"), "Expecting value"),
        (lambda hub: setattr(hub, "token", b'{"token": "wrong"}'), "status 401"),
        (lambda hub: hub.server.pages.update({"/v2/nvidia/cuda/manifests/13.0": status(429)}), "status 429"),
        (lambda hub: hub.server.pages.update({"/v2/nvidia/cuda/manifests/13.0": b"[]"}), "config"),
        (lambda hub: hub.server.pages.update({"/blob": b'{"rootfs": {"diff_ids": []}}'}), "no layers"),
    ],
)
def test_a_registry_that_does_not_say_is_no_failure(hub: Hub, change: Any, says: str) -> None:
    change(hub)
    found = BaseImages(Site()).today(f"{hub.host}/nvidia/cuda:13.0")
    assert isinstance(found, str) and says in found and hub.host in found


def test_another_processor_has_no_image(hub: Hub) -> None:
    assert "no image for linux/ppc64le" in str(BaseImages(Site()).today(f"{hub.host}/nvidia/cuda:13.0", "ppc64le"))


def test_a_token_is_asked_for_nowhere_but_with_the_same_protection(server: Loopback) -> None:
    hub = Hub(server, "a", "1", LAYERS)
    server.pages["/v2/a/manifests/1"] = status(401, WWW_Authenticate='Bearer realm="ftp://x/token"')
    assert "sends for a token to ftp://x/token" in str(BaseImages(Site()).today(f"{hub.host}/a:1"))


@pytest.mark.parametrize(
    ("image", "moved"),
    [
        ({"layers": [*LAYERS, "sha256:" + "c" * 64]}, False),
        ({"layers": [LAYERS[0], "sha256:" + "c" * 64]}, True),
        ({"layers": LAYERS[:1]}, True),
        ({"labels": {"org.opencontainers.image.base.digest": "sha256:" + "d" * 64}}, True),
        ({"labels": {}}, False),
    ],
)
def test_layers_decide_whether_an_image_is_built_on_it(server: Loopback, image: dict[str, Any], moved: bool) -> None:
    (line,) = choose(LINE, load_catalog(), Site())
    reference = str(line.plan.base.image)
    name, _, tag = reference.rpartition(":")
    hub = Hub(server, name, tag, LAYERS)
    site = Site(registries={"docker.io": hub.host})
    made = record_of(line.plan, f"sha256:{1:064x}")
    sources = SourcesToday(load_catalog(), site, say=lambda _: None)
    says = sources.base(line.plan, made.replace(probe={**made.probe, "image": image}))
    assert says == (f"{reference} is {hub.digest[7:19]} now" if moved else "")
    assert sources.unknown == []


def test_a_base_that_nobody_has_to_ask_for(server: Loopback) -> None:
    (line,) = choose("pytorch-2.13.0-cpu-debian", load_catalog(), Site())
    (extended,) = choose(LINE, load_catalog(), Site())
    site = Site(registries={"docker.io": urlsplit(server.url).netloc})
    sources = SourcesToday(load_catalog(), site, say=lambda _: None)
    pinned = extended.plan.base.replace(image=f"{extended.plan.base.image}@sha256:{'a' * 64}")
    for plan in (line.plan, extended.plan.replace(base=pinned)):
        assert sources.base(plan, record_of(plan, f"sha256:{1:064x}")) == ""
    assert (server.asked, sources.unknown) == ([], [])


def test_a_registry_without_an_answer_is_named(server: Loopback) -> None:
    (line,) = choose(LINE, load_catalog(), Site())
    site = Site(registries={"docker.io": urlsplit(server.url).netloc})
    sources = SourcesToday(load_catalog(), site, say=lambda _: None)
    assert sources.base(line.plan, record_of(line.plan, f"sha256:{1:064x}")) == ""
    (why,) = sources.unknown
    assert why.startswith("whether a base image has moved: ") and "status 404" in why
