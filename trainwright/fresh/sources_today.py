"""What ``fresh`` asks of registries, archives and indexes. No engine is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trainwright.build.labels import OCI
from trainwright.build.store import BuildRecord
from trainwright.catalog.catalog import Catalog
from trainwright.catalog.platforms import PLATFORMS
from trainwright.catalog.wheel_lock import Lock
from trainwright.core.errors import Failure
from trainwright.core.say import Say
from trainwright.fresh.archive_today import Archives, NewerPackage
from trainwright.fresh.base_today import BaseImages
from trainwright.lock.diff import newer_python, row
from trainwright.lock.documents import LockRow
from trainwright.lock.wheels import lock_line
from trainwright.pipeline.images import ChosenImage, line_name
from trainwright.plan.plan import Plan
from trainwright.plan.plan_lock import PlanLock
from trainwright.site.site import Site
from trainwright.sources.gather import gather


class SourcesToday:
    """Asks each source once; ``unknown`` has in words what gave no answer.

    Args:
        catalog: has the lines.
        site: mirrors, proxies, authorities and credentials.
        say: progress callback.
    """

    def __init__(self, catalog: Catalog, site: Site, *, say: Say) -> None:
        self.unknown: list[str] = []
        self._catalog, self._site, self._say = catalog, site, say
        self._images, self._archives = BaseImages(site), Archives(site)

    def base(self, plan: Plan, record: BuildRecord) -> str:
        """How the tag of an image's base has moved in its registry; empty if it has not moved or the base has no tag.

        Layers decide, as the digest of the base is in the labels of an image only if its plan had a lock.
        """
        name = plan.base.image
        if name is None or "@" in name or self._site.image_folder is not None:
            return ""
        today = self._images.today(name, PLATFORMS[plan.platform].debian)
        if isinstance(today, str):
            self.unknown.append(f"whether a base image has moved: {today}")
            return ""
        image: Mapping[str, object] = record.probe.get("image", {})
        layers, labels = image.get("layers"), image.get("labels")
        if isinstance(layers, list) and layers:
            moved = not today.is_under(layers)
        else:
            held = labels.get(f"{OCI}.base.digest") if isinstance(labels, dict) else None
            moved = bool(held) and held != today.digest
        return f"{name} is {today.digest[7:19]} now" if moved else ""

    def packages(self, record: BuildRecord, packages: Mapping[str, str]) -> Sequence[NewerPackage]:
        """Which of these packages of an image the archive of its distribution has in newer versions."""
        rows, unknown = self._archives.newer(record, packages)
        self.unknown += [f"packages of {record.plan.base.os}: {why}" for why in unknown]
        return rows

    def upgrades(self, image: ChosenImage, lock: PlanLock, record: BuildRecord) -> Sequence[LockRow]:
        """What the sources of a lock have in newer versions: base image, packages, Python packages.

        Raises:
            SourceError: no index of Python packages answers.
        """
        self._say(f"{image.name}: asking the sources of its lock")
        return list(self._upgrades(image, lock, record))

    def of_line(self, image: ChosenImage) -> Sequence[str]:
        """Python packages in the lock of a supported line of which the index has newer versions that fit the line."""
        for entry in self._catalog.lines:
            line = entry.line
            if line_name(line.framework, line.version, line.cuda, line.base.kind) == image.name:
                break
        else:
            return ()
        if line.status != "supported" or line.as_of is not None:
            return ()
        self._say(f"{image.name}: asking the index what fits its line")
        try:
            held = {each.name: each.version for each in Lock.load(entry.lock_for(image.plan.platform)).packages}
            today = lock_line(line.as_json(), image.plan.platform).packages
        except Failure as failed:
            self.unknown.append(f"Python packages of {image.name}: {failed.message.splitlines()[0]}")
            return ()
        return [
            f"{each.name} {held[each.name]} → {each.version}"
            for each in today
            if held.get(each.name, each.version) != each.version
        ]

    def _upgrades(self, image: ChosenImage, lock: PlanLock, record: BuildRecord) -> Iterator[LockRow]:
        inputs = gather(image.plan, self._catalog, self._site, lock, flags=image.request.flags())
        for base in inputs.images:
            if base.digest is None:
                continue
            today = self._images.today(base.name, PLATFORMS[image.plan.platform].debian)
            if isinstance(today, str):
                self.unknown.append(f"whether a base image has moved: {today}")
            elif today.digest != base.digest:
                yield row("base", base.name, base.digest, today.digest, "newer")
        held = {each.name: each.version for each in lock.system or ()}
        if lock.base is not None and lock.base.image is None:
            held |= {each.name: each.version for each in lock.base.packages}
        for newer in self.packages(record, held) if held and image.plan.base.family == "apt" else ():
            yield row("package", newer.name, newer.held, newer.now, "newer")
        yield from newer_python(lock, inputs)
