"""The images of a pipeline: the words of ``--images``, resolved to plans.

    pytorch                        every CUDA version of the framework, each with the line that a request for it selects
    pytorch:cu124                  the line that `--framework pytorch --cuda cu124` selects
    pytorch-2.6.0-cu124            the line of that version
    pytorch-2.6.0-cu124-debian     the same, on that base
    pytorch-*-debian               every line whose name matches

Without words: for every framework and CUDA version, the line that a request for it selects, if its upstream supports
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.image_line import BASE, ImageLine, Line, cuda_tag
from trainwright.catalog.listing import named
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.plan.identity import same_templates
from trainwright.plan.of_line import plan_of, request_of
from trainwright.plan.plan import Plan
from trainwright.plan.request import Request, make_request, parse_cuda
from trainwright.plan.resolve import entry_taken, line_taken, resolve
from trainwright.site.site import Site


@dataclass(frozen=True)
class ChosenImage:
    """An image of a pipeline. ``name`` is that of its line, such as ``pytorch-2.6.0-cu124-debian``."""

    name: str
    request: Request
    plan: Plan


def line_name(framework: str, version: str, cuda: str, kind: str) -> str:
    """The name of a line in ``--images``; a request cannot distinguish lines of the same name either."""
    return f"{framework}-{version.partition('+')[0]}-{cuda_tag(cuda)}-{kind}"


def choose(words: str | None, catalog: Catalog, site: Site, **more: str | None) -> list[ChosenImage]:
    """The images that the words of ``--images`` name, each once, in the order of the catalog.

    Args:
        words: separated by commas; ``None`` for the supported lines.
        catalog: the catalog.
        site: base images and region; ``Site()`` for a file that others use.
        more: further words of each request, such as ``with_``.

    Raises:
        RequestError: a word matches no line; the message has the nearest valid ones.
        Failure: as :func:`trainwright.plan.resolve.resolve`.
    """
    lines: dict[str, ImageLine] = {}
    for entry in catalog.lines:
        line = entry.line
        lines.setdefault(line_name(line.framework, line.version, line.cuda, line.base.kind), line)
    asked = [word.strip() for word in (words or "").split(",") if word.strip()]
    if asked:
        names = {name for word in asked for name in _named(word, lines, catalog)}
    else:
        names = {n for n in _taken(catalog, lines.values()) if n in lines and lines[n].status == "supported"}
    with same_templates():
        return [_chosen(name, line, catalog, site, more) for name, line in lines.items() if name in names]


def lines_to_prove(words: str | None, catalog: Catalog) -> list[ChosenImage]:
    """The lines that ``--images`` names with ``--proofs``, by their folders, also those that no request selects.

    Args:
        words: separated by commas, as of ``prove``; ``None`` for the supported lines.
        catalog: the catalog.

    Raises:
        RequestError: a word matches no line.
    """
    asked = [word.strip() for word in (words or "").split(",") if word.strip()]
    entries = named(catalog, asked) if asked else [each for each in catalog.lines if each.line.status == "supported"]
    with same_templates():
        return [
            ChosenImage(
                f"{entry.path.parent.parent.name}/{entry.name}",
                _selecting(entry, catalog),
                plan_of(entry, catalog),
            )
            for entry in entries
        ]


def _selecting(entry: Line, catalog: Catalog) -> Request:
    """A request that selects a line among those of its version, CUDA and base: by its Python, or by the version of a
    component, if there are several."""
    line, plain = entry.line, request_of(entry).replace(base=entry.line.base.kind)
    pins = [(name, chosen.version) for name, chosen in line.components.items() if chosen.provider != BASE]
    ways = [plain, plain.replace(python=line.python), *(plain.replace(set_=(pin,)) for pin in pins)]
    taken = ((way, entry_taken(way, catalog)) for way in ways)
    return next((way for way, found in taken if found is not None and found.path == entry.path), plain)


def _chosen(name: str, line: ImageLine, catalog: Catalog, site: Site, more: Mapping[str, str | None]) -> ChosenImage:
    version = line.version.partition("+")[0]
    request = make_request(framework=line.framework, cuda=line.cuda, version=version, base=line.base.kind, **more)
    return ChosenImage(name, request, resolve(request, catalog, site.base_image, region=site.aws.region))


def _named(word: str, lines: Mapping[str, ImageLine], catalog: Catalog) -> set[str]:
    """The names that one word of ``--images`` stands for."""
    framework, colon, cuda = word.partition(":")
    of_it = [line for line in lines.values() if line.framework == framework]
    if of_it and not colon:
        return _taken(catalog, of_it)
    if any(line.goes_by_cuda(_cuda_tag(cuda)) for line in of_it):
        return {_name_taken(catalog, framework, cuda, None)}
    found = {name for name in lines if fnmatchcase(name, word) or name.rpartition("-")[0] == word}
    if len(found) > 1 and not any(sign in word for sign in "*?["):
        # A name without its base: the line that a request selects.
        line = lines[next(iter(found))]
        return {_name_taken(catalog, line.framework, line.cuda, line.version.partition("+")[0])}
    if not found:
        known = {*lines, *(f"{line.framework}:{line.cuda_tag}" for line in lines.values()), *catalog.frameworks()}
        raise RequestError(
            f"--images {word}: no image line matches. {did_you_mean(word, known)}",
            remedy="For example: --images pytorch:cu124,pytorch-2.6.0-cu124   (./invoke list shows every line)",
        )
    return found


def _cuda_tag(word: str) -> str:
    try:
        return cuda_tag(parse_cuda(word))
    except RequestError:
        return ""  # no line has it: the caller reports the word


def _taken(catalog: Catalog, lines: Iterable[ImageLine]) -> set[str]:
    """For each framework and CUDA version of these lines, the line that a request for just these selects."""
    pairs = dict.fromkeys((line.framework, line.cuda) for line in lines if line.released)
    return {_name_taken(catalog, framework, cuda, None) for framework, cuda in pairs}


def _name_taken(catalog: Catalog, framework: str, cuda: str, version: str | None) -> str:
    request = make_request(framework=framework, cuda=cuda, version=version)
    taken = line_taken(request, catalog) or resolve(request, catalog)  # which says why nothing answers the request
    return line_name(taken.framework, taken.version, taken.cuda, taken.base.kind)
