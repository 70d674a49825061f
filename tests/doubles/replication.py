"""The copies that ECR makes of what is pushed, by the replication rules of the registry.

By its user guide ("Private image replication", "Private registry permissions"): whatever is pushed once a rule fits is
copied under the same name, into a repository that ECR creates if need be; a copy is not copied on; a registry of
another account takes copies only if its own policy allows ``ecr:ReplicateImage``; and where an immutable tag belongs to
another image, the copy has no tag. Here a copy is there at once, and no template for repositories applies.
"""

from __future__ import annotations

import contextlib
import http.client
import json
from typing import Any
from urllib.parse import quote

from moto.ecr.models import ecr_backends

from tests.doubles.images import Images, Refused
from tests.doubles.names import Registry


class Replication:
    """Copies between the registries of one emulated AWS.

    Args:
        images: of all registries.
        port: of the registry behind them, which has their blobs.
    """

    def __init__(self, images: Images, port: int) -> None:
        self._images, self._port = images, port
        images.pushed = self.copy

    def copy(self, repository: Any, image: Any, tag: str | None) -> None:
        """Copy an image, or a document, that was just pushed to all that the rules name."""
        source = Registry(repository.registry_id, repository.region_name)
        for to in _destinations(source, repository.name):
            state = {"region": to.region, "registryId": to.account}
            if to.account == source.account or _allowed(to, source.account):
                self._put(source, to, repository.name, image, tag)
                state |= {"status": "COMPLETE"}
            else:
                state |= {"status": "FAILED", "failureCode": "AccessDenied"}
            known = self._images.copies.setdefault((source.host, repository.name, image.image_digest), [])
            known[:] = [one for one in known if (one["registryId"], one["region"]) != (to.account, to.region)]
            known.append(state)

    def _put(self, source: Registry, to: Registry, name: str, image: Any, tag: str | None) -> None:
        manifest = json.loads(image.image_manifest)
        for blob in {one["digest"] for one in (manifest.get("config"), *manifest.get("layers", ())) if one}:
            self._mount(source, to, name, blob)
        backend = ecr_backends[to.account][to.region]
        if name not in backend.repositories:
            backend.create_repository(name, to.account, {"encryptionType": "AES256"}, None, "MUTABLE", [])
        there = self._images.repository(to.account, to.region, name)
        kind, digest = image.image_manifest_media_type, image.image_digest
        for each in (tag, None):
            try:
                self._images.put(there, image.image_manifest, kind, each, digest, copied=True)
            except Refused as refused:
                if refused.code == "ImageTagAlreadyExistsException":
                    continue
            return

    def _mount(self, source: Registry, to: Registry, name: str, digest: str) -> None:
        """Let the other repository have a blob: inside the registry, so that no client sends it."""
        here, there = (f"{each.account}/{each.region}/{name}" for each in (source, to))
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        with contextlib.closing(connection):
            connection.request("POST", f"/v2/{there}/blobs/uploads/?mount={digest}&from={quote(here, safe='')}")
            answer = connection.getresponse()
            if answer.status != 201:
                raise OSError(f"the registry does not mount {digest}: {answer.status}")


def _destinations(source: Registry, name: str) -> list[Registry]:
    """Where the rules of a registry send a repository's images."""
    found: list[Registry] = []
    for rule in ecr_backends[source.account][source.region].replication_config["rules"]:
        prefixes = [each["filter"] for each in rule.get("repositoryFilters") or ()]
        if not prefixes or name.startswith(tuple(prefixes)):
            found += [Registry(to["registryId"], to["region"]) for to in rule["destinations"]]
    return found


def _allowed(registry: Registry, account: str) -> bool:
    """Whether a registry's own policy lets another account copy images to it."""
    policy = json.loads(ecr_backends[registry.account][registry.region].registry_policy or '{"Statement": []}')
    for statement in policy["Statement"]:
        actions = statement["Action"]
        who = json.dumps(statement["Principal"])
        if statement["Effect"] == "Allow" and "ecr:ReplicateImage" in actions and account in who:
            return True
    return False
