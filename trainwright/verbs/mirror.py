"""``mirror``: fills a folder from which a locked plan is built without network access."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import JsonFlag, SiteFlag, emit, verb
from trainwright.cli.output import say
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.layout import size
from trainwright.core.records import Field
from trainwright.core.say import Say

if TYPE_CHECKING:
    from trainwright.lock.documents import MirrorDocument
    from trainwright.site.site import Site


class MirrorFlags(SiteFlag, JsonFlag):
    """The flags of ``mirror``."""

    examples: ClassVar[tuple[str, ...]] = (
        "mirror pull --lock locks/ID.lock.json --to mirror",
        "mirror pull --lock locks/ID.lock.json --to mirror --site site.toml",
        "mirror pull --lock locks/ID.lock.json --to mirror --json",
    )

    action: str = Field(description="pull: fetch everything that a lock pins", values=("pull",))
    lock: str | None = Field(default=None, description="the lock file of a plan", metavar="FILE")
    to: str | None = Field(
        default=None,
        description="the folder to fill (created if missing; may contain mirrors of other locks)",
        metavar="DIR",
    )


@verb
def mirror(flags: MirrorFlags) -> None:
    """Fill a folder from which a locked plan is built offline."""
    from trainwright.site.site import load_site

    example = "For example: ./invoke mirror pull --lock locks/ID.lock.json --to mirror"
    if flags.action != "pull":
        hint = did_you_mean(flags.action, ["pull"])
        raise RequestError(f"mirror {flags.action}: no such action. {hint}", remedy=example)
    if flags.lock is None or flags.to is None:
        missing = "--lock" if flags.lock is None else "--to"
        raise RequestError(f"mirror pull: {missing} is missing", remedy=example)
    site = load_site(Path(flags.site) if flags.site else None)
    document = pull_mirror(Path(flags.lock), Path(flags.to), site, say=say)
    emit(document, mirror_text, as_json=flags.json_)


def pull_mirror(lock: Path, folder: Path, site: Site, *, say: Say) -> MirrorDocument:
    """Fetch what a lock pins into a folder.

    Raises:
        Failure: as :func:`trainwright.lock.mirror.pull`.
    """
    from trainwright.core.owned import claim
    from trainwright.engine.engine import connect
    from trainwright.lock import mirror
    from trainwright.plan.plan_lock import PlanLock

    found = PlanLock.load(lock)
    claim(folder.absolute(), mirror.KIND, f"--to {folder}")
    return mirror.pull(found, folder.absolute(), site, connect(say=say), say=say)


def mirror_text(document: MirrorDocument) -> str:
    """What was fetched, and the command that builds from it."""
    counts = ", ".join(f"{count} {kind}" for kind, count in document.kinds.items() if count)
    return "\n".join(
        [
            f"mirror  {document.folder}  {document.files} files, {size(document.bytes)}: {counts}",
            f"next    ./invoke build --site {document.site} --locked ...",
        ]
    )
