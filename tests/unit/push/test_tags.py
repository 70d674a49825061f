"""The rule of tags, and the names of repositories and registries."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.catalog.image_line import cuda_tag
from trainwright.core.errors import RequestError
from trainwright.plan.plan import Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.push import tags
from trainwright.push.references import check_repository, find_target, parse_host, registry_host
from trainwright.push.repository import load_policy
from trainwright.push.tags import LENGTH, Tags, check_tag, is_immutable, of_plan, order, soci_tag
from trainwright.sagemaker.dlc import load_dlc
from trainwright.site.site import Aws

DAY = datetime(2026, 11, 21, 23, 30, tzinfo=UTC)
GRAMMAR = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")  # distribution/reference


CATALOG = load_catalog()


@pytest.fixture(scope="module")
def plan() -> Plan:
    return resolve(make_request(framework="pytorch", cuda="cu124", version="2.6.0"), CATALOG)


def tags_of(plan: Plan, built: datetime, **more: Any) -> Tags:
    return tags.tags_of(plan, built, CATALOG, **more)


def variation(plan: Plan, **fields: object) -> Plan:
    return plan.replace(**fields)


def test_the_rule(plan):
    assert tags_of(plan, DAY) == Tags(
        immutable=f"pytorch-2.6.0-cu124-py311-debian12-20261121-{plan.id[:12]}",
        moving=("pytorch-2.6.0-cu124", "pytorch-2.6-cu124"),
        filter="*-cu124",
    )


def test_the_day_is_that_of_utc(plan):
    east = DAY.astimezone(timezone(timedelta(hours=9)))
    assert east.day == 22
    assert tags_of(plan, east) == tags_of(plan, DAY)


def test_what_sets_an_image_apart_is_in_every_tag(plan):
    plain, other = tags_of(plan, DAY), tags_of(variation(plan, flavour="compiler"), DAY)
    assert not {plain.immutable, *plain.moving} & {other.immutable, *other.moving}
    assert other.moving[0] == "pytorch-2.6.0-compiler-cu124"


def test_a_local_version_says_nothing_that_the_cuda_part_does_not(plan):
    cpu = tags_of(variation(plan, version="2.13.0+cpu", cuda="cpu"), DAY)
    assert cpu.moving == ("pytorch-2.13.0-cpu", "pytorch-2.13-cpu")
    assert "+" not in cpu.immutable


def test_a_revision_and_a_missing_proof_make_another_tag(plan):
    found = {tags_of(plan, DAY, revision=n, untested=u).immutable for n in (1, 2, 11) for u in (True, False)}
    assert len(found) == 6
    with pytest.raises(RequestError):
        tags_of(plan, DAY, revision=0)


@given(
    framework=st.from_regex(r"[a-z][a-z0-9-]{0,30}", fullmatch=True),
    version=st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){1,3}(\+[a-z0-9.]{1,8})?", fullmatch=True),
    cuda=st.sampled_from(["cpu", "12.4", "11.3", "13.0"]),
    flavour=st.text("abcdefgh0123456789.-+_ /ü", max_size=200),
    built=st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2100, 1, 1), timezones=st.just(UTC)),
    digest=st.from_regex(r"[0-9a-f]{64}", fullmatch=True),
    revision=st.integers(1, 999),
    untested=st.booleans(),
)
def test_tags_of_any_plan(plan, framework, version, cuda, flavour, built, digest, revision, untested):
    some = variation(plan, framework=framework, version=version, cuda=cuda, flavour=flavour, id=digest)
    found = tags_of(some, built, revision=revision, untested=untested)
    for tag in (found.immutable, *found.moving):
        assert GRAMMAR.fullmatch(tag)
    # The immutable tag says which plan and day, cannot move, and nobody may give it by hand.
    assert digest[:12] in found.immutable
    assert f"{built:%Y%m%d}" in found.immutable
    [protected] = load_policy().immutable_tags
    assert fnmatchcase(found.immutable, protected)
    assert not any(fnmatchcase(tag, protected) for tag in found.moving)
    assert not fnmatchcase(found.immutable, found.filter)
    assert all(fnmatchcase(tag, found.filter) for tag in found.moving)
    with pytest.raises(RequestError):
        check_tag(found.immutable)
    for tag in found.moving:
        assert check_tag(tag) == tag


@pytest.fixture(scope="module")
def every_line() -> dict[str, tuple[Plan, Tags]]:
    """The plan and the tags of each line of the catalog, by its framework and folder."""
    found = {}
    for entry in CATALOG.lines:
        line = entry.line
        request = make_request(framework=line.framework, cuda=line.cuda, version=line.version)
        plan = resolve(request, Catalog([entry], CATALOG.components, CATALOG.rules))
        found[f"{line.framework}/{entry.name}"] = plan, tags_of(plan, DAY)
    return found


def test_no_two_lines_of_the_catalog_share_a_tag_and_none_is_cut(every_line):
    owners: dict[str, str] = {}
    for name, (plan, its) in every_line.items():
        assert its.moving, name
        assert its.immutable.startswith(f"{plan.framework}-{plan.version.partition('+')[0]}-")
        for tag in (its.immutable, *its.moving):
            assert owners.setdefault(tag, name) == name, tag


def test_only_the_line_that_a_bare_request_takes_has_the_short_tag(every_line):
    moving = {name: its.moving for name, (_, its) in every_line.items()}
    pairs = (("1.8.0-cu111", "1.8.1-cu111", "1.8"), ("1.10.0-cu113", "1.10.2-cu113", "1.10"))
    for older, newer, minor in pairs:
        assert moving[f"pytorch/{older}"] == (f"pytorch-{older}",)
        assert moving[f"pytorch/{newer}"] == (f"pytorch-{newer}", f"pytorch-{minor}-{newer.partition('-')[2]}")
    for name, (plan, _) in every_line.items():
        version = plan.version.partition("+")[0]
        taken = resolve(make_request(framework=plan.framework, cuda=plan.cuda, version=version), CATALOG)
        short = f"{plan.framework}-{version}-{cuda_tag(plan.cuda)}"
        # What has a flavour has it in its tags, and owns these.
        assert (short in moving[name]) == (taken.id == plan.id and not plan.flavour), name


def test_a_line_that_a_request_takes_by_its_base_or_python_alone_names_its_base(every_line):
    named = [its.moving for plan, its in every_line.values() if plan.base.os.replace("-", "") in "".join(its.moving)]
    assert sorted(named) == [
        ("pytorch-1.12.1-debian11-cu113",),
        ("pytorch-2.11.0-amazonlinux2023-cu130",),
        ("pytorch-2.12.1-amazonlinux2023-cu130",),
        ("pytorch-2.13.0-amazonlinux2023-cu130",),
        ("pytorch-2.13.0-debian13-cpu",),
        ("pytorch-2.7.1-debian12-cu126",),
        ("tensorflow-2.21.0-amazonlinux2023-cu129",),
        ("tensorflow-2.21.0-debian13-cpu",),
    ]


def test_a_version_that_no_line_has_takes_no_lines_tag(plan):
    assert tags_of(variation(plan, version="2.6.99"), DAY).moving == ("pytorch-2.6.99-cu124",)


def test_order_is_by_version_first():
    later = DAY + timedelta(days=1)
    assert order("2.6.0", later) < order("2.6.1", DAY) < order("2.10.0", DAY)
    assert order("2.6.0", DAY) < order("2.6.0+cu124", later)


@pytest.mark.parametrize("tag", ["", "-a", ".a", "a/b", "a:b", "ä", "a" * 129])
def test_no_tag(tag):
    with pytest.raises(RequestError) as refused:
        check_tag(tag)
    assert check_tag(refused.value.remedy.split()[-1])


# --- repositories and registries --------------------------------------------------------------------------------------


@given(st.from_regex(r"[a-z0-9]{2,5}([._/-][a-z0-9]{1,5}){0,4}", fullmatch=True))
def test_a_repository_that_ecr_takes(name):
    assert check_repository(name) == name


@pytest.mark.parametrize("name", ["", "a", "Team", "team//x", "/team", "team/", "te am", "a..b", "team:v1", "x" * 257])
def test_no_repository_but_one_is_near(name):
    with pytest.raises(RequestError) as refused:
        check_repository(name)
    assert check_repository(refused.value.remedy.split()[-1])


def test_registries_are_where_aws_has_them():
    """Against the table of regions that was read out of AWS's own SDK for SageMaker."""
    for region, suffix in load_dlc().domains.items():
        host = registry_host("123456789012", region)
        assert host == f"123456789012.dkr.ecr.{region}.{suffix}"
        assert parse_host(host) == ("123456789012", region)
    with pytest.raises(RequestError):
        registry_host("123456789012", "us-west")


def test_words_of_the_command_line_and_of_the_site():
    site = Aws(account="111111111111", region="eu-central-1")
    here = find_target("team/x", (), None, site)
    assert (here.account, here.regions, here.repository) == ("111111111111", ("eu-central-1",), "team/x")
    there = find_target("team/x", ("us-west-2", "cn-north-1", "us-west-2"), "222222222222", site)
    assert (there.account, there.regions) == ("222222222222", ("us-west-2", "cn-north-1"))
    whole = find_target("333333333333.dkr.ecr.cn-north-1.amazonaws.com.cn/team/x", (), None, site)
    assert (whole.account, whole.regions, whole.repository) == ("333333333333", ("cn-north-1",), "team/x")


@pytest.mark.parametrize(
    ("repository", "regions", "account", "site"),
    [
        ("team/x", (), None, Aws()),
        ("team/x", ("us-west-2",), "12", Aws()),
        ("team/x", ("nowhere",), None, Aws()),
        ("docker.io/team/x", ("us-west-2",), None, Aws()),
        ("333333333333.dkr.ecr.us-west-2.amazonaws.com/x1", ("us-east-1",), None, Aws()),
        ("333333333333.dkr.ecr.us-west-2.amazonaws.com/x1", (), "111111111111", Aws()),
    ],
)
def test_words_that_do_not_fit(repository, regions, account, site):
    with pytest.raises(RequestError):
        find_target(repository, regions, account, site)


def test_the_tags_of_a_plan_are_found_the_newest_first(plan):
    first = tags_of(plan, DAY).immutable
    tenth, second = (tags_of(plan, DAY, revision=number).immutable for number in (10, 2))
    later = tags_of(plan, DAY + timedelta(days=1)).immutable
    other = resolve(make_request(framework="pytorch", cuda="cu124", version="2.6.0", with_="compiler"), CATALOG)
    none = [tags_of(plan, DAY).moving[0], tags_of(plan, DAY, untested=True).immutable, tags_of(other, DAY).immutable]
    found = of_plan([first, second, soci_tag(second), later, *none, tenth, "nightly-1"], plan)
    assert found == [later, tenth, soci_tag(second), second, first]


def test_the_tag_of_a_soci_index_is_an_immutable_one_and_fits():
    for tag in ("x-cu124-py311-debian12-20261101-" + "a" * 12, "x-20261101.12-" + "b" * 12 + "-untested"):
        assert soci_tag(tag) == f"{tag}-soci"
        assert is_immutable(soci_tag(tag))
        with pytest.raises(RequestError):
            check_tag(soci_tag(tag))
    long = "y" * 106 + "-20261101-" + "c" * 12
    assert len(long) == LENGTH
    assert soci_tag(long) == "y" * 101 + "-20261101-" + "c" * 12 + "-soci"
