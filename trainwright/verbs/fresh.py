"""``fresh``: which image lines are to be built again, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import CatalogFlag, JsonFlag, SiteFlag, emit, verb
from trainwright.cli.output import Ended, answer, say
from trainwright.core.errors import RequestError
from trainwright.core.layout import table
from trainwright.core.paths import use_catalog
from trainwright.core.records import Field
from trainwright.verbs.scan import ScanWords

if TYPE_CHECKING:
    from trainwright.build.store import BuildRecord
    from trainwright.catalog.catalog import Catalog
    from trainwright.fresh.documents import FreshDocument
    from trainwright.fresh.fresh import Questions
    from trainwright.fresh.images import NewestImage
    from trainwright.pipeline.images import ChosenImage
    from trainwright.scan.documents import ScanDocument
    from trainwright.site.site import Site


_NOT_BY_A_BUILD = " (not by another build alone)"


class FreshFlags(ScanWords, CatalogFlag, SiteFlag, JsonFlag):
    """The flags of ``fresh``."""

    bare: ClassVar[str] = "lines"
    heading: ClassVar[str] = "What is looked at"
    examples: ClassVar[tuple[str, ...]] = (
        "fresh",
        "fresh 'pytorch-*-debian' --max-age 30d --offline",
        "fresh --names --max-age 8w --database /srv/osv",
    )

    lines: tuple[str, ...] = Field(
        default=(),
        alias="images",
        description="image lines, as build --images takes them: pytorch, pytorch:cu124, 'pytorch-*-debian' (default: "
        "the supported ones)",
        metavar="PATTERN",
    )
    repository: str | None = Field(
        default=None, description="look at the images in this ECR repository instead of those that were built here"
    )
    repository_prefix: str | None = Field(
        default=None,
        description="look at the images in ECR, in a repository for each framework: PREFIX/pytorch",
        metavar="PREFIX",
    )
    max_age: str | None = Field(default=None, description="older images are stale: 30d, 12h, 8w", metavar="AGE")
    fail_on: str | None = Field(
        default=None,
        description="only fixable vulnerabilities of this level and worse ones count (default: every level)",
        values=("critical", "high", "medium", "low"),
    )
    offline: bool = Field(default=False, description="ask no registry, archive or index what it has today")
    names: bool = Field(
        default=False,
        description="print only the names of the lines that another build renews, for build --images; why, to stderr",
        heading="Output",
    )


@verb
def fresh(flags: FreshFlags) -> None:
    """Say which image lines are to be built again, and why.

    The newest image of each line is compared with today's plan, lock, base image, packages and vulnerabilities. The
    exit code is 1 if one is stale.
    """
    from trainwright.catalog.catalog import open_catalog
    from trainwright.fresh.fresh import look
    from trainwright.pipeline.images import choose
    from trainwright.site.site import load_site

    use_catalog(flags.catalog)
    site, catalog = load_site(Path(flags.site) if flags.site else None), open_catalog()
    questions, notes = _questions(flags, site, catalog)
    images = choose(",".join(flags.lines), catalog, site)
    newest = _newest(flags, images, catalog, site)
    document = look(images, newest, site, questions, now=datetime.now(UTC), notes=notes)
    if flags.names and not flags.json_:
        for line in fresh_text(document).splitlines():
            say(line)
        answer(",".join(document.names))
    else:
        emit(document, fresh_text, as_json=flags.json_)
    if document.exit_code:
        raise Ended(document.exit_code)


def stale_lines(images: Sequence[ChosenImage], site: Site) -> list[ChosenImage]:
    """The lines that are stale by what is known on this machine: records, plans and locks."""
    from trainwright.fresh.fresh import Questions, look
    from trainwright.fresh.images import built_here

    names = look(images, built_here(images), site, Questions(), now=datetime.now(UTC)).names
    return [image for image in images if image.name in names]


def _newest(flags: FreshFlags, images: Sequence[ChosenImage], catalog: Catalog, site: Site) -> dict[str, NewestImage]:
    """The newest image of each line, here or in the repository of the flags."""
    from trainwright.fresh.images import built_here, in_registry

    if flags.repository is None and flags.repository_prefix is None:
        return built_here(images)
    if flags.repository is not None and flags.repository_prefix is not None:
        raise RequestError("--repository and --repository-prefix: one of them", remedy="Leave one out.")
    from trainwright.push.ecr import caller_account
    from trainwright.push.references import PushPlace, find_target

    found: dict[str, NewestImage] = {}
    frameworks = list(dict.fromkeys(image.plan.framework for image in images))
    for framework in frameworks if flags.repository is None else [None]:
        own = [image for image in images if framework in (None, image.plan.framework)]
        name = f"{flags.repository_prefix}/{framework}" if framework else str(flags.repository)
        target = find_target(name, (), None, site.aws)
        account = target.account or caller_account(target.regions[0], site)
        found |= in_registry(own, PushPlace(account, target.regions[0], target.repository), catalog, site, say=say)
    return found


def _questions(flags: FreshFlags, site: Site, catalog: Catalog) -> tuple[Questions, list[str]]:
    """What is asked beyond records, plans and locks, and what is not."""
    from trainwright.fresh.fresh import Questions, read_age
    from trainwright.scan.severity import read_gate

    age, gate = read_age(flags.max_age), read_gate(flags.fail_on, "--fail-on")
    notes = ["registries, archives and indexes were not asked (--offline)"] if flags.offline else []
    scans: Callable[[BuildRecord], ScanDocument] | None = None
    if flags.database or site.vulnerabilities is not None:
        from trainwright.scan.scan import scan
        from trainwright.scan.subject import of_record, settings_of

        root, allowances = settings_of(flags.database, flags.allow, site, say=say)
        today = datetime.now(UTC).date()

        def look_up(record: BuildRecord) -> ScanDocument:
            return scan(of_record(record, record.tags[0]), root, allowances=allowances, fail_on=gate, today=today)

        scans = look_up
    else:
        notes.append("vulnerabilities were not looked for: no --database, and none in the site file")

    if flags.offline:
        return Questions(scans, None, age), notes
    from trainwright.fresh.sources_today import SourcesToday

    return Questions(scans, SourcesToday(catalog, site, say=say), age), notes


def fresh_text(document: FreshDocument) -> str:
    """A line per reason, and the command that builds what is stale."""
    rows = [
        (row.name if not number else "", reason.cause, reason.says + ("" if reason.renews else _NOT_BY_A_BUILD))
        for row in document.lines
        for number, reason in enumerate(row.reasons)
    ]
    lines = [table(rows), ""] if rows else []
    lines += [f"note: {note}" for note in document.notes]
    lines.append(f"{document.stale} of {len(document.lines)} lines are stale")
    return "\n".join([*lines, *([document.next] if document.next else [])])
