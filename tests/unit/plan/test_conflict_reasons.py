"""Which facts and lines a conflict names, and which offer is nearest, in small catalogs.

What is expected was worked out from the files of these lines and from the rules for reasons (no word and no fact more
than are needed) and for offers (fewest words given up, no other processor, then the nearest versions).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.catalogs import HELLO
from tests.support.conflicts import assert_offers_resolve, conflict_of
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.catalog.component import Component, ComponentFolder
from trainwright.catalog.image_line import Evidence, Line, Selection
from trainwright.catalog.incompatibilities import Incompatibility, Match, RuleBook, When
from trainwright.core.data_files import parse_yaml
from trainwright.core.errors import Conflict, RequestError
from trainwright.core.records import parse_record
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

WHOLE = load_catalog()
PYTORCH = {entry.name: entry for entry in WHOLE.lines if entry.line.framework == "pytorch"}
FIVE = ("1.10.2-cu113-2022-09", "2.4.0-cu124", "2.5.1-cu124", "cu126", "cpu")
BUILD = "./invoke build --framework pytorch "
CU126, CPU = "--cuda cu126 --version 2.7.1", "--cuda cpu --version 2.13.0"
NO_METIS, NEITHER = "--without metis", "--without metis,openmpi,mpi4py,sagemaker-toolkit"
NEWER, OLDER = "--cuda cu124 --version 2.5.1", "--cuda cu124 --version 2.4.0"
OLD_CUDA = "PyTorch 2 or newer with CUDA older than 11.7"
ADD_LINE = "Use one of the commands above, or add an image line in images/pytorch/ (see CONTRIBUTING.md)."


def catalog_of(*entries: str | Line, rules: RuleBook | None = None, **more: ComponentFolder) -> Catalog:
    lines = [PYTORCH[entry] if isinstance(entry, str) else entry for entry in entries]
    return Catalog(lines, {**WHOLE.components, **more} if more else WHOLE.components, rules or WHOLE.rules)


def changed(name: str, **fields: Any) -> Line:
    """A line of PyTorch with other values."""
    return PYTORCH[name].replace(line=PYTORCH[name].line.replace(**fields))


def rows(conflict: Conflict) -> list[tuple[str, str]]:
    return [(row["constraint"], row["evidence"]) for row in conflict.details["rows"]]


def constraints(conflict: Conflict) -> list[str]:
    return [constraint for constraint, _ in rows(conflict)]


def offers(conflict: Conflict) -> list[str]:
    return [offer["command"].removeprefix(BUILD) for offer in conflict.details["offers"]]


def rule(name: str, when: When, **says: str) -> Incompatibility:
    return Incompatibility(name=name, when=when, why="so", evidence=Evidence(source="a", date="b", says="c"), **says)


def hello(folder: Path) -> ComponentFolder:
    return ComponentFolder(component=parse_record(Component, parse_yaml(HELLO, "hello"), "hello"), path=folder)


# ---- offers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"version": "2.4.9"}, [OLDER, NEWER, CU126]),  # the first number that differs is the distance
        ({"version": "2.12.0"}, [CPU, CU126, NEWER]),
        ({"cuda": "cu126", "with_": "deepspeed"}, [CU126, f"{CPU} --with deepspeed", NEWER]),
        # Unneeded components may be left out together with those that require them, but never the framework.
        ({"without": "metis,openmpi"}, [f"{CU126} {NO_METIS}", f"{CU126} {NEITHER}", f"{NEWER} {NO_METIS}"]),
        ({"without": "python"}, [CU126, NEWER, OLDER]),
        ({"without": "python", "for_": "ec2"}, [f"{each} --for ec2" for each in (CU126, NEWER, OLDER)]),
    ],
)
def test_the_nearest_requests_in_their_order(words: dict[str, Any], expected: list[str]) -> None:
    conflict = conflict_of(catalog=catalog_of(*FIVE), **words)
    assert offers(conflict) == expected
    assert_offers_resolve(conflict, catalog_of(*FIVE))


def test_an_offer_has_no_local_part_of_a_version() -> None:
    conflict = conflict_of(catalog=catalog_of(changed("cpu", version="2.13.0+cpu")), cuda="cu124")
    assert offers(conflict) == [CPU]


@pytest.mark.parametrize("framework", ["pytorch", "pytorch-trcomp"])
def test_no_image_is_without_its_framework(framework: str) -> None:
    """The main component of ``pytorch-trcomp`` is ``pytorch``."""
    with pytest.raises(RequestError, match="--without pytorch: it is the framework of") as refused:
        resolve(make_request(framework=framework, without="metis,pytorch"), WHOLE)
    assert not isinstance(refused.value, Conflict)


def test_another_version_is_nearer_than_another_processor() -> None:
    """The CUDA 13.0 line has an arm64 lock; the CUDA 12.4 line does not."""
    catalog = catalog_of("cu124", "cu130")
    conflict = conflict_of(catalog=catalog, cuda="cu124", platform="arm64")
    arm, other = "--cuda cu130 --version 2.13.0 --platform linux/arm64", "--cuda cu124 --version 2.6.0"
    assert offers(conflict) == [arm, other]
    told = dict(rows(conflict))
    assert told["--cuda cu124"] == "only in images/pytorch/cu124/line.yaml (linux/amd64)"
    assert told["--platform linux/arm64"] == "only in images/pytorch/cu130/line.yaml (cu130)"
    # However many other flags that drops.
    more = conflict_of("mpi4py=9", catalog=catalog, cuda="cu124", platform="arm64", python="3.11")
    assert [offer.split()[1] for offer in offers(more)] == ["cu130", "cu124"]


@pytest.mark.parametrize(
    ("names", "words", "file"),
    [
        (("cu124", "cu126", "cpu"), {"cuda": "cu124", "version": "2.6.9"}, "cu124"),
        (("cu124", "cu126", "cpu"), {"version": "2.99.0"}, "cu126"),
        (("cpu", "cu124", "cu126"), {"version": "2.99.0"}, "cu126"),
        (("cpu",), {"version": "2.99.0"}, "cpu"),
    ],
)
def test_a_new_line_is_written_beside_that_of_its_cuda_or_the_newest(
    names: tuple[str, ...], words: dict[str, Any], file: str
) -> None:
    conflict = conflict_of(catalog=catalog_of(*names), **words)
    assert conflict.remedy is not None
    assert f"beside images/pytorch/{file}/line.yaml " in conflict.remedy


# ---- reasons -----------------------------------------------------------------------------------------------------


def test_of_three_words_each_pair_has_a_line() -> None:
    lines = (
        changed("cu124", cuda="12.6", version="2.7.1", python="3.11"),
        changed("cu126", cuda="12.6", version="2.8.0", python="3.12"),
        changed("cu121", cuda="12.8", version="2.7.1", python="3.12"),
    )
    conflict = conflict_of(catalog=catalog_of(*lines), cuda="cu126", version="2.7.1", python="3.12")
    a, b, c = (f"images/pytorch/{name}/line.yaml" for name in ("cu124", "cu126", "cu121"))
    assert rows(conflict) == [
        ("--cuda cu126", f"only in {a}, {b}"),
        ("--version 2.7.1", f"only in {a}, {c}"),
        ("--python 3.12", f"only in {b}, {c}"),
    ]


def test_no_rule_decides_between_three_words_of_which_each_two_have_a_line() -> None:
    """That PyTorch 2 has no CUDA 11.3 is no reason: a line of PyTorch 1 with the third word would do."""
    options = PYTORCH["cpu"].line.options
    lines = (
        changed("cu117", cuda="11.3", version="1.13.0", python="3.11", options={}),
        changed("cu121", cuda="11.3", version="1.12.0", python="3.8", options=options),
        "cpu",
    )
    rules = RuleBook(rules=tuple(each for each in WHOLE.rules.rules if each.refuse == OLD_CUDA))
    conflict = conflict_of(catalog=catalog_of(*lines, rules=rules), cuda="cu113", python="3.11", with_="bitsandbytes")
    assert constraints(conflict) == ["--cuda cu113", "--python 3.11", "--with bitsandbytes"]


def test_more_than_three_lines_are_counted() -> None:
    names = [name for name, entry in PYTORCH.items() if entry.line.base.kind == "nvidia"][:4]
    told = dict(rows(conflict_of(catalog=catalog_of("cpu", *names), cuda="cpu", base="nvidia")))
    assert told["--base nvidia"] == "4 image lines have it"


def test_a_python_of_nvidia_s_images_alone_is_told_with_those_of_packages() -> None:
    """Of these lines, 2.9.0-cu130 has Python 3.12, from NVIDIA's image for Ubuntu 22.04."""
    catalog = catalog_of("2.9.0-cu130", "cu126", "cpu-py313")
    told = dict(rows(conflict_of(catalog=catalog, cuda="cpu", python="3.12")))
    assert told["--python 3.12"] == (
        "only in images/pytorch/2.9.0-cu130/line.yaml (cu130), none of them made from packages; image lines that are "
        "made from packages have 3.11 (debian-12) and 3.13 (debian-13)"
    )
    made = dict(rows(conflict_of(catalog=catalog, cuda="cpu", python="3.11")))
    assert made["--python 3.11"] == "only in images/pytorch/cu126/line.yaml (cu126)"


def test_no_reason_is_told_that_is_not_needed() -> None:
    # Of the lines with an image of NVIDIA's, this one breaks a rule as well, by a word that may stay.
    catalog = catalog_of("cpu", "2.5.1-cu124", changed("1.10.2-cu113-2022-09", released=False))
    third = conflict_of(catalog=catalog, cuda="cpu", base="nvidia", with_="smdistributed-modelparallel")
    assert constraints(third) == ["--cuda cpu", "--base nvidia"]
    # A requirement is broken as well.
    other = conflict_of("openmpi=5.0.7", catalog=catalog_of(*FIVE), without="efa")
    assert constraints(other) == ["--set openmpi=5.0.7", "Open MPI 5 with SageMaker's training toolkit"]


def test_only_what_requires_the_same_component_is_told_at_once() -> None:
    """Only SMP requires METIS, so lines without SMP may leave METIS out."""
    conflict = conflict_of(catalog=catalog_of(*FIVE), without="metis,openmpi")
    word, together = constraints(conflict)
    assert word == "--without openmpi"
    assert together.startswith("aws-ofi-nccl requires openmpi, ")
    assert all(each.endswith(" requires openmpi") for each in together.split(", "))


def test_a_rule_that_the_same_word_breaks_is_no_requirement(tmp_path: Path) -> None:
    """Either reason suffices, so one is given; requirements are listed together because all must be met."""
    folder = hello(tmp_path)
    folder = ComponentFolder(component=folder.component.replace(requires=("zinc", "zlib")), path=folder.path)
    entry = changed("cpu", options={"hello": Selection(provider="debian", version="2.10")})
    forbidden = RuleBook(rules=(rule("no", When(components={"hello": Match()}), refuse="a hello in any image"),))
    conflict = conflict_of(catalog=catalog_of(entry, rules=forbidden, hello=folder), with_="hello")
    assert constraints(conflict) == ["--with hello", "hello requires zinc, hello requires zlib"]


@pytest.mark.parametrize("released", [(True, False), (False, None), (True, None)])
def test_the_rule_between_two_words_is_that_of_published_lines_if_there_are_any(
    released: tuple[bool, bool | None],
) -> None:
    """bitsandbytes is an option of the first line (PyTorch 2.13) and, if there is one, of an older second line."""
    first, second = released
    lines = [PYTORCH["1.10.2-cu113-2022-09"], changed("cpu", released=first)]
    if second is not None:
        options = PYTORCH["cpu"].line.options
        lines.append(changed("cu117", cuda="cpu", version="1.13.0", released=second, options=options))
    conflict = conflict_of(catalog=catalog_of(*lines), cuda="cu113", with_="bitsandbytes")
    assert constraints(conflict) == ["--cuda cu113", "--with bitsandbytes", OLD_CUDA]


@pytest.mark.parametrize(
    ("pins", "words", "expected"),
    [
        # Where any version may be in a lock, what there is is what locks hold.
        (("mpi4py=9",), {}, "their locks hold 4.1.2"),
        (("metis=9",), {}, "templates/components/metis knows 5.1.0 from debian"),
        (("huggingface=9",), {"with_": "huggingface"}, "their locks hold 5.13.1"),
        (("bitsandbytes=9",), {"with_": "bitsandbytes"}, "their locks hold 0.50.2"),
    ],
)
def test_a_version_that_no_line_can_have(pins: tuple[str, ...], words: dict[str, Any], expected: str) -> None:
    conflict = conflict_of(*pins, catalog=catalog_of("cu126", "cpu"), **words)
    assert rows(conflict)[-1] == (f"--set {pins[0]}", f"no image line has it; {expected}")


def test_what_is_neither_a_component_nor_in_a_line() -> None:
    """templates/rules.yaml knows ``apex`` and refuses it."""
    catalog = catalog_of(*FIVE)
    word, evidence = rows(conflict_of("apex=1.0", catalog=catalog, with_="apex"))[0]
    assert word == "--with apex"
    assert evidence.startswith("no image line has it; NVIDIA's apex as a component: ")
    refused = conflict_of(catalog=catalog, version="2.7.1", with_="apex")
    # No line has apex anyway, so the request as a whole is not called wrong.
    assert refused.message.startswith("no image line for --framework pytorch --version 2.7.1 --with apex: NVIDIA's ")
    # Each of these words is one of some line.
    together = conflict_of(catalog=catalog, cuda="cu113", version="2.5.1")
    assert together.message == f"--framework pytorch --cuda cu113 --version 2.5.1: {OLD_CUDA}"


def test_only_a_rule_that_refuses_the_component_alone_answers_for_it() -> None:
    of_two = {"apex": Match(), "rmm": Match()}
    others = (
        rule("told", When(framework="pytorch", components={"apex": Match()}), notice="mind the gap"),
        rule("elsewhere", When(framework="tensorflow", components={"apex": Match()}), refuse="of TensorFlow"),
        rule("together", When(framework="pytorch", version=">=2.1", components=of_two), refuse="of both"),
    )
    own = rule("own", When(framework="pytorch", version=">=2.1", components={"apex": Match()}), refuse="of apex")
    unknown, refused = "templates/components has no apex yet", "of apex: so (a, b: c)"
    for rules, expected in ((others, unknown), ((*others, own), refused)):
        catalog = catalog_of(*FIVE, rules=RuleBook(foreseen=("apex",), rules=rules))
        ((word, evidence),) = rows(conflict_of(catalog=catalog, with_="apex"))
        assert (word, evidence) == ("--with apex", f"no image line has it; {expected}")


def test_how_to_list_a_component_is_told_only_where_that_would_help(tmp_path: Path) -> None:
    forbidden = RuleBook(rules=(rule("no", When(components={"hello": Match()}), refuse="hello in any image"),))
    refused = conflict_of(catalog=catalog_of(*FIVE, rules=forbidden, hello=hello(tmp_path)), with_="hello")
    assert constraints(refused) == ["--with hello", "hello in any image"]
    assert refused.remedy == "Use one of the commands above."
    # Another line lists it: a new line would be needed, no new entry.
    listed = conflict_of(catalog=catalog_of(*FIVE), cuda="cu126", with_="deepspeed")
    assert listed.remedy == ADD_LINE
    assert rows(listed) == [
        ("--cuda cu126", "only in images/pytorch/cu126/line.yaml (no deepspeed)"),
        ("--with deepspeed", "only in images/pytorch/cpu/line.yaml (cpu)"),
    ]
