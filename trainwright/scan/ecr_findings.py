"""The findings of Amazon ECR's own scan of an image, basic or enhanced (Amazon Inspector).

The fields are those of botocore's model of ``DescribeImageScanFindings``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from trainwright.core.errors import ProofFailed
from trainwright.push.ecr import aws_client
from trainwright.push.promote import find_image
from trainwright.push.references import PushPlace
from trainwright.push.refusals import aws_failure
from trainwright.scan.allow import Allowance
from trainwright.scan.database import UsedDatabase
from trainwright.scan.documents import ScanDocument, Vulnerability
from trainwright.scan.inventory import Inventory
from trainwright.scan.scan import first_line, judge
from trainwright.scan.severity import SeverityLevel
from trainwright.site.site import Site

_LEVELS: Mapping[str, SeverityLevel] = {
    **{"CRITICAL": "critical", "HIGH": "high", "MEDIUM": "medium", "LOW": "low", "INFORMATIONAL": "low"},
}
_DONE = ("COMPLETE", "ACTIVE")  # ACTIVE: an enhanced scan that goes on whenever its database changes
_WAIT = ("IN_PROGRESS", "PENDING")
_NO_FIX = ("", "NotAvailable")  # the latter is Amazon Inspector's word


def scan_by_ecr(
    address: str,
    site: Site,
    *,
    allowances: Sequence[Allowance] = (),
    fail_on: SeverityLevel | None = None,
    today: date,
) -> ScanDocument:
    """What ECR found in an image, judged as a scan of our own.

    Args:
        address: the image in ECR, by digest.
        site: proxies and certificate authorities.
        allowances: vulnerabilities that are accepted.
        fail_on: the least level that counts; by default, all count.
        today: the day on which allowances hold.

    Raises:
        RequestError: the address is not one of ECR by digest.
        ProofFailed: ECR has not scanned the image, or could not.
        RegistryRefused: AWS refused.
    """
    place, digest = find_image(address, "scan")
    pages = _pages(place, digest, address, site)
    found = [page.get("imageScanFindings", {}) for page in pages]
    rows = [*_basic(found), *_enhanced(found)]
    suppressed = sum(each.get("status") == "SUPPRESSED" for page in found for each in page.get("enhancedFindings", ()))
    notes = (f"{suppressed} findings are suppressed in Amazon Inspector",) if suppressed else ()
    packages = len({(row.package, row.version) for row in rows})
    inventory = Inventory(subject=address, plan="", image=digest, packages=(), unscanned=(), notes=notes)
    kind = "enhanced" if any("enhancedFindings" in page for page in found) else "basic"
    used = UsedDatabase(
        ecosystem=f"Amazon ECR ({kind})", path="", digest="", date=_updated(found), records=len(rows) + suppressed
    )
    judged = judge(inventory, rows, [used], allowances=allowances, fail_on=fail_on, today=today)
    return judged.replace(packages=packages)


def _pages(place: PushPlace, digest: str, address: str, site: Site) -> list[dict[str, Any]]:
    from botocore.exceptions import BotoCoreError, ClientError

    client = aws_client("ecr", place.region, site)
    account, repository = place.account, place.repository
    asked: dict[str, Any] = {"registryId": account, "repositoryName": repository, "imageId": {"imageDigest": digest}}
    pages: list[dict[str, Any]] = []
    try:
        while True:
            page = client.describe_image_scan_findings(**asked)
            _check(page.get("imageScanStatus", {}), address)
            pages.append(page)
            if not page.get("nextToken"):
                return pages
            asked["nextToken"] = page["nextToken"]
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") == "ScanNotFoundException":
            raise ProofFailed(
                f"{address}: ECR has not scanned it",
                remedy=f"aws ecr start-image-scan --region {place.region} --registry-id {account} "
                f"--repository-name {repository} --image-id imageDigest={digest}",
                image=digest,
            ) from None
        raise aws_failure(error, action="ecr:DescribeImageScanFindings", where=address) from None
    except BotoCoreError as error:
        raise aws_failure(error, action="ecr:DescribeImageScanFindings", where=address) from None


def _check(status: Mapping[str, str], address: str) -> None:
    """Refuse a scan that has not ended well; its findings are those of an earlier one, or none."""
    word, said = status.get("status", ""), status.get("description", "")
    if word in _DONE:
        return
    remedy = (
        "Run the same command in a minute." if word in _WAIT else "./invoke scan --database DIR looks here instead."
    )
    raise ProofFailed(f"{address}: ECR's scan is {word}{f': {said}' if said else ''}", remedy=remedy, status=word)


def _basic(pages: Sequence[Mapping[str, Any]]) -> Iterator[Vulnerability]:
    for page in pages:
        for each in page.get("findings", ()):
            told = {row["key"]: row.get("value", "") for row in each.get("attributes", ())}
            name = told.get("package_name", "")
            yield Vulnerability(
                id=each.get("name", ""),
                aliases=(),
                level=_LEVELS.get(each.get("severity", ""), "unknown"),
                ecosystem="OS",  # a basic scan looks at packages of the distribution alone
                package=name,
                version=told.get("package_version", ""),
                installed=(),
                fixed=None,  # a basic scan does not say
                summary=first_line(each.get("description", "")),
                state="counts",
            )


def _enhanced(pages: Sequence[Mapping[str, Any]]) -> Iterator[Vulnerability]:
    for page in pages:
        for each in page.get("enhancedFindings", ()):
            if each.get("status") != "ACTIVE":
                continue
            details = each.get("packageVulnerabilityDetails", {})
            for package in details.get("vulnerablePackages", ()):
                fixed = package.get("fixedInVersion", "")
                yield Vulnerability(
                    id=details.get("vulnerabilityId", ""),
                    aliases=tuple(details.get("relatedVulnerabilities", ())),
                    level=_LEVELS.get(each.get("severity", ""), "unknown"),
                    ecosystem=package.get("packageManager", ""),
                    package=package.get("name", ""),
                    version=_version(package),
                    installed=(),
                    fixed=None if fixed in _NO_FIX else fixed,
                    summary=first_line(each.get("description", "") or each.get("title", "")),
                    state="counts",
                )


def _version(package: Mapping[str, Any]) -> str:
    """The version as the distribution writes it: Inspector gives epoch and release apart."""
    epoch, release = package.get("epoch") or 0, package.get("release", "")
    return f"{f'{epoch}:' if epoch else ''}{package.get('version', '')}{f'-{release}' if release else ''}"


def _updated(pages: Sequence[Mapping[str, Any]]) -> str:
    """When what was known of vulnerabilities last changed, otherwise when the scan ended."""
    moments = [
        moment
        for page in pages
        for key in ("vulnerabilitySourceUpdatedAt", "imageScanCompletedAt")
        if isinstance(moment := page.get(key), datetime)
    ]
    return f"{moments[0].astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z" if moments else ""
