"""Which of a few made-up image lines a request selects, and what the notices say about the others."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.catalog.catalog import Catalog, load_catalog, open_catalog
from trainwright.catalog.image_line import Line, Selection
from trainwright.catalog.incompatibilities import RuleBook
from trainwright.core.errors import Conflict, RequestError
from trainwright.plan.plan import Plan
from trainwright.plan.request import Request, make_request
from trainwright.plan.resolve import entry_taken, line_taken, resolve

WHOLE = load_catalog()
PYTORCH = {entry.name: entry for entry in WHOLE.lines if entry.line.framework == "pytorch"}


def changed(name: str, **fields: Any) -> Line:
    """A line of PyTorch with other values."""
    return PYTORCH[name].replace(line=PYTORCH[name].line.replace(**fields))


def catalog_of(*entries: str | Line, rules: RuleBook | None = None) -> Catalog:
    lines = [PYTORCH[entry] if isinstance(entry, str) else entry for entry in entries]
    return Catalog(lines, WHOLE.components, rules or WHOLE.rules)


def ask(**words: Any) -> Request:
    return make_request(**{"framework": "pytorch", **words})


def plan_of(*entries: str | Line, **words: Any) -> Plan:
    return resolve(ask(**words), catalog_of(*entries))


def told(plan: Plan, words: str) -> list[str]:
    return [notice for notice in plan.notices if words in notice]


# ---- which line --------------------------------------------------------------------------------------------------


def test_the_line_of_a_request_with_and_without_its_file() -> None:
    catalog, entry = catalog_of("cu124", "cu126"), PYTORCH["cu124"]
    taken = entry_taken(ask(cuda="cu124"), catalog)
    assert (taken, line_taken(ask(cuda="cu124"), catalog)) == (entry, entry.line)
    assert (entry_taken(ask(cuda="cu117"), catalog), line_taken(ask(cuda="cu117"), catalog)) == (None, None)


@pytest.mark.parametrize(
    ("fields", "file"),
    [
        # The newest is CUDA's 12.6, until something else counts more.
        ({}, "cu126"),
        ({"released": False}, "cu124"),
        ({"cuda": "12.3"}, "cu124"),
        ({"cuda": "cpu"}, "cu124"),
        ({"cuda": "12.4"}, "cu126"),
        ({"cuda": "12.4", "version": "2.6.0"}, "cu126"),  # the same: the one whose evidence is the latest, or by name
        ({"cuda": "12.4", "version": "2.5.9"}, "cu124"),
    ],
)
def test_what_makes_one_of_two_lines_the_better(fields: dict[str, Any], file: str) -> None:
    other = changed("cu126", evidence=PYTORCH["cu124"].line.evidence, **fields)
    for entries in (("cu124", other), (other, "cu124")):
        taken = entry_taken(ask(), catalog_of(*entries))
        assert taken is not None
        assert taken.name == file


def test_fewer_pins_that_change_a_line_are_better_than_a_newer_version() -> None:
    """A line that has the requested NCCL is offered before one that would have to change its own."""
    older, newer = (
        changed(name, components=with_version(name, "nccl", version))
        for name, version in (("2.4.0-cu124", "2.23.4"), ("2.5.1-cu124", "2.22.3"))
    )
    assert plan_of(older, newer, set_=["nccl=2.23.4"]).version == "2.4.0"
    assert plan_of(older, newer, set_=["nccl=2.22.3"]).version == "2.5.1"
    # A line with CUDA comes first all the same.
    gpu, cpu = (
        changed(
            name, components={**PYTORCH[name].line.components, "openmpi": Selection(provider="source", version=version)}
        )
        for name, version in (("cu126", "4.1.6"), ("cpu", "4.1.5"))
    )
    assert plan_of(gpu, cpu, set_=["openmpi=4.1.5"]).cuda == "12.6"


def with_version(name: str, component: str, version: str) -> dict[str, Any]:
    components = PYTORCH[name].line.components
    return {**components, component: components[component].replace(version=version)}


def test_a_container_of_aws_that_a_line_describes_is_that_of_the_line() -> None:
    own = changed("2.0.1-cu121", version="2.8.0", cuda="cpu", python="3.12")
    taken = entry_taken(ask(cuda="cpu", version="2.8.0", base="dlc"), catalog_of("cpu", own))
    assert taken is not None
    assert taken.path == own.path
    # What AWS publishes beside it, also where a line that is made from packages has the same versions.
    for version in ("2.7.1", "2.13.0"):
        other = entry_taken(ask(cuda="cpu", version=version, base="dlc"), catalog_of("cpu", own))
        assert other is not None
        assert (other.line.version, other.line.base.kind) == (version, "dlc")


def test_a_container_is_never_taken_for_a_line_that_is_missing() -> None:
    """AWS has a CPU image of PyTorch 2.14.0, which no line uses."""
    with pytest.raises(Conflict):
        resolve(ask(version="2.14.0"), open_catalog())
    assert resolve(ask(version="2.14.0", base="dlc"), open_catalog()).version == "2.14.0"


def test_what_is_tried_starts_from_lines_that_do_not_name_its_version() -> None:
    """A catalog is read on demand: a request reads only the files that name its version."""
    plan = resolve(ask(version="2.99.0", cuda="cu132", allow_unproven=True), open_catalog())
    assert (plan.version, plan.unproven) == ("2.99.0", ("pytorch 2.99.0",))


def test_lines_of_one_s_own_for_a_framework_of_containers_stand_alone() -> None:
    """No shipped line has the framework pytorch-smp; the user's own line is meant."""
    own = changed("cpu", framework="pytorch-smp", component="pytorch")
    plan = resolve(ask(framework="pytorch-smp"), catalog_of(own))
    assert (plan.version, plan.base.kind) == ("2.13.0", "debian")


def test_what_is_added_to_a_container_of_aws_is_locked() -> None:
    """The lines of Hugging Face's containers add its libraries by wheels; other containers hold everything."""
    (entry,) = [each for each in WHOLE.lines if each.line.framework == "huggingface-pytorch"][-1:]
    catalog = Catalog([entry], WHOLE.components, WHOLE.rules)
    added = resolve(ask(framework="huggingface-pytorch"), catalog).component("huggingface")
    assert added is not None
    assert added.wheels
    held = plan_of("2.0.1-cu121")
    assert (held.base.kind, held.unlocked) == ("dlc", False)
    assert not [source for component in held.components for source in component.sources]


def test_a_base_image_of_the_site_replaces_none_that_a_line_names() -> None:
    named = PYTORCH["cpu"].line.base.replace(image="registry.example/own:1")
    plan = resolve(ask(), catalog_of(changed("cpu", base=named)), base_image="registry.example/debian:12")
    assert plan.base.image == "registry.example/own:1"


# ---- what a request may name -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        # A rule knows the name, but a component that does not exist cannot be left out.
        ({"without": "apex"}, "--without: no component 'apex'"),
        # A line's framework is not a component, even if a rule named it before the line existed.
        ({"with_": "huggingface-pytorch"}, "--with: no component 'huggingface-pytorch'"),
        ({"set_": ["huggingface-pytorch=2.9.0"]}, "--set: no component 'huggingface-pytorch'"),
    ],
)
def test_a_foreseen_name_is_for_components_to_come(words: dict[str, Any], message: str) -> None:
    rules = RuleBook(foreseen=("apex", "huggingface-pytorch"))
    entry = next(each for each in WHOLE.lines if each.line.framework == "huggingface-pytorch")
    with pytest.raises(RequestError) as refused:
        resolve(ask(**words), catalog_of("cpu", entry, rules=rules))
    assert refused.value.message.startswith(message)


def test_a_provider_of_what_does_not_exist_yet_is_a_conflict() -> None:
    with pytest.raises(Conflict):
        plan_of("cpu", with_="apex", set_=["apex=index"])


@pytest.mark.parametrize(
    ("pin", "error", "words"),
    [
        # In the plan of one of two lines: another version could be there, so the answer has reasons and offers.
        ("rmm=99", Conflict, ""),
        # An option of one of two lines.
        ("deepspeed=0.19.8", RequestError, "--with deepspeed adds it."),
        ("gdrcopy=2.5.1", RequestError, "--with gdrcopy adds it."),
        ("nccl-tests=1", RequestError, "./invoke plan shows what is."),
    ],
)
def test_a_pin_of_what_some_lines_have(pin: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as refused:
        plan_of("cpu", "cu126", set_=[pin])
    assert not words or getattr(refused.value, "remedy", None) == words


def test_of_incomplete_versions_the_newest_complete_one_is_the_example() -> None:
    with pytest.raises(RequestError) as refused:
        plan_of("cu126", "cpu", "cu124", version="3", allow_unproven=True)
    assert refused.value.remedy == "Write the complete version, as in --version 2.13.0."


# ---- notices about other lines -----------------------------------------------------------------------------------


def test_other_versions_are_the_published_ones_newest_first() -> None:
    lines = [
        changed(name, cuda="12.6", version=version, released=released)
        for name, version, released in (
            ("cu121", "2.9.0", True),
            ("cu124", "2.10.0+own", True),
            ("cu126", "2.11.0", True),
            ("cu128", "2.8.0", False),
            ("cu130", "2.7.1", True),
        )
    ]
    (said,) = told(plan_of(*lines, cuda="cu126"), "is the newest for")
    assert said == "pytorch 2.11.0 is the newest for cu126; --version takes 2.10.0, 2.9.0, 2.7.1"
    # A request that names a version, or its beginning, accepts no other.
    assert not told(plan_of(*lines, cuda="cu126", version="2"), "is the newest for")


def test_an_older_line_that_has_what_was_set_is_not_called_the_newest() -> None:
    older = changed("2.4.0-cu124", components=with_version("2.4.0-cu124", "nccl", "2.23.4"))
    newer = changed("2.5.1-cu124", components=with_version("2.5.1-cu124", "nccl", "2.22.3"))
    (said,) = told(plan_of(older, newer, cuda="cu124", set_=["nccl=2.23.4"]), "--version takes")
    assert said == "pytorch 2.4.0 was chosen for cu124; --version takes 2.5.1"


def test_the_line_of_a_version_that_is_tried_is_not_called_the_newest() -> None:
    """What a line has comes before what would be tried on a newer one."""
    older = changed("cu126", version="2.6.0", components=with_version("cu126", "rmm", "25.2.0"))
    newer = changed("cu126-py313", preferred=True)
    plan = plan_of(older, newer, cuda="cu126", set_=["rmm=25.2.0"], allow_unproven=True)
    assert told(plan, "--version takes") == ["pytorch 2.6.0 was chosen for cu126; --version takes 2.7.1"]


def test_two_ways_are_two_bases_of_the_same_versions() -> None:
    debian, image = changed("cu130", preferred=True), PYTORCH["2.13.0-cu133"]
    assert len(told(plan_of(debian, image), "two lines have")) == 1
    for other in ({"version": "2.12.9"}, {"cuda": "12.9"}):
        entry = image.replace(line=image.line.replace(**other))
        assert not told(plan_of(debian, entry), "two lines have"), other
    # An unlisted version is not compared with anything.
    assert not told(plan_of(debian, image, allow_unproven=True), "two lines have")


def test_a_container_of_aws_is_no_second_way_and_has_none() -> None:
    for preferred, kind in ((False, "debian"), (True, "dlc")):
        container = changed("2.0.1-cu121", version=PYTORCH["cu121"].line.version, preferred=preferred)
        plan = plan_of("cu121", container, cuda="cu121")
        assert (plan.base.kind, told(plan, "two lines have")) == (kind, [])


def test_of_several_other_ways_the_best_is_told_with_what_it_lacks() -> None:
    debian, image = changed("cu130", preferred=True), PYTORCH["2.13.0-cu133"].line
    first = PYTORCH["2.13.0-cu133"].replace(line=image.replace(components={**debian.line.components}, options={}))
    fewer = {name: one for name, one in debian.line.components.items() if name != "metis"}
    better = changed("2.12.1-cu130", version=image.version, cuda=image.cuda, preferred=True, components=fewer)
    assert better.line.base.image != image.base.image
    for entries in ((debian, first, better), (better, first, debian)):
        (said,) = told(plan_of(*entries), "two lines have")
        assert said.endswith(f"from {better.line.base.image}, without metis")
    (alike,) = told(plan_of(debian, first), "two lines have")
    assert alike.endswith(f"from {image.base.image}")


def test_an_image_without_a_word_on_python_says_nothing_of_python() -> None:
    assert not told(plan_of("2.5.1-cu124", "cpu", cuda="cu124"), " comes with ")
    assert told(plan_of("2.5.1-cu124", "cpu", cuda="cu124", python="3.11"), " comes with ")
    assert not told(plan_of("cpu", "2.5.1-cu124", cuda="cpu", python="3.11"), " comes with ")
