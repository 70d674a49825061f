"""The settings of a repository that ``push --create`` creates, from a YAML file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from trainwright.core.data_files import read_yaml
from trainwright.core.records import Record, parse_record

PATH = Path(__file__).with_name("repository.yaml")
_ALL = 9999  # more images than a repository will have: ECR has no rule that only keeps
FILTERS = 5  # that a repository may have: ECR's service model, ImageTagMutabilityExclusionFilters


class Encryption(Record):
    """Encryption at rest. ``key`` is a KMS key's ARN, id or alias."""

    type: Literal["AES256", "KMS"]
    key: str | None = None


class RepositoryPolicy(Record):
    """The settings of a repository. A count of 0 omits its rule.

    ``immutable_tags`` are the wildcards of tags that never move while others may (``MUTABLE_WITH_EXCLUSION``). Of the
    images with ``nightly_tags``, the newest ``keep_nightly`` stay. An image with a tag that matches ``release_tags`` is
    never removed; one with none of these tags is removed only by ``keep_images``, which keeps the newest of all.
    """

    tag_mutability: Literal["MUTABLE_WITH_EXCLUSION", "IMMUTABLE_WITH_EXCLUSION", "IMMUTABLE", "MUTABLE"]
    immutable_tags: Annotated[tuple[str, ...], Meta(max_length=FILTERS)] = ()
    scan_on_push: bool
    encryption: Encryption
    tags: dict[str, str] = {}
    nightly_tags: str = "nightly-*"
    keep_nightly: Annotated[int, Meta(ge=0)] = 0
    release_tags: str = "release-*"
    keep_images: Annotated[int, Meta(ge=0)] = 0
    expire_untagged_days: Annotated[int, Meta(ge=0)]

    def __post_init__(self) -> None:
        if (self.tag_mutability == "MUTABLE_WITH_EXCLUSION") != bool(self.immutable_tags):
            raise ValueError('MUTABLE_WITH_EXCLUSION, and nothing else, needs immutable_tags, such as ["*-py3*"]')

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
        """The lifecycle policy in ECR's form; empty if nothing expires."""
        rules = []
        if self.expire_untagged_days:
            selection: dict[str, Any] = {"tagStatus": "untagged", "countType": "sinceImagePushed"}
            selection |= {"countUnit": "days", "countNumber": self.expire_untagged_days}
            rules.append((f"untagged images after {self.expire_untagged_days} days", selection))
        # ECR applies no later rule to an image whose tags match an earlier one: the first of these protects releases.
        for tags, count, says in (
            (self.release_tags, _ALL if self.keep_nightly or self.keep_images else 0, "releases stay"),
            (self.nightly_tags, self.keep_nightly, f"the newest {self.keep_nightly} nightly images stay"),
        ):
            if count:
                selection = {"tagStatus": "tagged", "tagPatternList": [tags]}
                rules.append((says, {**selection, "countType": "imageCountMoreThan", "countNumber": count}))
        if self.keep_images:
            selection = {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": self.keep_images}
            rules.append((f"the newest {self.keep_images} images stay", selection))
        numbered = [
            {"rulePriority": number, "description": says, "selection": what, "action": {"type": "expire"}}
            for number, (says, what) in enumerate(rules, 1)
        ]
        return json.dumps({"rules": numbered}) if numbered else ""


def load_policy(path: Path | None = None) -> RepositoryPolicy:
    """The shipped policy, or the one in a file.

    Raises:
        RequestError: the file is missing, is not YAML, or has an unknown key or an invalid value.
    """
    path = path or PATH
    return parse_record(RepositoryPolicy, read_yaml(path), str(path))
