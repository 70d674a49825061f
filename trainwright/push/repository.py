"""The settings of a repository that ``push --create`` creates, from a YAML file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from trainwright.core.data_files import read_yaml
from trainwright.core.records import Record, parse_record
from trainwright.push.tags import PREFIX, PROOF_PREFIX

PATH = Path(__file__).with_name("repository.yaml")
# A hundred years: ECR has no rule that only keeps. It documents no largest number, and a number of images would be one
# that a repository can outgrow: its quota is 100,000, and adjustable (user guide, "Amazon ECR service quotas").
_NEVER = 36_500
_ARCHIVED = 90  # days that an archived image stays at least (ECR user guide, "Archiving an image")
# Documents attached to images, and logs of tags, are read by nobody for long; nothing works without them.
_PAPERS = (f"{PROOF_PREFIX}*", f"{PREFIX}*")
FILTERS = 5  # that a repository may have: ECR's service model, ImageTagMutabilityExclusionFilters


class Encryption(Record):
    """Encryption at rest. ``key`` is a KMS key's ARN, id or alias."""

    type: Literal["AES256", "KMS"]
    key: str | None = None


class RepositoryPolicy(Record):
    """The settings of a repository. A number of days of 0 omits its rule.

    ``immutable_tags`` are the wildcards of tags that never move while others may (``MUTABLE_WITH_EXCLUSION``). Images
    that nobody has pulled for ``archive_unpulled_days`` are archived: they cost less, and have to be restored before
    they can be pulled. Those with ``nightly_tags`` are archived after ``archive_nightly_days`` and deleted
    ``expire_archived_nightly_days`` later. No rule applies to an image with a tag that matches ``release_tags``.
    """

    tag_mutability: Literal["MUTABLE_WITH_EXCLUSION", "IMMUTABLE_WITH_EXCLUSION", "IMMUTABLE", "MUTABLE"]
    immutable_tags: Annotated[tuple[str, ...], Meta(max_length=FILTERS)] = ()
    scan_on_push: bool
    encryption: Encryption
    tags: dict[str, str] = {}
    nightly_tags: str = "nightly-*"
    archive_nightly_days: Annotated[int, Meta(ge=0)] = 0
    expire_archived_nightly_days: Annotated[int, Meta(ge=0)] = 0
    release_tags: str = "release-*"
    archive_unpulled_days: Annotated[int, Meta(ge=0)] = 0
    expire_untagged_days: Annotated[int, Meta(ge=0)]

    def __post_init__(self) -> None:
        if (self.tag_mutability == "MUTABLE_WITH_EXCLUSION") != bool(self.immutable_tags):
            raise ValueError('MUTABLE_WITH_EXCLUSION, and nothing else, needs immutable_tags, such as ["*-py3*"]')
        if 0 < self.expire_archived_nightly_days < _ARCHIVED:
            raise ValueError(f"expire_archived_nightly_days: ECR keeps what is archived for {_ARCHIVED} days at least")

    def arguments(self, filters: list[str]) -> dict[str, Any]:
        """The arguments of ECR's CreateRepository.

        Args:
            filters: wildcards of tags that may move; used if tags are immutable with exclusions.
        """
        excluded = {"IMMUTABLE_WITH_EXCLUSION": filters, "MUTABLE_WITH_EXCLUSION": list(self.immutable_tags)}
        encryption: dict[str, str] = {"encryptionType": self.encryption.type}
        if self.encryption.key:
            encryption["kmsKey"] = self.encryption.key
        given: dict[str, Any] = {
            "imageTagMutability": self.tag_mutability,
            "imageScanningConfiguration": {"scanOnPush": self.scan_on_push},
            "encryptionConfiguration": encryption,
            "tags": [{"Key": key, "Value": value} for key, value in self.tags.items()],
        }
        if wildcards := excluded.get(self.tag_mutability):
            given["imageTagMutabilityExclusionFilters"] = [
                {"filterType": "WILDCARD", "filter": one} for one in wildcards
            ]
        return given

    def lifecycle_text(self) -> str:
        """The lifecycle policy in ECR's form; empty if nothing is archived and nothing expires."""
        nightly = {"tagStatus": "tagged", "tagPatternList": [self.nightly_tags]}
        rules: list[tuple[int, str, dict[str, Any], dict[str, str]]] = [
            (
                self.expire_untagged_days,
                "untagged images after {} days",
                {"tagStatus": "untagged", "countType": "sinceImagePushed"},
                _EXPIRE,
            ),
            (
                self.archive_nightly_days,
                "nightly images that were not pulled for {} days are archived",
                {**nightly, "countType": "sinceImagePulled"},
                _ARCHIVE,
            ),
            (
                self.expire_archived_nightly_days,
                "nightly images after {} days in the archive",
                {**nightly, "storageClass": "archive", "countType": "sinceImageTransitioned"},
                _EXPIRE,
            ),
            (
                self.archive_unpulled_days,
                "images that were not pulled for {} days are archived",
                {"tagStatus": "any", "countType": "sinceImagePulled"},
                _ARCHIVE,
            ),
        ]
        made: list[dict[str, Any]] = [
            {
                "description": says.format(days),
                "selection": {**what, "countUnit": "days", "countNumber": days},
                "action": action,
            }
            for days, says, what, action in rules
            if days
        ]
        if any(rule["selection"]["tagStatus"] != "untagged" for rule in made):
            # ECR applies no later rule to an image whose tags match an earlier one: these only protect.
            made = [*map(_protected, (self.release_tags, *_PAPERS)), *made]
        # In the order that ECR demands: the rule about any image is the last.
        numbered = [{"rulePriority": number, **rule} for number, rule in enumerate(made, 1)]
        return json.dumps({"rules": numbered}) if numbered else ""


_EXPIRE, _ARCHIVE = {"type": "expire"}, {"type": "transition", "targetStorageClass": "archive"}


def _protected(tags: str) -> dict[str, Any]:
    selection = {"tagStatus": "tagged", "tagPatternList": [tags], "countType": "sinceImagePushed", "countUnit": "days"}
    return {"description": f"{tags} stay", "selection": {**selection, "countNumber": _NEVER}, "action": _EXPIRE}


def load_policy(path: Path | None = None) -> RepositoryPolicy:
    """The shipped policy, or the one in a file.

    Raises:
        RequestError: the file is missing, is not YAML, or has an unknown key or an invalid value.
    """
    path = path or PATH
    return parse_record(RepositoryPolicy, read_yaml(path), str(path))
