"""What a push would do: the gate and the registries are asked, and nothing is sent, made or moved (``--dry-run``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from trainwright.catalog.catalog import open_catalog
from trainwright.core.errors import RequestError
from trainwright.core.layout import size
from trainwright.engine.engine import sdk
from trainwright.push.documents import AheadDocument, AheadImage, PushedTag
from trainwright.push.ecr import Ecr
from trainwright.push.moving import Move, foresee
from trainwright.push.proof import gate
from trainwright.push.published import Published
from trainwright.push.push import built_at, chosen, places_of
from trainwright.push.refusals import clash
from trainwright.push.registry import Registry
from trainwright.push.repository import load_policy
from trainwright.push.settings import may_move, settle
from trainwright.push.soci import standing_index
from trainwright.push.tag_log import TagLog, held_text, standing
from trainwright.push.tags import Tags, soci_tag, tags_of
from trainwright.soci.manifests import SMALLEST

if TYPE_CHECKING:
    import docker

    from trainwright.build.store import BuildRecord
    from trainwright.core.say import Say
    from trainwright.push.options import PushOptions
    from trainwright.push.references import PushTarget
    from trainwright.site.site import Site

_EXTENDED = "IMMUTABLE_WITH_EXCLUSION"  # --create adds the filters that are missing (push.settings)
_NEW = "an image that the registry does not have"  # in the place of its digest


def look_ahead(
    images: Sequence[str], target: PushTarget, site: Site, options: PushOptions, *, say: Say
) -> AheadDocument:
    """What a push of these images would do, image by image in each region.

    Args:
        images: tags or ids of images that were built here.
        target: the repository and its regions.
        site: proxies and certificate authorities.
        options: how to push.
        say: progress callback.

    Raises:
        RequestError: an image is unknown, or an option is invalid.
        ProofFailed: an image is not proven.
        RegistryRefused: AWS or a registry refused or did not answer, a repository is missing and would not be made, or
            the tag of an image belongs to another one.
        EngineError: no engine answers.
    """
    if options.next_revision:
        raise RequestError("--dry-run does not look for the next revision", remedy="Name one: --revision 2")
    engine, found = chosen(images, options, say=say)
    client = sdk(engine)
    try:
        looks = [_look(client, image, record, options) for image, record in found]
    finally:
        client.close()
    places = [(ecr, Registry(ecr, site, say=say)) for ecr in (Ecr(place, site) for place in places_of(target, site))]
    rows = tuple(look.into(ecr, registry, say) for look in looks for ecr, registry in places)
    return AheadDocument(schema="trainwright/push-ahead/1", images=rows)


def _look(client: docker.DockerClient, image: str, record: BuildRecord, options: PushOptions) -> _Look:
    unproven = bool(gate(record, image, unproven=options.unproven).lacking)
    plan, built = record.plan, built_at(client, record)
    tags = tags_of(plan, built, open_catalog(), revision=options.revision, untested=unproven)
    said = Published(built=built, plan=plan.id, framework=plan.framework, version=plan.version, unproven=unproven)
    return _Look(image, record, tags, said, options)


@dataclass(frozen=True)
class _Look:
    """An image that passed the gate; ``said`` is what its labels say."""

    image: str
    record: BuildRecord
    tags: Tags
    said: Published
    options: PushOptions

    def into(self, ecr: Ecr, registry: Registry, say: Say) -> AheadImage:
        """What becomes of it in one registry."""
        place, record, tag = ecr.place, self.record, self.tags.immutable
        described = ecr.repository()
        if described is None and not self.options.create:
            settle(ecr, load_policy(None), [self.tags.filter], create=False, say=say)  # refuses, and says what to do
        there = None if described is None else ecr.manifest(tag=tag)
        # An image that is not proven gets another id when it is marked as such.
        if there is not None and not self.said.unproven and not there.holds(record.image_id):
            raise clash(place, tag, there.digest)
        first = PushedTag(tag=tag, kind="immutable", state="made" if there is None else "there already", says="")
        soci = None if there is None else standing_index(ecr, registry, there, tag)
        digest = soci.index.digest if soci else _NEW if there is None or self.options.soci else there.digest
        if soci or self.options.soci:
            says = "" if soci else f"if a layer has {size(SMALLEST)} or more"
            state: Literal["there already", "made"] = "there already" if soci else "made"
            own = [PushedTag(tag=soci_tag(tag), kind="immutable", state=state, says=says)]
        else:
            own = []
        moves = self._moves(ecr, registry, described, digest)
        return AheadImage(
            image=self.image,
            image_id=record.image_id,
            plan=record.plan.id,
            account=place.account,
            region=place.region,
            repository=place.repository,
            exists=described is not None,
            there=there is not None,
            size_bytes=record.size_bytes,
            tags=(first, *own, *moves),
        )

    def _moves(
        self, ecr: Ecr, registry: Registry, described: Mapping[str, Any] | None, digest: str
    ) -> Iterator[PushedTag]:
        """What becomes of the user's tags and of those that the repository lets move."""
        for tag in dict.fromkeys(self.options.tags):
            now = Move(tag, "made") if described is None else _own(ecr, registry, digest, tag)
            yield PushedTag(tag=tag, kind="own", state=now.state, says=now.says)
        for tag in () if self.options.leave_tags else self.tags.moving:
            if described is None:
                now = Move(tag, "made")
            elif may_move(described, tag) or (self.options.create and described["imageTagMutability"] == _EXTENDED):
                now = foresee(ecr, registry, digest, self.said, tag)
            else:
                continue
            yield PushedTag(tag=tag, kind="moving", state=now.state, says=now.says)


def _own(ecr: Ecr, registry: Registry, digest: str, tag: str) -> Move:
    """A tag that the user named: it is set wherever it points, unless it is held."""
    current = ecr.digest(tag)
    if why := held_text(standing(TagLog(ecr, registry, tag).read())):
        return Move(tag, "kept", f"{why}; the push would end with an error")
    return Move(tag, "made" if current is None else "there already" if current == digest else "moved")
