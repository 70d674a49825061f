"""The Dockerfile of every image line, and what an option of the line changes in it.

Lines that an option changes in the same way share one expectation; see :func:`expectations`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache

from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.catalog.image_line import Line
from trainwright.core.paths import images_dir, templates_dir
from trainwright.plan.dockerfile import instructions
from trainwright.plan.extend import extended
from trainwright.plan.rendered import proof_stages, render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

_FROM = re.compile(r"FROM \S+ AS (\S+)")
_NUMBER = re.compile(r"\d+(?:\.\d+)+")
_LIST = re.compile(r"(LABEL|ENV|.*/mnt/(?:apt|dnf)-install) (.*)")  # what is filled: as many words a line as fit
_WORD = re.compile(r'(?:[^\s"\\]|"[^"]*")+')
EXTENDED = "1.10.2-cu113"  # the line whose AWS container is extended, as in AWS's guide


@dataclass(frozen=True)
class Variant:
    """The Dockerfile of a line with one thing chosen that the line leaves open.

    Attributes:
        name: of the line, as in ``pytorch/cu124``.
        option: a component that ``--with`` adds.
        version: of that component.
        plain: the Dockerfile without it.
        text: the Dockerfile with it.
        base: whether it starts from another base, ``option``, instead.
    """

    name: str
    option: str
    version: str
    plain: str
    text: str
    base: bool = False


@cache
def shipped_dockerfiles() -> tuple[Catalog, list[tuple[Line, str, list[Variant]]]]:
    """The shipped catalog, and its lines with their Dockerfiles."""
    everything = load_catalog(images_dir(), templates_dir())
    return everything, [(entry, *dockerfiles_of(entry, everything)) for entry in everything.lines]


def dockerfiles_of(entry: Line, everything: Catalog) -> tuple[str, list[Variant]]:
    """The Dockerfile of a line, and one for each of its options and for AWS's container as its base."""
    line = entry.line
    # Of several lines for one version and CUDA, a request takes one; each is to be seen.
    catalog = Catalog([entry], everything.components, everything.rules)

    def text(with_: str | None = None, base: str | None = None) -> str:
        request = make_request(framework=line.framework, cuda=line.cuda, version=line.version, with_=with_, base=base)
        return render_dockerfile(resolve(request, catalog), catalog)

    plain, name = text(), f"{line.framework}/{entry.name}"
    found = [Variant(name, option, chosen.version, plain, text(option)) for option, chosen in line.options.items()]
    if entry.name == EXTENDED and extended(entry):
        found.append(Variant(name, "dlc", "", plain, text(base="dlc"), base=True))
    return plain, found


def difference(variant: Variant) -> str:
    """What an option changes: removed and added rows, each run of them under its stage and the row above it.

    Of a filled list (packages, labels, variables) each word is a row of its own, under the row that begins the list.
    The option's version is written VERSION, and versions in rows that only tell the place are left out.
    """
    old, new = (_rows(text) for text in (variant.plain, variant.text))
    version = re.compile(rf"(?<![\d.]){re.escape(variant.version)}(?!\.?\d)")
    rows: list[str] = []
    list_there: list[str] = []
    for tag, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        above = next((row for row in reversed(new[:k]) if not row.startswith("\t")), "")
        stage = next((head[1] for row in reversed(new[: k + 1]) if (head := _FROM.match(row))), "")
        place = [f"@@ {stage or 'before the first stage'} @@", f" {_NUMBER.sub('N', above)}"]
        # Words of a list are sorted, so where in it they are says nothing.
        in_list = all(row.startswith("\t") for row in (*old[i:j], *new[k:m]))
        rows += [] if in_list and place == list_there else place
        list_there = place if in_list else []
        rows += [f"-{row}" for row in old[i:j]]
        rows += [f"+{version.sub('VERSION', row)}" for row in new[k:m]]
    return "\n".join(rows) + "\n"


def _rows(dockerfile: str) -> list[str]:
    """The lines of a Dockerfile that are not empty; each word of a filled list is a row that begins with a tab."""
    rows: list[str] = []
    listed = False
    for line in filter(None, dockerfile.splitlines()):
        head = _LIST.fullmatch(line)
        listed = head is not None or (listed and not line.lstrip().startswith("&&"))
        rows += [head[1]] if head else [] if listed else [line]
        rows += [f"\t{word}" for word in _WORD.findall(head[2] if head else line)] if listed else []
        listed = listed and line.endswith("\\")
    return rows


def expectations(variants: Iterable[Variant]) -> dict[str, str]:
    """The files of ``tests/unit/plan/variants``: per option its differences, each under the lines that have it. On
    another base nearly every line differs, so that Dockerfile is there as a whole."""
    shapes: dict[str, dict[str, list[str]]] = {}
    files: dict[str, str] = {}
    for each in variants:
        if each.base:
            files[f"{each.name.replace('/', '-')}-{each.option}.Dockerfile"] = each.text.removesuffix(proof_stages())
        else:
            shapes.setdefault(each.option, {}).setdefault(difference(each), []).append(each.name)
    for option, of_option in shapes.items():
        files[f"{option}.diff"] = "".join(f"{_heading(names)}\n{text}" for text, names in of_option.items())
    return files


def expected_differences(text: str) -> dict[str, str]:
    """The difference that a file of :func:`expectations` names for each line."""
    found: dict[str, str] = {}
    for heading, rows in re.findall(r"^((?:# .*\n)+)((?:[-+@ ].*\n)+)", text, re.MULTILINE):
        found |= dict.fromkeys(re.findall(r"[^\s#]+", heading), rows)
    return found


def _heading(names: Sequence[str]) -> str:
    return textwrap.fill(" ".join(names), 118, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


# ---- for the linter --------------------------------------------------------------------------------------------------


def shapes(dockerfile: str) -> Iterator[tuple[str, str, str]]:
    """Each instruction with its stage and the kind of instruction above it, and without what no linter looks at:
    versions, checksums, addresses, values of labels."""
    stage = above = ""
    for text in instructions(dockerfile):
        if head := _FROM.match(text):
            stage = head[1]
        plain = re.sub(r"https?://[^\s'\"]+", "URL", text)
        plain = re.sub(r"\b[0-9a-f]{40,64}\b", "SHA", plain)
        plain = re.sub(r'(io\.trainwright[\w.-]*|org\.opencontainers[\w.-]*)=("[^"]*"|\S+)', "LABEL", plain)
        plain = re.sub(r"(LABEL )(LABEL\s+)+", r"\1", plain)
        yield stage, above, re.sub(r"\d+", "N", plain)
        above = text.split(maxsplit=1)[0]


def sample(dockerfiles: Iterable[str]) -> list[str]:
    """As few of these Dockerfiles as have every shape of instruction among them.

    A ``RUN`` whose shape is in one of them already is left out of the others, as a linter spends its time on shell, but
    for one that stands above an instruction with a new shape.
    """
    left = [(text, set(shapes(text))) for text in dockerfiles]
    chosen: list[str] = []
    while left:
        text, new = max(left, key=lambda each: len(each[1]))
        chosen.append(_without_known(text, new))
        left = [(other, rest) for other, own in left if (rest := own - new)]
    return chosen


def _without_known(dockerfile: str, new: set[tuple[str, str, str]]) -> str:
    texts, fresh = instructions(dockerfile), [shape in new for shape in shapes(dockerfile)]
    rows = zip(texts, fresh, [*fresh[1:], False], strict=True)
    kept = (text for text, own, below in rows if own or below or not text.startswith("RUN "))
    return "\n".join(kept) + "\n"
