"""What an image in a registry says of itself: its labels, and when it was built."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from trainwright.core.records import Field, Record
from trainwright.plan.plan import LABEL
from trainwright.push.proof import BUILT_LABEL, UNPROVEN_LABEL


class Published(Record):
    """The labels of an image in a registry. ``built`` is in UTC; ``plan`` is empty if Trainwright did not build it."""

    built: datetime
    plan: str
    framework: str
    version: str
    unproven: bool = Field(description="pushed without a passed smoke run")


def published_of(configuration: Mapping[str, Any]) -> Published | None:
    """The labels of an image's configuration; ``None`` if it has none of ours, or they are invalid."""
    try:
        labels = labels_of(configuration)
        return Published(
            built=moment(labels.get(BUILT_LABEL) or configuration["created"]),
            plan=labels.get(f"{LABEL}.plan", ""),
            framework=labels.get(f"{LABEL}.framework", ""),
            version=labels.get(f"{LABEL}.framework-version", ""),
            unproven=UNPROVEN_LABEL in labels,
        )
    except (ValueError, KeyError, AttributeError):
        return None


def labels_of(configuration: Mapping[str, Any]) -> Mapping[str, str]:
    """The labels of an image's configuration."""
    labels: Mapping[str, str] = (configuration.get("config") or {}).get("Labels") or {}
    return labels


def moment(text: str) -> datetime:
    """Parse a time as engines and registries write it (RFC 3339, nanoseconds), in UTC.

    Raises:
        ValueError: the text is not a time.
    """
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text)).astimezone(UTC)
