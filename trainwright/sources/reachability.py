"""Whether the sources of a plan answer, asked before a build begins: a dead one is cheaper to find now than in a step.

Asked are the archives, a base image of a registry, and (where there is one of these) the site's own indexes; all at
the same time. A plan that needs package registries alone asks nothing.
"""

from __future__ import annotations

import http.client
import queue
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
from trainwright.sources.inputs import Input, Inputs

SECONDS = 5.0  # for all sources together


@dataclass(frozen=True)
class Source:
    """One source: what it is, who needs it, and the places that have it, any of which will do.

    A place is what to show of it (without credentials) and a question to it that gives nothing where it answers and
    the reason where it does not.
    """

    kind: Literal["archive", "base image", "index"]
    name: str
    needed_by: str
    places: tuple[tuple[str, Callable[[], str]], ...]
    sha256: str | None = None


def check_folders(inputs: Inputs) -> None:
    """Whether the folders of a site that reaches nothing else hold all that a build takes in.

    Asked for are Python packages where the site has no index, and archives where its builds have no network; those
    without a checksum are left to their first use.

    Raises:
        SourceError: a file is missing or another one: which, whose it is, where it was looked for.
    """
    cut_off = inputs.archives if inputs.site.build_network == "none" else ()
    needed = [archive for archive in cut_off if archive.sha256 is not None]
    if inputs.site.no_index:
        # Tools that no lock names are left to their build step.
        tools = inputs.lock is not None and inputs.lock.tools is not None
        needed += [package for package in inputs.python if tools or package.owner != "tools"]
    for missing in needed:
        if missing.path is None:
            rows = [f"  {place}: {why}" for place, why in missing.absent.items()]
            rows = rows or ["  the site names no folder for it"]
            what = f"{missing.file} with the sha256 {missing.sha256}"
            raise SourceError(
                "\n".join([f"{missing.owner}: no place has {what}", *rows]),
                remedy="The site reaches nothing but its folders. Fill them where there is a network: "
                "./invoke mirror pull --lock FILE --to DIR",
                component=missing.owner,
                file=missing.file,
                expected=missing.sha256,
                urls=list(missing.absent),
            )


def check_sources(inputs: Inputs, engine: Engine, *, seconds: float = SECONDS) -> None:
    """Ask every source of a build at the same time.

    Args:
        inputs: of the build.
        engine: which pulls the base image, and may hold it already.
        seconds: for everything together.

    Raises:
        SourceError: a source does not answer: which, who needs it, how to name a mirror.
    """
    sources = sources_of(inputs, engine, seconds)
    missing = ask(sources, seconds)
    if missing:
        raise _failure(missing, inputs)


def sources_of(inputs: Inputs, engine: Engine, seconds: float = SECONDS) -> list[Source]:
    """What a build has to reach; empty where package registries of no site's own are enough."""
    asker = _Asker(inputs.site, seconds)
    found = [
        Source("archive", archive.file, archive.owner, _places(archive, asker), archive.sha256)
        for archive in inputs.archives
        if archive.path is None and archive.urls
    ]
    for image in inputs.images:
        # A folder of images is looked at when they are loaded.
        if inputs.site.image_folder is None and not _has_image(engine, image.pinned):
            question = partial(_ask_registry, engine, image.pinned)
            found.append(Source("base image", image.pinned, "the base", ((image.pinned, question),)))
    if found and not inputs.site.no_index:
        indexes = dict.fromkeys(url for package in inputs.python for url in package.indexes)
        found += [Source("index", mask(u), "Python packages", ((mask(u), asker.index(u)),)) for u in indexes]
    return found


def _places(archive: Input, asker: _Asker) -> tuple[tuple[str, Callable[[], str]], ...]:
    """Where an archive is looked for: the site's folder, which does not have it, and every URL."""
    folder = ((place, partial(str, why)) for place, why in archive.absent.items())
    return (*folder, *((mask(url), asker.archive(url)) for url in archive.urls))


def ask(sources: Sequence[Source], seconds: float) -> list[tuple[Source, dict[str, str]]]:
    """The sources of which no place answers in time, with the reason by place.

    Every place is asked in a thread of its own, which ends by its own time limit: a name server or a server that
    keeps silent delays nothing beyond ``seconds``.
    """
    answers: queue.SimpleQueue[tuple[int, str, str]] = queue.SimpleQueue()
    reasons: dict[int, dict[str, str]] = {n: {} for n, source in enumerate(sources)}
    asked = [(n, place, question) for n, source in enumerate(sources) for place, question in source.places]

    def put(number: int, place: str, question: Callable[[], str]) -> None:
        answers.put((number, place, question()))

    for row in asked:
        threading.Thread(target=put, args=row, daemon=True).start()
    deadline = time.monotonic() + seconds
    while any(len(reasons[n]) < len(sources[n].places) for n in reasons):
        try:
            number, place, why = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        if number in reasons and why:
            reasons[number][place] = why
        elif not why:
            reasons.pop(number, None)
    silent = f"{NO_ANSWER} within {seconds:g} s"
    return [(sources[n], {p: why.get(p, silent) for p, _ in sources[n].places}) for n, why in reasons.items()]


class _Asker:
    """Questions to web servers, as a build step would put them: the site's proxies, authorities and credentials."""

    def __init__(self, site: Site, seconds: float) -> None:
        self._site = site
        self._seconds = seconds

    def archive(self, url: str) -> Callable[[], str]:
        """Whether a file can be had: its first byte is read."""

        def question() -> str:
            try:
                with self._open(url) as answer:
                    return "" if answer.read(1) else "its answer is empty"
            except FAILURES as failed:
                return reason(failed)

        return question

    def index(self, url: str) -> Callable[[], str]:
        """Whether an index answers. Not every one shows its root, so a 403 or 404 there is an answer as well."""

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
        # One byte is asked for: some servers refuse HEAD, and one that ignores the range is left after its first byte.
        return open_url(url, self._site, {"Range": "bytes=0-0"}, self._seconds)


def _has_image(engine: Engine, image: str) -> bool:
    return run([engine.client.path, "image", "inspect", "--format", "{{.Id}}", image], env=engine.cli_env).ok


def _ask_registry(engine: Engine, image: str) -> str:
    """Ask the engine for the manifest, for it is the engine that pulls: with its mirrors, proxies and credentials."""
    from docker.errors import DockerException

    try:
        sdk(engine).images.get_registry_data(image)
    except (DockerException, EngineError, OSError) as failed:
        return mask(str(getattr(failed, "explanation", None) or failed).strip())[:300]
    return ""


def nearest_from_packages(plan: Plan, catalog: Catalog) -> str | None:
    """The command line of the image line nearest to a plan that package registries alone can build, if there is one."""

    def apart(line: ImageLine) -> tuple[bool, bool, int, list[int]]:
        cuda, version = version_key(plan.cuda), version_key(plan.version)
        other = version_key(line.cuda)
        steps = abs(cuda[0] * 10 + cuda[1] - other[0] * 10 - other[1]) if cuda and other else 0
        versions = [abs(a - b) for a, b in zip(version, version_key(line.version), strict=False)]
        return line.framework != plan.framework, bool(cuda) != bool(other), steps, versions

    lines = [entry.line for entry in catalog.lines if catalog.from_packages(entry)]
    best = min(lines, key=apart, default=None)
    if best is None:
        return None
    return f"./invoke build --framework {best.framework} --cuda {best.cuda_tag} --version {best.version.split('+')[0]}"


def _failure(missing: list[tuple[Source, dict[str, str]]], inputs: Inputs) -> SourceError:
    lines = []
    for source, reasons in missing:
        lines.append(f"{source.kind} {source.name}, needed by {source.needed_by}, cannot be reached; nothing was built")
        lines += [f"  {place}: {why}" for place, why in reasons.items()]
    first, reasons = missing[0]
    by_kind = {source.kind: source for source, _ in reversed(missing)}
    ways = []
    if "archive" in by_kind:
        ways.append(locations.remedy(by_kind["archive"].name, by_kind["archive"].sha256))
    if "base image" in by_kind:
        ways.append(
            "Name an image that this engine can pull (base_image in trainwright.toml), "
            f"or a mirror of its registry ([registries] there), or bring {by_kind['base image'].name} here: "
            "docker load -i FILE"
        )
        if ".dkr.ecr." in by_kind["base image"].name:
            host = by_kind["base image"].name.partition("/")[0]
            region = host.split(".")[3]
            ways.append(
                f"AWS's registries want a login: aws ecr get-login-password --region {region} | "
                f"docker login --username AWS --password-stdin {host}"
            )
    if "index" in by_kind:
        ways.append("Name an index that answers: index_url, extra_index_urls in trainwright.toml (docs/site.md).")
    offer = nearest_from_packages(inputs.plan, inputs.catalog)
    # With a base image of the site's the offer would need the same image.
    if offer and "index" not in by_kind and not (inputs.site.base_image and "base image" in by_kind):
        ways.append(f"The nearest image line that needs package registries alone: {offer}")
    ways.append("--skip-source-check builds anyway: finished steps come from the cache.")
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
