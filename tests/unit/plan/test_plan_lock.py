"""The lock of a plan: what it must name, what it adds to a plan, and that it never changes what the plan is."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import jsonschema
import pytest

from tests.support.loopback import dead_url, status
from trainwright.build.context import write_context
from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.wheel_lock import Lock, LockedPackage
from trainwright.core.errors import RequestError, SourceError
from trainwright.core.records import MisfitError
from trainwright.lock import make
from trainwright.lock.diff import changes, document
from trainwright.plan.dockerfile import stages
from trainwright.plan.plan import Plan, PlannedSource
from trainwright.plan.plan_lock import (
    LockedBase,
    LockedPython,
    LockedSystemPackage,
    PlanLock,
    SystemPackage,
    completed,
    files_of,
    lock_path,
    save_lock,
    unlocked,
)
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site
from trainwright.sources.fetch import fetch_base, first_use, locked_archive, new_lock
from trainwright.sources.gather import gather, gather_locked
from trainwright.sources.inputs import Inputs

CATALOG = load_catalog()
SCHEMAS = Path(__file__).resolve().parents[3] / "trainwright" / "schemas"
GOOD = b"nobody publishes the checksum of this"
SHA = hashlib.sha256(GOOD).hexdigest()
DIGEST = "sha256:" + "d" * 64
FILE = "gadget-1.0.tar.gz"
FLAGS = "--framework pytorch --cuda cpu"


def quiet(_: str) -> None:
    """Nobody listens."""


pytestmark = pytest.mark.usefixtures("own_places")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(locks=tmp_path / "locks")


def plan_with(*urls: str, image: str | None = None, **request: str) -> Plan:
    """The CPU plan, METIS of it from these places and without a checksum, and on an image where one is named."""
    plan = resolve(make_request(framework="pytorch", cuda="cpu", **request), CATALOG)
    source = PlannedSource(file=FILE, url=urls[0], mirrors=urls[1:], sha256=None) if urls else None
    components = tuple(
        c.replace(sources=(source,), provider="source") if source and c.name == "metis" else c for c in plan.components
    )
    base = plan.base.replace(image=image)
    return plan.replace(components=components, base=base)


def whole(plan: Plan) -> PlanLock:
    """A lock with everything in it, as `lock` writes one."""
    lock = new_lock(plan, FLAGS)
    files = [(c.name, s) for c in plan.components for s in files_of(c)]
    base = LockedBase(kind="debian", os="debian-12", sha256="b" * 64, size=1, packages=(system("libc6"),))
    if plan.base.image:
        base = LockedBase(kind="debian", os="debian-12", image=plan.base.image, digest=DIGEST, image_id=DIGEST)
    return lock.replace(
        base=base,
        archives=tuple(locked_archive(n, s, s.sha256 or SHA, s.size) for n, s in files),
        python=make.plan_python(plan),
        system=(LockedSystemPackage(**system("gcc").as_json(), sha256="c" * 64, size=1, stages=("toolchain",)),),
        tools=(python("uv", "1", "tools"),),
    )


def system(name: str) -> SystemPackage:
    return SystemPackage(name=name, version="1-2", architecture="amd64")


def python(name: str, version: str, component: str) -> LockedPython:
    file = f"{name}-{version}-py3-none-any.whl"
    return LockedPython(name=name, version=version, file=file, sha256="e" * 64, component=component)


def test_a_completed_plan_is_the_same_plan(server):
    plan = plan_with(f"{server.url}/t", image="registry.example/base:1")
    done = completed(plan, whole(plan))
    assert (done.id, done.labels, done.tags) == (plan.id, plan.labels, plan.tags)
    assert done.base.digest == DIGEST
    metis = done.component("metis")
    assert metis is not None and metis.archives[0].sha256 == SHA
    text = render_dockerfile(done, CATALOG)
    assert f"ARG BASE_IMAGE=registry.example/base:1@{DIGEST}" in text
    assert f" fetch {FILE} {SHA} " in text
    # Where nothing is missing, nothing changes.
    plain = plan_with()
    assert completed(plain, whole(plain)) == plain


def test_a_lock_survives_its_file(tmp_path, server):
    lock = whole(plan_with(f"{server.url}/t"))
    save_lock(lock, tmp_path / "a.lock.json")
    assert PlanLock.load(tmp_path / "a.lock.json") == lock
    schema = json.loads((SCHEMAS / "plan-lock.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads(lock.dump()))


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "trainwright/lock/1"}', "{}"])
def test_what_is_no_lock_is_refused(tmp_path, text):
    (tmp_path / "a.lock.json").write_text(text)
    with pytest.raises(RequestError):
        PlanLock.load(tmp_path / "a.lock.json")
    with pytest.raises(RequestError, match="no such file"):
        PlanLock.load(tmp_path / "none")


def test_a_lock_of_another_plan_completes_nothing(site):
    plan, other = plan_with(), plan_with(without="metis")
    with pytest.raises(RequestError, match="cannot complete"):
        completed(plan, whole(other))
    save_lock(whole(other), lock_path(plan, site))
    with pytest.raises(RequestError, match="is the lock of plan"):
        gather_locked(plan, CATALOG, site, FLAGS, strict=False)


def test_an_edited_checksum_is_refused():
    plan = plan_with()
    lock = whole(plan)
    wrong = tuple(a.replace(sha256="0" * 64) for a in lock.archives)
    assert wrong, "Debian's METIS is such a file"
    with pytest.raises(RequestError, match="another sha256 for metis"):
        completed(plan, lock.replace(archives=wrong))


@pytest.mark.parametrize(
    ("update", "words"),
    [
        ({"base": None}, "the base"),
        ({"base": LockedBase(kind="debian", os="debian-12")}, "the root file system"),
        ({"archives": ()}, f"metis: {FILE}"),
        ({"python": None}, "pytorch: torch==2.13.0+cpu"),
        ({"system": None}, "the distribution's packages"),
        ({"tools": None}, "the tools"),
        ({"user": None}, "--with-requirements"),
    ],
)
def test_locked_refuses_whatever_is_missing(tmp_path, site, server, update, words):
    (tmp_path / "requirements.txt").write_text("toolz\n")
    plan = plan_with(f"{server.url}/t", requirements=str(tmp_path / "requirements.txt"))
    lock = whole(plan).replace(user=(python("toolz", "1", "user"),))
    assert unlocked(plan, lock) == []
    save_lock(lock.replace(**update), lock_path(plan, site))
    with pytest.raises(RequestError) as refused:
        gather_locked(plan, CATALOG, site, FLAGS, strict=True)
    assert refused.value.exit_code == 2
    assert words in refused.value.message
    assert refused.value.remedy == f"./invoke lock {FLAGS}"
    gather_locked(plan, CATALOG, site, FLAGS, strict=False)  # without --locked what is there is used


@pytest.mark.parametrize("update", [{"digest": None, "image_id": None}, {"image_id": None}, {"digest": None}])
def test_an_image_is_pinned_by_its_digest_or_its_id(update):
    plan = plan_with(image="registry.example/base:1")
    lock = whole(plan)
    assert lock.base is not None
    pinned = lock.replace(base=lock.base.replace(**update))
    assert bool(unlocked(plan, pinned)) == (len(update) == 2)


def test_locked_without_a_lock_names_the_command(site):
    with pytest.raises(RequestError, match="no lock of this plan") as refused:
        gather_locked(plan_with(), CATALOG, site, FLAGS, strict=True)
    assert refused.value.remedy == f"./invoke lock {FLAGS}"


# ---- first use -------------------------------------------------------------------------------------------------------


def kept(inputs: Inputs) -> Path:
    """Where the archive of METIS is."""
    (metis,) = inputs.archives
    assert metis.path is not None
    return metis.path


def test_first_use_records_the_checksum_and_keeps_the_file(server, site):
    server.pages = {f"/{FILE}": GOOD}
    plan = plan_with(f"{dead_url()}/{FILE}", f"{server.url}/{FILE}")
    used = first_use(gather(plan, CATALOG, site), say=quiet)
    assert kept(used).read_bytes() == GOOD
    lock = PlanLock.load(lock_path(plan, site))
    assert [(a.component, a.file, a.sha256, a.size) for a in lock.archives] == [("metis", FILE, SHA, len(GOOD))]
    assert (lock.base, lock.python, lock.system) == (None, None, None)
    # Not fetched again, in this run or the next.
    server.pages.clear()
    again = first_use(gather_locked(plan, CATALOG, site, FLAGS, strict=False), say=quiet)
    assert again.archives == used.archives
    assert again.plan == used.plan
    assert len(server.asked) == 1


def test_first_use_where_no_place_has_it_ends_with_8_and_records_nothing(server, site):
    server.pages = {f"/{FILE}": status(503)}
    plan = plan_with(f"{dead_url()}/{FILE}", f"{server.url}/{FILE}")
    with pytest.raises(SourceError) as refused:
        first_use(gather(plan, CATALOG, site), say=quiet)
    assert refused.value.exit_code == 8
    assert refused.value.details["component"] == "metis"
    assert len(refused.value.details["urls"]) == 2
    assert not lock_path(plan, site).exists()


def test_first_use_takes_what_lies_in_the_folder(site, tmp_path):
    folder = tmp_path / "archives"
    folder.mkdir()
    (folder / FILE).write_bytes(GOOD)
    plan = plan_with(f"{dead_url()}/{FILE}")
    used = first_use(gather(plan, CATALOG, site.replace(artifact_folder=folder)), say=quiet)
    assert used.lock is not None and used.lock.archives[0].sha256 == SHA
    assert kept(used).read_bytes() == GOOD


def test_a_kept_file_that_changed_is_not_used(server, site):
    server.pages = {f"/{FILE}": GOOD}
    plan = plan_with(f"{server.url}/{FILE}")
    used = first_use(gather(plan, CATALOG, site), say=quiet)
    kept(used).write_bytes(b"else")
    (metis,) = gather_locked(plan, CATALOG, site, FLAGS, strict=False).archives
    assert metis.path is None and metis.wrong


# ---- the build context -----------------------------------------------------------------------------------------------


@pytest.fixture
def no_base(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Contexts without a root file system of half a minute."""
    (tmp_path / "rootfs.tar").write_bytes(b"")
    monkeypatch.setattr("trainwright.sources.fetch.locked_rootfs", lambda *_, **__: tmp_path / "rootfs.tar")


@pytest.mark.usefixtures("no_base")
def test_the_context_holds_what_the_lock_names(server, site, tmp_path):
    server.pages = {f"/{FILE}": GOOD}
    (tmp_path / "requirements.txt").write_text("toolz\n")
    plan = plan_with(f"{server.url}/{FILE}", requirements=str(tmp_path / "requirements.txt"))
    first_use(gather(plan, CATALOG, site), say=quiet)
    lock = whole(plan).replace(user=(python("toolz", "1.1", "user"),))
    folder = tmp_path / "context"
    write_context(fetch_base(gather(plan, CATALOG, site, lock, strict=True), say=quiet), folder, say=quiet)
    assert (folder / "archives" / "metis" / FILE).read_bytes() == GOOD
    assert (folder / "requirements/user.txt").read_text() == f"toolz===1.1 --hash=sha256:{'e' * 64}\n"
    assert (folder / "requirements/tools.txt").read_text() == f"uv===1 --hash=sha256:{'e' * 64}\n"
    pins = (folder / "apt/preferences").read_text()
    assert "Package: gcc\nPin: version 1-2\nPin-Priority: 995\n" in pins
    assert "Package: libc6\n" in pins
    assert pins.endswith("Package: *\nPin: release *\nPin-Priority: -1\n")
    assert "Package: *" not in (folder / "apt/pins").read_text()
    text = (folder / "Dockerfile").read_text()
    (user,) = [stage for stage in stages(text) if stage.name == "user-layer"]
    assert "--require-hashes" in user.instructions[0] and "--constraints" not in text
    # Without --locked the versions are preferred and nothing is forbidden.
    write_context(fetch_base(gather(plan, CATALOG, site, lock), say=quiet), folder, say=quiet)
    assert "Package: *" not in (folder / "apt/preferences").read_text()


@pytest.mark.usefixtures("no_base")
def test_a_fresh_base_and_a_locked_one_do_not_go_together(site):
    plan = plan_with()
    with pytest.raises(RequestError, match="pins the base") as refused:
        fetch_base(gather(plan, CATALOG, site, whole(plan)), fresh=True, say=quiet)
    assert refused.value.remedy.endswith("--upgrade base")


# ---- upgrades --------------------------------------------------------------------------------------------------------


class Index:
    """Stands in for uv: what is asked, and an answer with one package in a newer version."""

    def __init__(self, *newer: tuple[str, str], more: tuple[str, ...] = ()) -> None:
        self.newer, self.more = dict(newer), more
        self.constraints: list[str] = []

    def __call__(self, _, constraints, python_version, platform, **__) -> Lock:
        self.constraints = list(constraints)
        held = {c.partition("===")[0]: c.partition("===")[2] for c in constraints if "===" in c}
        names = {**held, **self.newer, **dict.fromkeys(self.more, "1.0")}
        packages = tuple(
            LockedPackage(name=n, version=v, file=f"{n}-{v}-py3-none-any.whl", sha256="a" * 64, size=1)
            for n, v in names.items()
        )
        return Lock(python=python_version, platform=platform, packages=packages)


def test_one_python_package_is_taken_anew_and_the_rest_stays(monkeypatch, site):
    plan = plan_with()
    lock = whole(plan)
    index = Index(("urllib3", "99.0"), more=("brand-new",))
    monkeypatch.setattr(make, "resolve_lock", index)
    made = make._python(lock, gather(plan, CATALOG, site), {"urllib3"}, say=quiet)
    assert not any(c.startswith("urllib3=") for c in index.constraints)
    assert sum("===" in c for c in index.constraints) == len(lock.python or ()) - 1
    rows = {(row.name, row.state) for row in changes(lock, made) if row.now and "99.0" in row.now}
    assert rows == {("urllib3", "changed")}
    new = next(p for p in made.python or () if p.name == "brand-new")
    assert new.component == next(p for p in made.python or () if p.name == "urllib3").component
    component = completed(plan, made).component(new.component)
    assert component is not None
    assert "urllib3==99.0" in {s.package for s in component.sources}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torch", "the image line's"),
        ("ssh", "published"),
        ("urlib3", "urllib3"),
        ("nonsense", "not in the lock"),
    ],
)
def test_what_cannot_be_upgraded_says_why(site, name, words):
    plan = plan_with()
    with pytest.raises(RequestError, match=words):
        make._check_names({name}, plan, whole(plan))


def test_a_package_of_the_users_is_resolved_within_the_plan(monkeypatch, site, tmp_path):
    (tmp_path / "requirements.txt").write_text("toolz\n")
    plan = plan_with(requirements=str(tmp_path / "requirements.txt"))
    index, inputs = Index(("toolz", "2.0"), ("heavy", "3.0")), gather(plan, CATALOG, site)
    monkeypatch.setattr(make, "resolve_lock", index)
    made = make._python(new_lock(plan, FLAGS), inputs, set(), say=quiet)
    assert [(p.name, p.version) for p in made.user or ()] == [("heavy", "3.0"), ("toolz", "2.0")]
    assert "torch===2.13.0+cpu" in index.constraints
    index.newer["toolz"] = "2.1"
    again = make._python(made, inputs, {"toolz"}, say=quiet)
    assert "heavy===3.0" in index.constraints and "toolz===2.0" not in index.constraints
    assert ("toolz", "2.1") in [(p.name, p.version) for p in again.user or ()]


def test_what_a_finished_build_holds_beyond_its_base_is_asked_for(monkeypatch):
    class Record:
        plan = plan_with()
        probe = {"packages": {"libc6": "1-2", "gcc": "9", "pciutils": "3", "libfabric-aws": "1"}}

    monkeypatch.setattr(make, "all_records", lambda: [Record])
    lock = whole(Record.plan)
    # What is in the base is not asked for; what is locked keeps its version.
    assert make._fetched_by_installers(Record.plan, lock) == {
        "gcc": "1-2",
        "pciutils": "3",
        "libfabric-aws": "1",
    }
    assert make._fetched_by_installers(plan_with(without="metis"), lock) == {}


def test_changes_name_what_is_new_and_what_went(server):
    plan = plan_with(f"{server.url}/t")
    lock = whole(plan)
    assert changes(lock, lock) == []
    assert {row.state for row in changes(None, lock)} == {"new"}
    rows = changes(lock, lock.replace(system=()))
    assert [(row.kind, row.name, row.state) for row in rows] == [("package", "gcc:amd64", "removed")]
    assert document(plan, Path("x"), rows).faults == 0


def test_a_lock_names_every_file_and_image_that_a_mirror_needs():
    """``mirror pull`` fetches ``python_files``; ``build --locked`` takes the images by ``ids``."""
    lock = whole(plan_with()).replace(user=(python("toolz", "1", "user"),))
    assert lock.python
    assert lock.python_files == (*lock.python, python("toolz", "1", "user"), python("uv", "1", "tools"))
    nothing = lock.replace(python=None, user=None, tools=None)
    assert nothing.python_files == ()
    assert lock.replace(python=None, user=None).python_files == (python("uv", "1", "tools"),)
    other = "sha256:" + "c" * 64
    base = LockedBase(kind="nvidia", os="ubuntu-22.04", image="a:1", digest=DIGEST, image_id=other)
    base = base.replace(build_image="b:1", build_digest=other)
    assert base.ids == {"BASE_IMAGE": other, "BUILD_IMAGE": None}
    assert base.replace(build_image_id=DIGEST).ids["BUILD_IMAGE"] == DIGEST
    made = base.as_base()
    assert (made.kind, made.os, made.image, made.digest) == ("nvidia", "ubuntu-22.04", "a:1", DIGEST)
    assert (made.build_image, made.build_digest) == ("b:1", other)


def test_both_images_of_a_plan_get_their_digests():
    plan = plan_with(image="registry.example/base:1")
    plan = plan.replace(base=plan.base.replace(build_image="registry.example/build:1"))
    other = "sha256:" + "c" * 64
    lock = whole(plan)
    assert lock.base is not None
    done = completed(plan, lock.replace(base=lock.base.replace(build_digest=other)))
    assert (done.base.digest, done.base.build_digest) == (DIGEST, other)
    assert (done.base.image, done.base.build_image) == ("registry.example/base:1", "registry.example/build:1")


def test_a_root_file_system_is_of_a_known_suite_and_an_image_of_any():
    with pytest.raises(MisfitError, match="debian-99"):
        LockedBase(kind="debian", os="debian-99", sha256="b" * 64)
    assert LockedBase(kind="nvidia", os="ubuntu-22.04", image="a:1").os == "ubuntu-22.04"


def test_a_size_that_the_plan_knows_stays():
    plan = plan_with("https://example.com/t")
    lock = whole(plan)
    (held,) = [a for a in lock.archives if a.component == "metis"]
    lock = lock.replace(archives=tuple(a.replace(size=7) if a is held else a for a in lock.archives))

    def size(of: Plan) -> int | None:
        metis = completed(of, lock).component("metis")
        assert metis is not None
        return metis.sources[0].size

    assert size(plan) == 7
    known = tuple(
        c.replace(sources=(c.sources[0].replace(size=5),)) if c.name == "metis" else c for c in plan.components
    )
    assert size(plan.replace(components=known)) == 5
