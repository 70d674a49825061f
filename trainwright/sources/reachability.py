"""Checks that the sources of a plan answer before a build begins, when that is cheap to find out.

It checks the archives, the base image, and, if there is one of these, the site's own indexes; all at the same time.
For a plan that needs only package registries it checks nothing.
"""

from __future__ import annotations

import http.client
import queue
import re
import threading
import time
import urllib.error
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.image_line import ImageLine, version_key
from trainwright.core.errors import EngineError, SourceError
from trainwright.core.masking import mask
from trainwright.core.runner import run
from trainwright.engine.engine import Engine, sdk
from trainwright.plan.plan import Plan
from trainwright.site.site import Site
from trainwright.site.web import FAILURES, NO_ANSWER, open_url, reason
from trainwright.sources import locations
from trainwright.sources.base_image import elsewhere
from trainwright.sources.inputs import Input, Inputs

SECONDS = 5.0  # for all sources together


@dataclass(frozen=True)
class Source:
    """One source: what it is, who needs it, and its places, any of which is enough.

    A place is a text to show (without credentials) and a check that returns nothing if it answers, else the reason.
    """

    kind: Literal["archive", "base image", "index"]
    name: str
    needed_by: str
    places: tuple[tuple[str, Callable[[], str]], ...]
    sha256: str | None = None


def check_folders(inputs: Inputs) -> None:
    """Check that the folders of an offline site contain every input of a build.

    It checks Python packages if the site has no index, and archives if its builds have no network, except those without
    a checksum.

    Raises:
        SourceError: a file is missing or wrong: which one, who needs it, and the places tried.
    """
    cut_off = inputs.archives if inputs.site.build_network == "none" else ()
    needed = [archive for archive in cut_off if archive.sha256 is not None]
    if inputs.site.no_index:
        # Unlocked tools are left to their build step.
        tools = inputs.lock is not None and inputs.lock.tools is not None
        needed += [package for package in inputs.python if tools or package.owner != "tools"]
    for missing in needed:
        if missing.path is None:
            rows = [f"  {place}: {why}" for place, why in missing.absent.items()]
            rows = rows or ["  the site has no folder for it"]
            what = f"{missing.file} not found (sha256 {missing.sha256})"
            raise SourceError(
                "\n".join([f"{missing.owner}: {what}", *rows]),
                remedy="This site uses only its folders. Fill them on a machine with network access: "
                "./invoke mirror pull --lock FILE --to DIR",
                component=missing.owner,
                file=missing.file,
                expected=missing.sha256,
                urls=list(missing.absent),
            )


def check_sources(inputs: Inputs, engine: Engine, *, seconds: float = SECONDS) -> None:
    """Check every source of a build at the same time.

    Args:
        inputs: of the build.
        engine: pulls the base image, and may have it already.
        seconds: for everything together.

    Raises:
        SourceError: a source does not answer: which one, who needs it, how to set a mirror.
    """
    sources = sources_of(inputs, engine, seconds)
    missing = ask(sources, seconds)
    if missing:
        raise _failure(missing, inputs)


def sources_of(inputs: Inputs, engine: Engine, seconds: float = SECONDS) -> list[Source]:
    """What a build has to reach; empty if the public package registries are enough."""
    found = archive_sources(inputs, seconds) + image_sources(inputs, engine)
    asker = _Asker(inputs.site, seconds)
    if found and not inputs.site.no_index:
        indexes = dict.fromkeys(url for package in inputs.python for url in package.indexes)
        found += [Source("index", mask(u), "Python packages", ((mask(u), asker.index(u)),)) for u in indexes]
    return found


def archive_sources(inputs: Inputs, seconds: float) -> list[Source]:
    """The archives that are not on this machine."""
    asker = _Asker(inputs.site, seconds)
    return [
        Source("archive", archive.file, archive.owner, _places(archive, asker), archive.sha256)
        for archive in inputs.archives
        if archive.path is None and archive.urls
    ]


def image_sources(inputs: Inputs, engine: Engine) -> list[Source]:
    """The base images that the engine does not have. A folder of images is checked when they are loaded."""
    return [
        image_source(i.pinned, engine)
        for i in inputs.images
        if inputs.site.image_folder is None and not _has_image(engine, i.pinned)
    ]


def image_source(name: str, engine: Engine) -> Source:
    """A base image in the registry that its name says."""
    return Source("base image", name, "the base", ((name, partial(_ask_registry, engine, name)),))


def _places(archive: Input, asker: _Asker) -> tuple[tuple[str, Callable[[], str]], ...]:
    """The places of an archive: the site's folder, which does not have it, and every URL."""
    folder = ((place, partial(str, why)) for place, why in archive.absent.items())
    return (*folder, *((mask(url), asker.archive(url)) for url in archive.urls))


def ask(sources: Sequence[Source], seconds: float) -> list[tuple[Source, dict[str, str]]]:
    """The sources of which no place answers in time, with the reason by place.

    Each place is checked in a thread with its own time limit, so a silent server or name server delays nothing beyond
    ``seconds``.
    """
    answers: queue.SimpleQueue[tuple[int, str, str]] = queue.SimpleQueue()
    reasons: dict[int, dict[str, str]] = {n: {} for n, source in enumerate(sources)}
    asked = [(n, place, question) for n, source in enumerate(sources) for place, question in source.places]

    def put(number: int, place: str, question: Callable[[], str]) -> None:
        answers.put((number, place, question()))

    for row in asked:
        threading.Thread(target=put, args=row, daemon=True).start()
    deadline = time.monotonic() + seconds
    silent = f"{NO_ANSWER} within {seconds:g} s"
    while any(len(reasons[n]) < len(sources[n].places) for n in reasons):
        try:
            number, place, why = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        if number in reasons and why:
            # A question has the same time limit: which of the two ends first is chance.
            reasons[number][place] = silent if why == NO_ANSWER else why
        elif not why:
            reasons.pop(number, None)
    return [(sources[n], {p: why.get(p, silent) for p, _ in sources[n].places}) for n, why in reasons.items()]


class _Asker:
    """Requests as a build step would make them, with the site's proxies, authorities and credentials."""

    def __init__(self, site: Site, seconds: float) -> None:
        self._site = site
        self._seconds = seconds

    def archive(self, url: str) -> Callable[[], str]:
        """Whether a file is available: its first byte is read."""

        def question() -> str:
            try:
                with self._open(url) as answer:
                    return "" if answer.read(1) else "its response is empty"
            except FAILURES as failed:
                return reason(failed)

        return question

    def index(self, url: str) -> Callable[[], str]:
        """Whether an index answers. Some do not serve their root, so 403 and 404 count as answers."""

        def question() -> str:
            try:
                with self._open(url):
                    return ""
            except urllib.error.HTTPError as refused:
                bad = refused.code in (401, 407) or refused.code >= 500
                return reason(refused) if bad else ""
            except FAILURES as failed:
                return reason(failed)

        return question

    def _open(self, url: str) -> http.client.HTTPResponse:
        # One byte: some servers refuse HEAD, and if one ignores the range, reading stops after the first byte.
        return open_url(url, self._site, {"Range": "bytes=0-0"}, self._seconds)


def _has_image(engine: Engine, image: str) -> bool:
    return run([engine.client.path, "image", "inspect", "--format", "{{.Id}}", image], env=engine.cli_env).ok


def _ask_registry(engine: Engine, image: str) -> str:
    """Ask the engine for the manifest, because the engine pulls, with its own mirrors, proxies and credentials."""
    from docker.errors import DockerException

    try:
        sdk(engine).images.get_registry_data(image)
    except (DockerException, EngineError, OSError) as failed:
        return mask(str(getattr(failed, "explanation", None) or failed).strip())[:300]
    return ""


def nearest_from_packages(plan: Plan, catalog: Catalog) -> str | None:
    """The command for the nearest image line that needs only package registries, perhaps without some of its
    components, if any."""

    def apart(found: tuple[ImageLine, tuple[str, ...]]) -> tuple[bool, bool, int, list[int]]:
        line, _ = found
        cuda, version = version_key(plan.cuda), version_key(plan.version)
        other = version_key(line.cuda)
        steps = abs(cuda[0] * 10 + cuda[1] - other[0] * 10 - other[1]) if cuda and other else 0
        versions = [abs(a - b) for a, b in zip(version, version_key(line.version), strict=False)]
        return line.framework != plan.framework, bool(cuda) != bool(other), steps, versions

    lines = []
    for entry in catalog.lines:
        names = catalog.beside_packages(entry)
        chosen = {name: (s.provider, s.version) for name, s in entry.line.components.items()}
        if names is not None and catalog.can_do_without(names, chosen):
            lines.append((entry.line, names))
    if not lines:
        return None
    best, names = min(lines, key=apart)
    words = f"--framework {best.framework} --cuda {best.cuda_tag} --version {best.version.split('+')[0]}"
    return f"./invoke build {words}{_without(names)}"


def on_debian(plan: Plan, catalog: Catalog) -> str | None:
    """The command for the same framework and CUDA on a Debian root file system, if a line has them; in the nearest
    version, and perhaps without some components, so it is only ever offered."""
    if plan.base.kind != "nvidia":
        return None
    wanted = version_key(plan.version)
    lines = [
        entry.line
        for entry in catalog.lines_of(plan.framework)
        if entry.line.base.kind == "debian" and entry.line.cuda == plan.cuda
    ]
    if not lines:
        return None
    near = min(lines, key=lambda line: [abs(a - b) for a, b in zip(wanted, version_key(line.version), strict=False)])
    words = f"--framework {near.framework} --cuda {near.cuda_tag} --version {near.version.partition('+')[0]}"
    return f"./invoke build {words} --base debian"


def _without(names: Sequence[str]) -> str:
    return f" --without {','.join(names)}" if names else ""


def _without_archives(missing: list[tuple[Source, dict[str, str]]], inputs: Inputs) -> str | None:
    """The request without what needs the missing archives, if nothing else is missing and the image can do without."""
    names = list(dict.fromkeys(source.needed_by for source, _ in missing))
    chosen = {c.name: (c.provider, c.version) for c in inputs.plan.components}
    archives = all(source.kind == "archive" for source, _ in missing)
    if not archives or not inputs.flags or not inputs.catalog.can_do_without(names, chosen):
        return None
    return f"./invoke build {_leaving_out(inputs.flags, names)}"


def _leaving_out(flags: str, names: Sequence[str]) -> str:
    """The flags of a request with components left out, which are then neither added nor pinned."""

    def others(added: re.Match[str]) -> str:
        kept = [name for name in added[1].split(",") if name not in names]
        return f" --with {','.join(kept)}" if kept else ""

    flags = re.sub(r" --with (\S+)", others, flags)
    flags = re.sub(rf" --set (?:{'|'.join(map(re.escape, names))})=\S+", "", flags)
    flags, _, gone = flags.partition(" --without ")
    return f"{flags}{_without(names)}" + (f",{gone}" if gone else "")


def _failure(missing: list[tuple[Source, dict[str, str]]], inputs: Inputs) -> SourceError:
    lines = []
    for source, reasons in missing:
        lines.append(f"{source.kind} {source.name}, needed by {source.needed_by}, cannot be reached; nothing was built")
        lines += [f"  {place}: {why}" for place, why in reasons.items()]
    first, reasons = missing[0]
    by_kind = {source.kind: source for source, _ in reversed(missing)}
    ways = []
    if "archive" in by_kind:
        archives = {source.name: source.sha256 for source, _ in missing if source.kind == "archive"}
        ways.append(locations.remedy(*archives.items()))
    if "base image" in by_kind:
        ways.append(
            "Set an image that this engine can pull (base_image in trainwright.toml), "
            f"or a mirror of its registry ([registries] there), or copy {by_kind['base image'].name} here: "
            "docker load -i FILE"
        )
        ways += elsewhere(by_kind["base image"].name)
        if way := on_debian(inputs.plan, inputs.catalog):
            ways.append(f"Or take the image line that needs no image of a registry: {way}")
        if ".dkr.ecr." in by_kind["base image"].name:
            host = by_kind["base image"].name.partition("/")[0]
            region = host.split(".")[3]
            ways.append(
                f"Log in to AWS's registry: aws ecr get-login-password --region {region} | "
                f"docker login --username AWS --password-stdin {host}"
            )
    if "index" in by_kind:
        ways.append("Set an index that answers: index_url, extra_index_urls in trainwright.toml (docs/site.md).")
    offer = nearest_from_packages(inputs.plan, inputs.catalog)
    if without := _without_archives(missing, inputs):
        offer = without
        ways.append(f"Or leave out what needs {'it' if len(missing) == 1 else 'them'}: {offer}")
    # With the site's own base image, the offer would need the same image.
    elif offer and "index" not in by_kind and not (inputs.site.base_image and "base image" in by_kind):
        ways.append(f"The nearest image line that needs only package registries: {offer}")
    ways.append("Build anyway with --skip-source-check: finished steps come from the cache.")
    return SourceError(
        "\n".join(lines),
        remedy="\n".join(ways),
        component=first.needed_by if first.kind == "archive" else None,
        file=first.name,
        urls=list(reasons),
        sources=[
            {"kind": source.kind, "name": source.name, "needed_by": source.needed_by, "places": why}
            for source, why in missing
        ],
        offer=offer,
    )
