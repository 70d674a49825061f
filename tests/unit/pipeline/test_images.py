"""The words of ``--images``, and what image lines have in common."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.catalogs import debian_lines
from tests.support.dockerfiles import of_the_image
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import RequestError
from trainwright.pipeline.images import choose
from trainwright.pipeline.pipeline import shared_groups
from trainwright.pipeline.sharing import SharedImage, group_of, groups, stage_keys
from trainwright.plan.assemble import make_plan as make
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site

CATALOG = load_catalog()
DEBIAN = "pytorch-*-debian"


def names(words: str | None) -> list[str]:
    return [image.name for image in choose(words, CATALOG, Site())]


def test_the_default_is_what_upstream_supports():
    images = choose(None, CATALOG, Site())
    assert images
    for image in images:
        plan = resolve(make_request(framework=image.plan.framework, cuda=image.plan.cuda), CATALOG)
        assert plan.id == image.plan.id, "the line that a request for framework and CUDA takes"
        assert not [notice for notice in image.plan.notices if "no fixes come from upstream" in notice]


def test_no_line_is_planned_but_the_chosen(monkeypatch):
    """Which line a request takes is known before its plan, and a plan that is not cached is rendered."""
    planned = []
    monkeypatch.setattr(
        "trainwright.plan.resolve.make_plan", lambda *given, **more: planned.append(1) or make(*given, **more)
    )
    assert len(choose(None, CATALOG, Site())) == len(planned)


def test_every_way_to_name_a_line():
    assert names("pytorch-2.6.0-cu124") == names("pytorch:cu124") == names("pytorch:12.4")
    assert names("pytorch-2.6.0-cu124-debian") == ["pytorch-2.6.0-cu124-debian"]
    assert names("pytorch:cu124,pytorch-2.6.0-cu124, pytorch:cpu") == [
        "pytorch-2.6.0-cu124-debian",
        "pytorch-2.13.0-cpu-debian",
    ]


def test_a_framework_is_every_cuda_version_of_it_once():
    found = choose("tensorflow", CATALOG, Site())
    versions = [image.plan.cuda for image in found]
    assert len(versions) == len(set(versions))
    assert set(versions) == {e.line.cuda for e in CATALOG.lines if e.line.framework == "tensorflow" and e.line.released}


def test_a_pattern_is_every_line_that_fits():
    expected = {(e.line.version, e.line.cuda) for e in debian_lines().lines}
    assert {(i.plan.version, i.plan.cuda) for i in choose(DEBIAN, CATALOG, Site())} == expected


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("pytroch", "pytorch"),
        ("pytorch:cu119", "pytorch:cu11"),
        ("pytorch:gpu", "pytorch:cpu"),
        ("pytorch-2.6.1-cu124", "pytorch-2.6.0-cu124"),
    ],
)
def test_an_unknown_word_leads_to_the_nearest(word, near):
    with pytest.raises(RequestError) as refused:
        names(f"pytorch:cpu,{word}")
    assert near in refused.value.message


def test_the_request_of_an_image_gives_its_plan():
    for image in choose("pytorch-*", CATALOG, Site())[::6]:
        assert resolve(image.request, CATALOG).id == image.plan.id


def image_of(cuda: str, catalog=CATALOG, **words: str) -> SharedImage:
    plan = resolve(make_request(framework="pytorch", cuda=cuda, **words), catalog)
    return SharedImage(cuda, plan, render_dockerfile(plan, catalog))


def test_debian_lines_share_what_no_framework_is_in():
    images = [image for image in choose(DEBIAN, CATALOG, Site()) if image.plan.base.os != "debian-11"]
    assert len(images) == 12
    trixie, bookworm = shared_groups(images, CATALOG)  # the larger one is first
    assert {*bookworm.images, *trixie.images} == {image.name for image in images}
    assert {image.plan.base.os for image in images if image.name in trixie.images} == {"debian-13"}
    assert bookworm.stages == ("base", "os", "tools", "toolchain", "wheels", "metis")
    assert trixie.stages == ("base", "os", "tools", "toolchain", "wheels", "metis")


def test_a_group_is_called_by_its_stages_whatever_else_is_in_the_pipeline():
    """So two pipelines with one cache share what is equal, and overwrite nothing of each other."""

    def groups_of(words: str) -> list[str]:
        return [group.name for group in shared_groups(choose(words, CATALOG, Site()), CATALOG)]

    debian, some = groups_of(DEBIAN), groups_of("pytorch-2.6.0-cu124-debian,pytorch-2.13.0-cpu-debian")
    assert {*some} < {*debian}
    nvidia = groups_of("pytorch-1.*-cu113-nvidia")
    assert nvidia
    assert not {*debian} & {*nvidia}
    assert len({*debian}) == len(debian) == 2


def test_another_version_of_a_component_is_another_stage():
    plain, other = stage_keys(image_of("cpu")), stage_keys(image_of("cpu", with_="compiler"))
    # A compiler in the image changes the packages of the distribution, and all that is built on them.
    assert plain["base"] == other["base"]
    assert plain["os"] != other["os"]
    assert plain["metis"] != other["metis"]


def change(image: SharedImage, **component: object) -> SharedImage:
    """The image with another METIS in its plan and the same Dockerfile."""
    parts = tuple(part.replace(**component) if part.name == "metis" else part for part in image.plan.components)
    return SharedImage("other", image.plan.replace(components=parts), image.dockerfile)


def test_files_of_the_context_are_part_of_a_stage():
    image = image_of("cpu")
    before = stage_keys(image)
    archives = image.plan.component("metis").sources
    other = tuple(source.replace(sha256="0" * 64) for source in archives)
    after = stage_keys(change(image, sources=other))
    assert {name for name in before if before[name] != after[name]} == {"metis"}


def test_a_stage_changes_with_what_it_takes_from_another():
    image = image_of("cpu")
    touched = image.dockerfile.replace("-m venv /opt/tools", "-m venv --copies /opt/tools")
    assert touched != image.dockerfile
    before, after = stage_keys(image), stage_keys(SharedImage("other", image.plan, touched))
    # `wheels` starts from the toolchain and takes pip from the tools.
    assert {name for name in before if before[name] != after[name]} == {"tools", "wheels"}


def test_an_unknown_file_of_the_context_is_never_shared():
    dockerfile = "FROM scratch AS base\nCOPY some/thing /\nRUN true\nFROM base AS final\nRUN true\n"
    one, two = image_of("cpu"), image_of("cu124")
    assert not groups([SharedImage("one", one.plan, dockerfile), SharedImage("two", two.plan, dockerfile)])


def made_of(stages: list[str]) -> str:
    parts = ["FROM debian:12 AS base", *(f"FROM base AS {name}\nRUN make {name}" for name in stages)]
    return "\n".join([*parts, "FROM base AS final", "RUN true", ""])


@given(st.lists(st.sets(st.sampled_from("abcde"), max_size=4), min_size=1, max_size=5))
def test_groups_are_a_tree_and_hold_only_what_all_share(sets):
    plan = PLAN
    images = [SharedImage(f"image{n}", plan, made_of(sorted(stages))) for n, stages in enumerate(sets)]
    by_name = {image.name: set(stages) for image, stages in zip(images, sets, strict=True)}
    found = groups(images)
    known = {group.name: group for group in found}
    for number, group in enumerate(found):
        assert len(group.images) > 1
        own = set(group.stages) - {"base"}
        assert own == set.intersection(*(by_name[name] for name in group.images))
        for other in found[:number]:
            inside = set(group.images) < set(other.images)
            assert inside or not set(group.images) & set(other.images)
        if group.parent:
            assert set(known[group.parent].stages) < set(group.stages)
    for image in images:
        inner = group_of(image.name, found)
        mine = [group for group in found if image.name in group.images]
        assert inner is (min(mine, key=lambda group: len(group.images)) if mine else None)


PLAN = resolve(make_request(framework="pytorch", cuda="cpu"), CATALOG)


def test_a_stage_without_work_makes_no_group():
    text = "FROM debian:12 AS base\nENV A=1\nFROM base AS final\nRUN true\n"
    assert not groups([SharedImage("one", PLAN, text), SharedImage("two", PLAN, text)])


def test_the_keys_cover_every_stage_of_every_line():
    """A path of the context that the rule does not know would make a stage a plan's own, and nobody would notice."""
    for entry in CATALOG.lines:
        line = entry.line
        plan = resolve(make_request(framework=line.framework, cuda=line.cuda, version=line.version), CATALOG)
        text = render_dockerfile(plan, CATALOG)
        keys = stage_keys(SharedImage("x", plan, text))
        other = stage_keys(SharedImage("x", plan.replace(id="another"), text))
        assert keys == other, line.framework
        own = re.findall(r"(?m)^FROM .* AS (packages|bytecode|final|[\w-]+-layer)$", text)
        assert len(keys) == len(re.findall(r"(?m)^FROM ", of_the_image(text))) - len(own)
