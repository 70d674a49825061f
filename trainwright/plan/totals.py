"""What the build of a plan comes to: bytes to download, the size of the image, seconds.

Only what is known is counted. What is downloaded without a known size is named, and a size or a time without a build or
a proof that measured it is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from trainwright.catalog.standing import Standing
from trainwright.catalog.tools import tools_lock
from trainwright.catalog.wheel_lock import LockedPackage
from trainwright.core.errors import RequestError
from trainwright.core.records import Document, Field
from trainwright.plan.plan import Plan
from trainwright.plan.plan_lock import PlanLock, completed


class Download(Document):
    """What a build downloads if nothing is on this machine yet."""

    bytes: int = Field(description="of the files whose size is known")
    files: int = Field(description="number of those files")
    unknown: tuple[str, ...] = Field(description="what is downloaded as well, whose size is not known before")


class ExpectedSize(Document):
    """The size of the image when it was last built or proven."""

    bytes: int
    measured: Literal["built", "proven"] = Field(description="by a build of this project, or in the proof of the line")
    date: str = Field(description="YYYY-MM-DD")
    same_plan: bool = Field(description="of this plan; otherwise of the same line with an earlier plan")
    components: dict[str, int] = Field(
        default={}, description="bytes of its layers by component; empty if an older proof does not name them"
    )


class ExpectedTime(Document):
    """The seconds of the last build here that did not take everything from the cache."""

    seconds: float
    steps: int
    cached_steps: int = Field(description="of the steps, those that came from the builder's cache")
    date: str = Field(description="YYYY-MM-DD")
    same_plan: bool = Field(description="of this plan; otherwise of the same line with an earlier plan")


class Totals(Document):
    """What the build of a plan comes to."""

    download: Download
    size: ExpectedSize | None
    time: ExpectedTime | None
    over_budget: bool = Field(
        default=False, description="an image of the expected size gets no tag: it is over the plan's budget"
    )


class PlanDocument(Plan):
    """``plan --json``: the plan, and what is known of it."""

    proof: Standing
    totals: Totals


def download(plan: Plan, lock: PlanLock | None) -> Download:
    """What a build of a plan downloads.

    Args:
        plan: as it was resolved.
        lock: of the plan; it knows sizes that only a download can tell.

    Raises:
        RequestError: the lock is of another plan or has another checksum.
    """
    whole = completed(plan, lock)
    known: dict[str, int] = {}  # by checksum or name: components may share a file
    blank: dict[str, None] = {}
    count = 0
    for component in whole.components:
        for source in component.sources:
            if source.size is not None:
                known[source.sha256 or source.file or ""] = source.size
            else:
                count += 1
                blank[component.name] = None
    unknown = [_base(plan)]
    if plan.base.build_image is not None:
        unknown.append(f"the image of build stages {plan.base.build_image}")
    if lock is None or lock.system is None or plan.base.family != "apt":
        unknown.append("packages of the distribution")
    else:
        known |= {package.sha256: package.size for package in lock.system}
    if plan.unlocked:
        unknown.append("Python packages, as no lock has them")
    if plan.user.requirements_sha256 is not None and (lock is None or lock.user is None):
        unknown.append("packages of --with-requirements")
    tools = _tools(plan, lock)
    known |= {tool.sha256: tool.size for tool in tools if tool.size is not None}
    if not tools:
        unknown.append("build tools")
    if blank:
        unknown.append(f"{count} {'file' if count == 1 else 'files'} of {', '.join(blank)}")
    return Download(bytes=sum(known.values()), files=len(known), unknown=tuple(unknown))


def _tools(plan: Plan, lock: PlanLock | None) -> Sequence[LockedPackage]:
    """What builds the image without being part of it."""
    if lock is not None and lock.tools is not None:
        return lock.tools
    try:
        return tools_lock(plan.python, plan.platform).packages
    except RequestError:  # no tools for this Python: the build says so
        return ()


def _base(plan: Plan) -> str:
    return f"the base {plan.base.os}" if plan.base.image is None else f"the base image {plan.base.image}"
