"""What the parts of a draft become in a plan, and which component gets which locked package.

A component of its own, ``hello``, is in lines as shipped; what is expected follows from what component files promise
(:class:`trainwright.catalog.component.Provider`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.catalogs import write_hello
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.catalog.component import Component, ComponentFolder
from trainwright.catalog.image_line import Line, Selection
from trainwright.catalog.wheel_lock import Lock, LockedPackage
from trainwright.core.data_files import parse_yaml
from trainwright.core.records import parse_record
from trainwright.plan.assemble import DEFAULT_PATH, make_plan
from trainwright.plan.draft import Draft, make_draft
from trainwright.plan.plan import Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

WHOLE = load_catalog()
PYTORCH = {entry.name: entry for entry in WHOLE.lines if entry.line.framework == "pytorch"}
OWN = """\
name: hello
summary: says hello
order: 70
licence: {name: MIT}
providers:
  first:
    about: hello
    versions: {'2.10': {values: {colour: 'red-{python}'}}}
    apt: {run: ['hello-{version}'], build: ['hello-{colour}']}
    dnf: {run: [hello-dnf]}
    environment: {HELLO: '{version} {framework} {cuda} {python} {architectures} {colour}'}
    path: [/opt/hello/bin, /opt/venv/bin]
    expect: {version: '{version}', nccl: '{nccl}', home: present}
    owns: [hello-lib, hello-data]
    builds_with: ['tool-*']
  second:
    about: hello from elsewhere
    versions: {'2.10': {}}
    unchecked: it does not say its version
    licence: {name: GPL-3.0-only}
    probe: [{run: hello --second, match: {version: (.*)}}]
    owns: ['hello-*']
  third:
    about: hello from a third place
    versions: {'2.10': {}}
    expect: {version: '{version}'}
    probe: [{run: hello --third, match: {version: (.*)}}]
probe: [{run: hello --version, match: {version: (.*)}}]
notices:
- {says: it says hello}
- {says: metis is missing, unless: [metis]}
- {says: it is old, versions: <2}
- {says: it is on GPUs, when: [cuda, python]}
"""


def changed(name: str, **fields: Any) -> Line:
    """A line of PyTorch with other values."""
    return PYTORCH[name].replace(line=PYTORCH[name].line.replace(**fields))


def with_hello(entry: Line, provider: str = "first") -> Line:
    components = {**entry.line.components, "hello": Selection(provider=provider, version="2.10" if provider else "")}
    return entry.replace(line=entry.line.replace(components=components))


@pytest.fixture
def hello(tmp_path: Path) -> ComponentFolder:
    return ComponentFolder(
        component=parse_record(Component, parse_yaml(OWN, "hello"), "hello"), path=write_hello(tmp_path)
    )


def plan_of(entry: Line | str, *folders: ComponentFolder, image: str | None = None, **words: Any) -> Plan:
    entry = PYTORCH[entry] if isinstance(entry, str) else entry
    more = {folder.component.name: folder for folder in folders}
    catalog = Catalog([entry], {**WHOLE.components, **more}, WHOLE.rules)
    return resolve(make_request(**{"framework": entry.line.framework, **words}), catalog, base_image=image)


# ---- what a component brings -------------------------------------------------------------------------------------


def test_everything_of_a_provider_is_filled_in_for_the_line(hello: ComponentFolder) -> None:
    entry = changed("2.5.1-cu124", framework="own-torch", component="pytorch")
    plan = plan_of(with_hello(entry), hello, without="smdistributed-dataparallel")
    has = plan.component("hello")
    assert has is not None
    assert has.values["colour"] == "red-3.11"
    assert plan.environment["HELLO"] == "2.10 pytorch 12.4 3.11 7.0 8.0 9.0 red-3.11"
    assert (has.system.run, has.system.build) == (("hello-2.10",), ("hello-red-3.11",))
    path = plan.environment["PATH"].split(":")
    assert path[-6:] == DEFAULT_PATH.split(":")
    assert path.count("/opt/venv/bin") == path.count("/opt/hello/bin") == 1
    expected = {e.fact: e.value for e in plan.expect if e.component == "hello"}
    # AWS's PyTorch loads the NCCL of the line, and that is in no lock.
    assert expected == {"version": "2.10", "nccl": plan.loads["nccl"], "home": "present"}
    assert plan.loads["nccl"] == "2.23.4"
    assert [notice for notice in plan.notices if notice in ("it says hello", "metis is missing", "it is old")] == [
        "it says hello",
        "metis is missing",
    ]
    assert not [notice for notice in plan.notices if "not checked" in notice]


def test_a_notice_for_an_image_with_other_components_needs_all_of_them(hello: ComponentFolder) -> None:
    """CPU images have Python and no CUDA."""
    said = {name: "it is on GPUs" in plan_of(with_hello(PYTORCH[name]), hello).notices for name in ("cu126", "cpu")}
    assert said == {"cu126": True, "cpu": False}


def test_packages_are_those_of_the_distribution(hello: ComponentFolder) -> None:
    entry = PYTORCH["2.13.0-cu133"]
    assert entry.line.base.os == "amazonlinux-2023"
    has = plan_of(with_hello(entry), hello).component("hello")
    assert has is not None
    assert (has.system.run, has.system.build) == (("hello-dnf",), ())


@pytest.mark.parametrize(
    ("provider", "licence", "asked", "unchecked"),
    [
        ("first", "MIT", ["hello --version"], False),
        ("second", "GPL-3.0-only", [], True),  # nothing is expected, so nothing is looked for
        ("third", "MIT", ["hello --third"], False),
    ],
)
def test_licence_and_probe_are_the_provider_s_or_else_the_component_s(
    hello: ComponentFolder, provider: str, licence: str, asked: list[str], unchecked: bool
) -> None:
    plan = plan_of(with_hello(PYTORCH["cpu"], provider), hello)
    has = plan.component("hello")
    assert has is not None
    assert has.licence is not None
    assert has.licence.name == licence
    assert [step.run for step in plan.probes if step.component == "hello"] == asked
    told = ["not checked inside the image: hello 2.10 (it does not say its version)"] if unchecked else []
    assert [notice for notice in plan.notices if "not checked" in notice] == told


def test_a_path_of_programs_goes_in_front_of_that_of_a_container() -> None:
    """Only the build sees the container's own PATH."""
    line = PYTORCH["2.0.1-cu121"].line
    own = {**line.components, "metis": Selection(provider="source", version="5.1.0")}
    plan = plan_of(changed("2.0.1-cu121", components=own))
    assert plan.environment["PATH"] == "/opt/metis/bin:${PATH}"
    held = plan.component("pytorch")
    assert held is not None
    # The container's own software has no licence here and says nothing: AWS passes it on.
    assert (held.provider, held.licence) == ("base", None)


def test_what_a_container_may_hold_is_looked_for_and_not_claimed() -> None:
    """The name of an AWS container gives Python, framework and CUDA; the build finds the rest."""
    plan = plan_of("2.0.1-cu121")
    mpi = plan.component("openmpi")
    assert mpi is not None
    assert (mpi.provider, mpi.version) == ("base", "")
    assert "openmpi" in {step.component for step in plan.probes}
    assert "openmpi" not in {expected.component for expected in plan.expect}


def test_only_the_framework_has_the_evidence_of_its_line() -> None:
    plan = plan_of("cu126")
    assert {c.name: c.evidence for c in plan.components if c.evidence} == {"pytorch": PYTORCH["cu126"].line.evidence}
    tried = plan_of("cu126", version="2.7.99", allow_unproven=True)
    assert not [component for component in tried.components if component.evidence]


# ---- the user's own ----------------------------------------------------------------------------------------------


def test_code_in_the_image_is_what_the_toolkit_starts(tmp_path: Path) -> None:
    """The training toolkit reads SAGEMAKER_PROGRAM and SAGEMAKER_SUBMIT_DIRECTORY, and looks in /opt/ml/code."""
    (tmp_path / "train.py").touch()
    words = {"code": str(tmp_path), "entry_point": "train.py"}
    plan, plain = plan_of("cpu", **words), plan_of("cpu")
    names = ("SAGEMAKER_PROGRAM", "SAGEMAKER_SUBMIT_DIRECTORY")
    assert [plan.environment.get(name) for name in names] == ["train.py", "/opt/ml/code"]
    assert [plain.environment.get(name) for name in names] == [None, None]
    assert plan.environment["PATH"] == f"/opt/ml/code:{plain.environment['PATH']}"
    assert [bool(notice) for notice in plan.notices if "source_dir" in notice] == [True]
    assert not [notice for notice in plain.notices if "source_dir" in notice]
    assert plan_of("2.0.1-cu121", **words).environment["PATH"] == "/opt/ml/code:${PATH}"
    elsewhere = plan_of("cpu", **words, for_="ec2")
    assert not set(names) & set(elsewhere.environment)
    assert elsewhere.environment["PATH"].startswith("/opt/ml/code:")


def test_the_probe_compares_the_digest_of_the_code_if_there_is_code(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "wanted.txt").write_text("tqdm\n")

    def digest(plan: Plan) -> list[str]:
        return [e.value for e in plan.expect if (e.component, e.fact) == ("user", "code")]

    plan = plan_of("cpu", code=str(tmp_path), entry_point="train.py")
    assert digest(plan) == [plan.user.code_sha256]
    assert digest(plan_of("cpu", requirements=str(tmp_path / "wanted.txt"))) == ["*"]
    assert digest(plan_of("cpu")) == []


def test_what_the_user_s_own_files_do_is_told(tmp_path: Path) -> None:
    (tmp_path / "more.sh").write_text("#!/bin/sh\n")
    (tmp_path / "wanted.txt").write_text("einops\n")
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").touch()
    (code / ".netrc").write_text("machine example.com login me password secret\n")
    words = {"run": str(tmp_path / "more.sh"), "requirements": str(tmp_path / "wanted.txt")}
    signs = ("more.sh runs last", "--allow-secrets", "--allow-change")

    def told(plan: Plan) -> list[str]:
        return [sign for sign in signs if any(sign in notice for notice in plan.notices)]

    plan = plan_of(
        "2.0.1-cu121", **words, code=str(code), entry_point="train.py", allow_secrets=True, allow_change="numpy"
    )
    assert told(plan) == list(signs)
    assert told(plan_of("2.0.1-cu121", **words)) == ["more.sh runs last"]
    assert told(plan_of("2.0.1-cu121")) == []


# ---- what is said of the line ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "words", "told"),
    [
        ("supported", {}, []),
        ("unmaintained", {}, ["pytorch 2.7.1 is unmaintained: no fixes come from upstream"]),
        ("end-of-support", {}, ["pytorch 2.7.1 is end of support: no fixes come from upstream"]),
        # A version that the line does not list is tried.
        ("unmaintained", {"version": "2.7.99", "allow_unproven": True}, []),
    ],
)
def test_upstream_s_support_is_that_of_the_line_s_version(status: str, words: dict[str, Any], told: list[str]) -> None:
    plan = plan_of(changed("cu126", status=status), **words)
    assert [notice for notice in plan.notices if "fixes come from" in notice] == told


def test_another_processor_is_unproven() -> None:
    said = "no image for linux/arm64 was built or run"
    assert [said in notice for notice in plan_of("cu130", platform="arm64").notices].count(True) == 1
    assert not [notice for notice in plan_of("cu130").notices if "was built or run" in notice]


@pytest.mark.parametrize("digest", ["sha256:" + "a" * 64, None])
def test_the_digest_of_a_base_is_that_of_its_reference(digest: str | None) -> None:
    image = f"registry.example:5000/debian:12{'' if digest is None else '@' + digest}"
    base = plan_of("cpu", image=image).base
    assert (base.image, base.digest) == (image, digest)
    assert (plan_of("cpu").base.image, plan_of("cpu").base.digest) == (None, None)


def test_build_stages_start_from_an_image_of_their_own_only_if_it_is_another() -> None:
    base = PYTORCH["2.5.1-cu124"].line.base
    assert plan_of("2.5.1-cu124").base.build_image == base.build_image != base.image
    assert plan_of(changed("2.5.1-cu124", base=base.replace(build_image=base.image))).base.build_image is None


@pytest.mark.parametrize(
    ("name", "fields", "words", "budgeted"),
    [
        ("cu130", {}, {}, True),
        ("cu130", {"variant": "own"}, {}, True),
        ("cu130", {"budget": None}, {}, False),
        # The size of the line's own image says nothing of these.
        ("cu130", {}, {"with_": "compiler"}, False),
        ("cu130", {}, {"without": "metis"}, False),
        ("cu130", {}, {"platform": "arm64"}, False),
        ("2.0.1-cu121", {}, {}, False),
    ],
)
def test_a_size_budget_is_for_the_line_s_own_image(
    name: str, fields: dict[str, Any], words: dict[str, Any], budgeted: bool
) -> None:
    entry = changed(name, **{"budget": 5_000_000_000, **fields})
    budget = plan_of(entry, **words).budget
    assert (budget and (budget.bytes, budget.file)) == ((5_000_000_000, entry.file) if budgeted else None)


# ---- which component gets a locked package -----------------------------------------------------------------------


def shares(
    entry: Line, hello: ComponentFolder, packages: Mapping[str, tuple[str, ...]], provider: str
) -> dict[str, str]:
    """Return the component that each locked package belongs to; ``hello`` comes from ``provider``."""
    catalog = Catalog([entry], {**WHOLE.components, "hello": hello}, WHOLE.rules)
    request = make_request(framework="pytorch")
    draft = make_draft(request, catalog, entry)
    selections = {**draft.selections, "hello": draft.selections["hello"].replace(provider=provider)}
    locked = [
        LockedPackage(name=name, version="1", file=f"{name.replace('-', '_')}-1-py3-none-any.whl", sha256="0" * 64)
        for name in packages
    ]
    lock = Lock(
        python="3.11",
        platform="x86_64-manylinux_2_28",
        packages=tuple(each.replace(components=packages[each.name]) for each in locked),
    )
    draft = Draft(entry=entry, version=draft.version, selections=selections)
    plan = make_plan(request, catalog, draft, lock, image=None, notices=())
    names = [(s.package.partition("==")[0], c.name) for c in plan.components for s in c.sources if s.package]
    assert len(names) == len(dict(names))
    return {package: owner for package, owner in names if package in packages}


def test_the_owner_of_a_pattern_gets_a_package_else_the_first_that_needs_it(hello: ComponentFolder) -> None:
    line = PYTORCH["cu126"].line
    entry = with_hello(changed("cu126", components={**line.components, "ssh": Selection(provider="base")}))
    needed = {
        "nvidia-nccl-cu12": ("cuda", "pytorch", "nccl"),  # the longest pattern, of nvidia-* and nvidia-nccl-*
        "nvidia-cublas-cu12": ("pytorch",),
        "numpy": ("mpi4py", "pytorch"),
        "of-nobody": ("compiler",),
        "beside-the-base": ("ssh", "mpi4py"),
        "hello-lib": ("mpi4py", "hello"),
        "tool-a": ("hello",),  # by build stages alone
        "tool-b": ("mpi4py", "hello"),  # also in the image
    }
    assert shares(entry, hello, needed, "first") == {
        "nvidia-nccl-cu12": "nccl",
        "nvidia-cublas-cu12": "cuda",
        "numpy": "pytorch",
        "beside-the-base": "mpi4py",
        "hello-lib": "hello",
        "tool-a": "hello",
        "tool-b": "mpi4py",
    }


@pytest.mark.parametrize(
    ("provider", "kept"),
    [
        ("first", {"hello-lib", "hello-data", "other"}),
        ("second", {"hello-lib", "hello-data", "other"}),  # which takes them as well
        ("third", {"other"}),
    ],
)
def test_what_the_line_s_provider_installs_stays_behind_with_it(
    hello: ComponentFolder, provider: str, kept: set[str]
) -> None:
    needed = dict.fromkeys(("hello-lib", "hello-data", "other"), ("hello",))
    assert shares(with_hello(PYTORCH["cu126"]), hello, needed, provider) == dict.fromkeys(kept, "hello")
