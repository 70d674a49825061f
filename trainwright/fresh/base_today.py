"""What a base image is in its registry today, asked over HTTP: without an engine, and without pulling it."""

from __future__ import annotations

import hashlib
import json
import re
import urllib.error
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from trainwright.core.errors import RegistryRefused
from trainwright.core.masking import mask
from trainwright.push.ecr import MANIFESTS, Ecr
from trainwright.push.references import PushPlace, parse_host
from trainwright.push.registry import Registry
from trainwright.site.site import Site
from trainwright.site.web import FAILURES, open_url, reason
from trainwright.sources.base_image import DEFAULT_REGISTRY, canonical, mirrored

SECONDS = 20.0  # timeout of each wait on a registry
_HUB = "registry-1.docker.io"  # where Docker Hub answers
_LOOPBACK = re.compile(r"(localhost|127\.[0-9.]+)(:[0-9]+)?")  # spoken to without TLS, as engines do
_PARAMETER = re.compile(r'([a-z]+)="([^"]*)"')


@dataclass(frozen=True)
class BaseToday:
    """What a tag names today: digest of its manifest or index, and the layers of its image (digests of their tars)."""

    digest: str
    layers: tuple[str, ...]

    def is_under(self, layers: Sequence[str]) -> bool:
        """Whether an image with these layers, the lowest first, was built on it."""
        return tuple(layers[: len(self.layers)]) == self.layers


class BaseImages:
    """Asks registries for base images, once for each.

    Args:
        site: its mirrors of registries, proxies, authorities and credentials.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._known: dict[tuple[str, str], BaseToday | str] = {}

    def today(self, reference: str, architecture: str = "amd64") -> BaseToday | str:
        """What a reference with a tag names today; or in words why that is not known.

        A registry is asked as a client without an account, or with the login that the site's netrc has for its host;
        Amazon ECR with the credentials of AWS.
        """
        key = (canonical(mirrored(reference, self._site.registries)), architecture)
        if key not in self._known:
            try:
                self._known[key] = _Repository(key[0], self._site).image(architecture)
            except RegistryRefused as refused:
                self._known[key] = refused.message
            except (*FAILURES, KeyError, TypeError, AttributeError) as failed:
                self._known[key] = f"{key[0]}: {reason(failed)}"
        return self._known[key]


class _Repository:
    def __init__(self, reference: str, site: Site) -> None:
        self.host, _, rest = reference.partition("/")
        self.name, colon, tag = rest.rpartition(":")
        if not colon:
            self.name, tag = rest, "latest"
        self._tag, self._site = tag, site
        scheme = "http" if _LOOPBACK.fullmatch(self.host) else "https"
        self._root = f"{scheme}://{_HUB if self.host == DEFAULT_REGISTRY else self.host}"
        self._bearer = ""

    def image(self, architecture: str) -> BaseToday:
        if ecr := parse_host(self.host):
            return _in_ecr(PushPlace(*ecr, self.name), self._tag, self._site)
        text = self._get(f"manifests/{self._tag}")
        digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
        manifest = _mapping(json.loads(text))
        if inside := manifest.get("manifests"):
            own = [each for each in inside if _is_of(_mapping(each.get("platform")), architecture)]
            if not own:
                raise ValueError(f"has no image for linux/{architecture}")
            manifest = _mapping(json.loads(self._get(f"manifests/{own[0]['digest']}")))
        configuration = _mapping(json.loads(self._get(f"blobs/{manifest['config']['digest']}")))
        layers = configuration["rootfs"]["diff_ids"]
        if not layers:
            raise ValueError("its image has no layers")
        return BaseToday(digest, tuple(map(str, layers)))

    def _get(self, path: str) -> bytes:
        try:
            return self._read(path)
        except urllib.error.HTTPError as refused:
            with refused:
                asked = refused.headers.get("WWW-Authenticate", "")
                if refused.code != 401 or self._bearer or not asked.lower().startswith("bearer "):
                    raise
            self._bearer = self._token(dict(_PARAMETER.findall(asked)))
            return self._read(path)

    def _read(self, path: str) -> bytes:
        url, headers = f"{self._root}/v2/{self.name}/{path}", {"Accept": ", ".join(MANIFESTS)}
        with open_url(url, self._site, headers, SECONDS, bearer=self._bearer) as answer:
            return answer.read()

    def _token(self, asked: Mapping[str, str]) -> str:
        """The token that a registry asks for (its *token authentication specification*)."""
        realm = asked["realm"]
        if urlsplit(realm).scheme != urlsplit(self._root).scheme:
            raise ValueError(f"sends for a token to {mask(realm)}")
        words = {"scope": f"repository:{self.name}:pull"} | (
            {"service": asked["service"]} if "service" in asked else {}
        )
        with open_url(f"{realm}?{urlencode(words)}", self._site, {}, SECONDS) as answer:
            said = _mapping(json.loads(answer.read()))
        return str(said.get("token") or said["access_token"])


def _in_ecr(place: PushPlace, tag: str, site: Site) -> BaseToday:
    ecr = Ecr(place, site)
    registry, manifest = Registry(ecr, site), ecr.manifest(tag=tag)
    configuration = None if manifest is None else registry.configuration(registry.single(manifest))
    if manifest is None or configuration is None:
        raise ValueError("no such image")
    return BaseToday(manifest.digest, tuple(map(str, configuration["rootfs"]["diff_ids"])))


def _is_of(platform: Mapping[str, Any], architecture: str) -> bool:
    return (platform.get("os"), platform.get("architecture")) == ("linux", architecture)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
