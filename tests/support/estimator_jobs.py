"""Jobs and what is known of their images, for tests of ``estimator``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainwright.estimator.image import ImageFacts
from trainwright.estimator.subject import Subject
from trainwright.sagemaker.job import Job

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/team/training:1"
ROLE = "arn:aws:iam::123456789012:role/training"
ON = {"enabled": True}
NOW = datetime(2026, 11, 21, 15, 4, 5, 67_000, tzinfo=UTC)


def facts(framework: str = "pytorch", version: str = "2.6.0", **more: Any) -> ImageFacts:
    return ImageFacts(
        reference=IMAGE,
        origin="labels",
        framework=framework,
        version=version,
        cuda="12.4",
        python="3.11",
        **{"components": None, **more},
    )


def subject(image: ImageFacts | None = None, sdk: Any = 2, **given: Any) -> Subject:
    job = {"image": IMAGE, "role": ROLE, "instance_type": "ml.p4d.24xlarge", **given}
    return Subject(Job(**job), image or facts(), sdk)
