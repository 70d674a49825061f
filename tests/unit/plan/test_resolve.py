"""From request to plan: what fits resolves, the rest is a conflict whose offers do resolve."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.catalogs import debian_lines, write_hello
from tests.support.examples import some
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.catalog.image_line import Line, cuda_tag, version_key
from trainwright.core.errors import Conflict, Failure, RequestError
from trainwright.core.paths import images_dir, templates_dir
from trainwright.plan.request import make_request
from trainwright.plan.resolve import bare_of, resolve

ALL = load_catalog()
CATALOG = debian_lines()
# The newest supported line of each with CUDA, of packages alone.
BARE = {"pytorch": "pytorch/cu132", "tensorflow": "tensorflow/cu129"}
LINES = {entry.line.cuda_tag: entry.line for entry in CATALOG.lines}


def plan_of(catalog: Catalog = CATALOG, **words):
    return resolve(make_request(framework="pytorch", **words), catalog)


def flags_of(command: str) -> dict[str, str]:
    words = shlex.split(command)
    assert words[:2] == ["./invoke", "build"]
    return {k.removeprefix("--").replace("-", "_"): v for k, v in zip(words[2::2], words[3::2], strict=True)}


def alone(entry: Line) -> Catalog:
    """A catalog with one line: of several for one version and CUDA, a request takes one."""
    return Catalog([entry], ALL.components, ALL.rules)


EACH = pytest.mark.parametrize("entry", ALL.lines, ids=lambda entry: f"{entry.line.framework}-{entry.name}")


@EACH
def test_every_line_resolves_to_itself(entry):
    line = entry.line
    plan = resolve(make_request(framework=line.framework, cuda=line.cuda_tag), alone(entry))
    assert (plan.version, plan.cuda, plan.python) == (line.version, line.cuda, line.python)
    own = [component for component in plan.components if component.name in line.components]
    assert {component.name for component in own} == set(line.components)
    # What AWS's Dockerfile installs in an image that is extended comes without a version.
    assert all((c.provider, c.version) == ("base", "") for c in plan.components if c not in own)
    assert line.base.kind == "dlc" or len(own) == len(plan.components)
    for component in own:
        assert component.version == line.components[component.name].version
        for source in component.sources:
            assert len(source.sha256) == 64 if source.sha256 else source.url


@EACH
def test_every_python_package_has_one_owner(entry):
    request = make_request(framework=entry.line.framework, with_=",".join(entry.line.options) or None)
    plan = resolve(request, alone(entry))
    packages = [s.package for c in plan.components for s in c.sources if s.package and "==" in s.package]
    assert len(packages) == len(set(packages))
    for component in plan.components:
        for requirement in component.packages:
            assert requirement.lower().replace("_", "-") in packages


def test_same_request_same_plan_byte_for_byte():
    first = plan_of(cuda="cu124").as_json()
    second = plan_of(debian_lines(), cuda="12.4", version="2.6").as_json()
    assert json.dumps(first) == json.dumps(second)


def test_without_cuda_the_newest_cuda_line_is_meant():
    newest = max((line for line in LINES.values() if line.cuda != "cpu"), key=lambda line: version_key(line.cuda))
    assert plan_of().cuda == newest.cuda


def test_the_line_of_a_framework_alone():
    lines = {framework: images_dir() / line / "line.yaml" for framework, line in BARE.items()}
    for framework, path in lines.items():
        assert bare_of(ALL, [framework]) == {path}
    assert bare_of(ALL) >= set(lines.values())
    assert bare_of(ALL, []) == bare_of(ALL, ["no-such-framework"]) == set()


def test_id_follows_what_is_in_the_image(tmp_path: Path):
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("tqdm\n")
    ids = [plan_of(cuda="cpu").id, plan_of(cuda="cpu", requirements=str(requirements)).id]
    requirements.write_text("rich\n")
    ids.append(plan_of(cuda="cpu", requirements=str(requirements)).id)
    ids.append(plan_of(cuda="cpu", without="metis").id)
    assert len(set(ids)) == len(ids)
    moved = tmp_path / "elsewhere.txt"
    requirements.rename(moved)
    assert plan_of(cuda="cpu", requirements=str(moved)).id == ids[2]


def test_tags_hold_what_a_registry_accepts():
    for tag in LINES:
        for name in plan_of(cuda=tag).tags:
            repository, _, label = name.partition(":")
            assert repository == "trainwright/pytorch"
            assert label.replace("-", "").replace(".", "").replace("_", "").isalnum()


def test_what_was_added_or_left_out_has_tags_of_its_own():
    plain, more, less = (plan_of(cuda="cu124", **w) for w in ({}, {"with_": "compiler"}, {"without": "rmm"}))
    assert len({plan.tags[0] for plan in (plain, more, less)}) == 3
    assert more.tags[0] == f"{plain.tags[0]}-compiler"
    assert less.tags[0] == f"{plain.tags[0]}-no-rmm"


@pytest.mark.parametrize(
    "words",
    [
        {"cuda": "cu999"},
        {"cuda": "cu111"},
        {"cuda": "cu124", "version": "1.2.3"},
        {"cuda": "cu124", "python": "3.8"},
        {"cuda": "cu121", "with_": "cuda-compiler"},
        {"base": "nvidia"},
        {"cuda": "cu124", "without": "cuda"},
    ],
)
def test_conflicts_offer_sets_that_resolve(words):
    with pytest.raises(Conflict) as refused:
        plan_of(**words)
    conflict = refused.value
    assert conflict.exit_code == 3
    assert conflict.details["rows"]
    offers = conflict.details["offers"]
    assert 1 <= len(offers) <= 3
    for offer in offers:
        flags = flags_of(offer["command"])
        flags.pop("framework")
        made = plan_of(**{"with_" if k == "with" else k: v for k, v in flags.items()})
        assert made.id == offer["plan id"]


def test_the_nearest_cuda_is_offered_first():
    with pytest.raises(Conflict) as refused:
        plan_of(cuda="cu116")
    assert flags_of(refused.value.details["offers"][0]["command"])["cuda"] == "cu117"


@pytest.mark.parametrize(
    ("words", "nearest"),
    [({"with_": "cuda-compilr"}, "cuda-compiler"), ({"without": "mettis"}, "metis"), ({"base": "debiann"}, "debian")],
)
def test_unknown_names_are_refused_with_the_nearest(words, nearest):
    with pytest.raises(RequestError, match=nearest) as refused:
        plan_of(cuda="cpu", **words)
    assert refused.value.exit_code == 2


def test_unknown_framework():
    with pytest.raises(RequestError, match="pytorch"):
        resolve(make_request(framework="pytroch"), CATALOG)


def test_leaving_out_what_is_required_is_a_conflict_that_names_both():
    with pytest.raises(Conflict) as refused:
        plan_of(cuda="cpu", without="openmpi")
    named = " ".join(row["constraint"] for row in refused.value.details["rows"])
    assert "mpi4py requires openmpi" in named
    assert "sagemaker-toolkit requires openmpi" in named


names = st.lists(st.sampled_from(sorted(CATALOG.components)), max_size=3, unique=True).map(",".join)


@settings(deadline=None, max_examples=some(150))
@given(
    cuda=st.sampled_from(["cpu", "cu117", "cu124", "cu130", "cu113", "cu999", None]),
    version=st.sampled_from([None, "2", "2.6", "2.6.0", "9.9"]),
    with_=names,
    without=names,
)
def test_any_request_gives_a_sound_plan_or_a_reasoned_refusal(cuda, version, with_, without):
    try:
        plan = plan_of(cuda=cuda, version=version, with_=with_ or None, without=without or None)
    except Failure as refused:
        assert refused.exit_code in (2, 3)
        assert refused.message
        return
    chosen = {c.name for c in plan.components}
    assert not chosen & set(filter(None, without.split(",")))
    assert set(filter(None, with_.split(","))) <= chosen
    offered = chosen | {p for name in chosen for p in CATALOG.components[name].component.provides}
    for name in chosen:
        component = CATALOG.components[name].component
        assert set(component.requires) <= offered
    assert cuda is None or cuda_tag(plan.cuda) == cuda
    orders = [c.order for c in plan.components]
    assert orders == sorted(orders)


@pytest.fixture
def copied(tmp_path: Path):
    """A copy of the shipped data that a test may break."""
    shutil.copytree(images_dir(), tmp_path / "images")
    shutil.copytree(templates_dir(), tmp_path / "templates")
    return tmp_path


CPU, METIS = "images/pytorch/cpu/line.yaml", "templates/components/metis/component.yaml"


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        (CPU, "status:", "statsu:", "status"),
        (CPU, "  metis:", "  mettis:", "metis"),
        (CPU, "provider: debian, version: 5.1.0", "provider: debian, version: 5.9.9", "5.1.0"),
        (CPU, "provider: debian, version: 5.1.0", "provider: debain, version: 5.1.0", "debian"),
        (CPU, "provider: debian, version: 5.1.0", "provider: debian, version: 5.1", "quotes"),
        (CPU, "framework: pytorch", "framework: [", "cpu/line.yaml"),
        (METIS, "summary:", "sumary:", "summary"),
        (METIS, "name: metis", "name: mitis", "folder"),
    ],
)
def test_a_broken_data_file_is_named_with_the_nearest_valid_word(copied, file, old, new, told):
    path = copied / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(RequestError) as refused:
        load_catalog(copied / "images", copied / "templates")
    assert path.name in refused.value.message
    assert told in refused.value.message


def test_a_component_can_be_added_without_touching_python(copied):
    write_hello(copied / "templates")
    line = copied / "images" / "pytorch" / "cpu" / "line.yaml"
    line.write_text(
        line.read_text().replace("components:\n", "components:\n  hello: {provider: debian, version: '2.10'}\n")
    )
    from trainwright.plan.rendered import render_dockerfile

    catalog = load_catalog(copied / "images", copied / "templates")
    plan = plan_of(catalog, cuda="cpu")
    text = render_dockerfile(plan, catalog)
    assert "RUN hello" in text
    assert re.search(r"/mnt/apt-install [^&]*\bhello\b", text)
    assert 'io.trainwright.component.hello="2.10 (debian)"' in text
    assert any(e.component == "hello" and e.value == "2.10" for e in plan.expect)


def test_a_python_that_packages_do_not_have_is_said_to_come_with_an_image():
    """Debian 11 has Python 3.9, Debian 12 has 3.11, Debian 13 has 3.13; 3.12 is in none."""
    whole = load_catalog()
    plan = resolve(make_request(framework="pytorch", python="3.12"), whole)
    (said,) = [notice for notice in plan.notices if notice.startswith("Python 3.12 comes with ")]
    assert said.endswith("have 3.9 (debian-11), 3.11 (debian-12) and 3.13 (debian-13)")
    for words in ({"python": "3.13"}, {"python": "3.12", "base": "nvidia"}):
        plan = resolve(make_request(framework="pytorch", **words), whole)
        assert not any(" comes with " in notice for notice in plan.notices)


def test_a_python_that_only_images_of_others_have_is_said_so_in_a_conflict():
    with pytest.raises(Conflict) as refused:
        resolve(make_request(framework="pytorch", cuda="cu132", python="3.12"), load_catalog())
    (said,) = [row["evidence"] for row in refused.value.details["rows"] if row["constraint"] == "--python 3.12"]
    assert said.endswith("have 3.9 (debian-11), 3.11 (debian-12) and 3.13 (debian-13)")
    with pytest.raises(Conflict) as refused:
        resolve(make_request(framework="pytorch", cuda="cu132", python="3.11"), load_catalog())
    (said,) = [row["evidence"] for row in refused.value.details["rows"] if row["constraint"] == "--python 3.11"]
    assert "made from packages" not in said
