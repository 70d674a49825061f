"""Where the bytes are: every kind of input at every kind of place, what is wrong there, and who may look at all."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trainwright
from tests.support.examples import some
from trainwright.build.context import write_context
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import RequestError, SourceError
from trainwright.plan.plan import Plan, PlannedSource
from trainwright.plan.plan_lock import LockedBase, LockedPython, LockedSystemPackage, PlanLock, lock_path, save_lock
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site
from trainwright.sources import apt_repository
from trainwright.sources.fetch import locked_archive, new_lock
from trainwright.sources.gather import gather, gather_lock, gather_locked, with_lock
from trainwright.sources.inputs import Input, Inputs
from trainwright.sources.locations import store
from trainwright.sources.reachability import check_folders

CATALOG = load_catalog()
GOOD = b"the right bytes"
SHA = hashlib.sha256(GOOD).hexdigest()
BAD = hashlib.sha256(b"else").hexdigest()
FILE = "thing-1.0.tar.gz"
WHEEL = "thing-1.0-py3-none-any.whl"
ID = "sha256:" + "1" * 64

pytestmark = pytest.mark.usefixtures("own_places")


def quiet(_: str) -> None:
    """Nobody listens."""


def plan_with(*sources: PlannedSource, image: str | None = "debian:12", **request: str) -> Plan:
    """The CPU plan, METIS of it from these sources, on an image."""
    plan = resolve(make_request(framework="pytorch", cuda="cpu", **request), CATALOG)
    components = tuple(c.replace(sources=sources) if sources and c.name == "metis" else c for c in plan.components)
    return plan.replace(components=components, base=plan.base.replace(image=image))


def archive(sha256: str | None = SHA) -> PlannedSource:
    return PlannedSource(file=FILE, url="https://up.example/t", mirrors=("https://m.example/t",), sha256=sha256)


def wheel() -> PlannedSource:
    return PlannedSource(package="thing==1.0", file=WHEEL, sha256=SHA)


def put(path: Path, content: bytes = GOOD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def metis(plan: Plan, site: Site, lock: PlanLock | None = None) -> Input:
    inputs = gather(plan, CATALOG, site, lock)
    (found,) = [each for each in (*inputs.archives, *inputs.python) if each.owner == "metis"]
    return found


# ---- archives --------------------------------------------------------------------------------------------------------


def test_an_archive_is_looked_for_in_the_folder_then_on_the_mirror_then_upstream(tmp_path):
    site = Site(artifact_folder=tmp_path, artifact_mirror="https://me:s3cret@mine.example/a/")
    found = metis(plan_with(archive()), site)
    assert [(place.where, place.address) for place in found.places] == [
        ("folder", str(tmp_path / SHA[:2] / SHA / FILE)),
        ("folder", str(tmp_path / FILE)),
        ("mirror", f"https://me:s3cret@mine.example/a/{SHA[:2]}/{SHA}/{FILE}"),
        ("mirror", f"https://me:s3cret@mine.example/a/{FILE}"),
        ("upstream", "https://up.example/t"),
        ("upstream", "https://m.example/t"),
    ]
    assert (found.kind, found.file, found.sha256, found.path) == ("archive", FILE, SHA, None)


@pytest.mark.parametrize("layout", [f"{SHA[:2]}/{SHA}/{FILE}", FILE])
def test_an_archive_of_the_folder_is_there_in_either_layout(tmp_path, layout):
    path = put(tmp_path / "folder" / layout)
    assert metis(plan_with(archive()), Site(artifact_folder=tmp_path / "folder")).path == path
    assert metis(plan_with(archive()), Site()).path is None
    assert metis(plan_with(archive()), Site(artifact_folder=tmp_path)).path is None


def test_a_wrong_archive_is_passed_over_with_a_note(tmp_path):
    wrong = put(tmp_path / SHA[:2] / SHA / FILE, b"else")
    site = Site(artifact_folder=tmp_path)
    found = metis(plan_with(archive()), site)
    assert found.path is None
    assert found.notes == [f"{wrong} is ignored: its sha256 is {BAD}, expected {SHA}"]
    assert found.absent == {str(wrong): f"has the sha256 {BAD}", str(tmp_path / FILE): "no such file"}
    right = put(tmp_path / FILE)
    found = metis(plan_with(archive()), site)
    assert (found.path, len(found.notes)) == (right, 1)


def test_the_store_has_what_nobody_publishes_a_checksum_of_and_nothing_else(tmp_path):
    path = put(store().path(FILE, SHA))
    lock = new_lock(plan_with(archive(None)), "")
    lock = lock.replace(archives=(locked_archive("metis", archive(), SHA, None),))
    assert metis(plan_with(archive(None)), Site(), lock).path == path
    assert metis(plan_with(archive()), Site()).path is None, "a build step fetches it, so that its cache stays"
    # A mirror takes whatever is here.
    base = LockedBase(kind="debian", os="debian-12", sha256="b" * 64)
    assert [each.path for each in gather_lock(lock, base, Site()).archives] == [path]
    path.write_bytes(b"else")
    changed = metis(plan_with(archive(None)), Site(), lock)
    assert (changed.path, changed.wrong) == (None, {str(path): BAD})


def test_what_has_no_checksum_is_whatever_the_folder_has(tmp_path):
    path = put(tmp_path / FILE, b"anything")
    assert metis(plan_with(archive(None)), Site(artifact_folder=tmp_path)).path == path


def test_what_apt_brings_has_no_url_to_be_asked(tmp_path):
    source = PlannedSource(package="metis", file=FILE, sha256=SHA)
    found = metis(plan_with(source), Site(artifact_mirror="https://mine.example", artifact_folder=tmp_path))
    assert found.urls == ()
    assert put(tmp_path / FILE) == metis(plan_with(source), Site(artifact_folder=tmp_path)).path


# ---- Python packages -------------------------------------------------------------------------------------------------


def test_a_wheel_is_looked_for_in_folders_then_in_indexes(tmp_path):
    site = Site(
        find_links=(tmp_path / "w",),
        index_url="https://one.example/simple",
        extra_index_urls=("https://two.example/simple",),
        find_links_urls=("https://page.example",),
    )
    found = metis(plan_with(wheel()), site)
    assert [place.address for place in found.places] == [
        str(tmp_path / "w" / WHEEL),
        "https://one.example/simple",
        "https://two.example/simple",
        "https://page.example",
    ]
    assert metis(plan_with(wheel()), site.replace(no_index=True)).indexes == ("https://page.example",)
    own = gather(plan_with(), CATALOG, Site()).plan.component("pytorch")
    (torch,) = [p for p in gather(plan_with(), CATALOG, Site()).python if p.source.package == "torch==2.13.0+cpu"]
    assert own is not None and own.index
    assert [(place.where, place.address) for place in torch.places] == [("line index", own.index)]


@pytest.mark.parametrize("place", ["find_links", "local_indexes", "a page of an index"])
def test_a_wheel_of_this_machine_is_there(tmp_path, place):
    path = put(tmp_path / ("thing" if place == "local_indexes" else "files") / WHEEL)
    if place == "find_links":
        site = Site(find_links=(tmp_path / "none", path.parent))
    else:
        site = Site(local_indexes=(tmp_path,))
    if place == "a page of an index":
        put(tmp_path / "thing" / "index.html", f'<a href="../files/{WHEEL}#sha256=00">x</a>'.encode())
    found = metis(plan_with(wheel()), site).path
    assert found is not None and found.resolve() == path


def test_a_wrong_wheel_stops_the_context_unless_another_is_right(tmp_path):
    put(tmp_path / "one" / WHEEL, b"else")
    site = Site(find_links=(tmp_path / "one", tmp_path / "two"))
    inputs = gather(plan_with(wheel()), CATALOG, site)  # who does not need the wheel is not kept from anything
    with pytest.raises(SourceError, match=rf"{WHEEL} has the sha256 {BAD}, expected {SHA}") as refused:
        write_context(inputs, tmp_path / "context", say=quiet)
    assert refused.value.exit_code == 8
    assert "lock again" in refused.value.remedy
    right = put(tmp_path / "two" / WHEEL)
    write_context(gather(plan_with(wheel()), CATALOG, site), tmp_path / "context", say=quiet)
    assert (tmp_path / "context" / "wheels" / "metis" / WHEEL).read_bytes() == right.read_bytes()


def test_a_hash_is_taken_once_until_the_file_changes(tmp_path, monkeypatch):
    path = put(tmp_path / WHEEL)
    plan, site = plan_with(wheel()), Site(find_links=(tmp_path,))
    taken, real = [], hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda file, name: taken.append(file.name) or real(file, name))
    for _ in range(3):
        assert metis(plan, site).path == path
    assert taken.count(str(path)) == 1
    path.write_bytes(b"22")
    assert metis(plan, site).path is None
    assert taken.count(str(path)) == 2


def test_the_tools_are_those_of_the_lock_or_of_this_release():
    plan = plan_with()
    tools = [p for p in gather(plan, CATALOG, Site()).python if p.owner == "tools"]
    assert "uv" in {str(p.source.package).partition("==")[0] for p in tools}
    locked = LockedPython(name="uv", version="1", file="uv-1-py3-none-any.whl", sha256=SHA, component="tools")
    lock = new_lock(plan, "").replace(tools=(locked,))
    assert [p.file for p in gather(plan, CATALOG, Site(), lock).python if p.owner == "tools"] == [locked.file]


# ---- the base, the distribution, folders -----------------------------------------------------------------------------


def test_a_base_image_is_named_as_it_is_pulled_here(tmp_path):
    plan = plan_with(image="debian:12")
    site = Site(registries={"docker.io": "mirror.example/hub"}, image_folder=tmp_path)
    (image,) = gather(plan, CATALOG, site).images
    assert (image.argument, image.name, image.pinned) == (
        "BASE_IMAGE",
        "debian:12",
        "mirror.example/hub/library/debian:12",
    )
    assert image.path is None, "no lock, so the folder is not looked at"
    base = LockedBase(kind="debian", os="debian-12", image="debian:12", digest=ID, image_id=ID)
    lock = new_lock(plan, "").replace(base=base)
    inputs = gather(plan, CATALOG, site, lock)
    (image,) = inputs.images
    assert image.pinned == f"mirror.example/hub/library/debian:12@{ID}"
    assert image.path == tmp_path / f"{'1' * 64}.tar"
    assert inputs.rootfs is None


@pytest.mark.parametrize("place", ["folder", "store"])
def test_the_root_file_system_of_a_lock_is_found(tmp_path, place):
    folder = tmp_path / "archives"
    path = put(store().path("rootfs.tar", SHA) if place == "store" else folder / SHA[:2] / SHA / "rootfs.tar")
    plan = plan_with(image=None)
    lock = new_lock(plan, "").replace(base=LockedBase(kind="debian", os="debian-12", sha256=SHA))
    site = Site(artifact_folder=folder, artifact_mirror="https://mine.example")
    found = gather(plan, CATALOG, site, lock).rootfs
    assert found is not None
    assert (found.owner, found.path) == ("base", path)
    assert found.urls[-1] == "https://mine.example/rootfs.tar"
    unlocked = gather(plan, CATALOG, site).rootfs
    assert unlocked is not None and (unlocked.path, unlocked.places) == (None, ())


def system(sha256: str = SHA) -> LockedSystemPackage:
    return LockedSystemPackage(
        name="gcc", version="1-2", architecture="amd64", sha256=sha256, size=1, stages=("toolchain",)
    )


@pytest.mark.parametrize("how", ["right", "missing", "changed", "not in the index"])
def test_a_package_of_the_distribution(tmp_path, how):
    plan = plan_with()
    lock = new_lock(plan, "").replace(system=(system(),))
    (elsewhere,) = gather(plan, CATALOG, Site(apt_mirror="https://apt.example/debian"), lock).packages
    assert [place.address for place in elsewhere.places] == ["https://apt.example/debian"]
    if how != "missing":
        put(tmp_path / "pool" / "gcc_1-2_amd64.deb", b"else" if how == "changed" else GOOD)
    rows = "" if how == "not in the index" else f"Package: gcc\nVersion: 1-2\nArchitecture: amd64\nSHA256: {SHA}"
    apt_repository.write_index(tmp_path, "debian-12", [rows] if rows else [])
    inputs = gather(plan, CATALOG, Site(apt_folder=tmp_path), lock)
    index, found = inputs.packages
    assert (index.kind, found.owner, found.source.package) == ("package index", "toolchain", "gcc=1-2")
    assert (found.path is not None) == (how == "right")
    if how != "right":
        with pytest.raises(SourceError, match=r"toolchain: gcc_1-2_amd64\.deb not found"):
            write_context(inputs, tmp_path / "context", say=quiet)


def test_files_of_folders_are_named_with_their_owner(tmp_path):
    put(tmp_path / "src" / "train.py")
    plan = plan_with(code=str(tmp_path / "src"), entry_point="train.py")
    files = {(each.owner, each.kind, each.file): each for each in gather(plan, CATALOG, Site()).files}
    assert files["user", "user file", "train.py"].path == tmp_path / "src" / "train.py"
    assert files["user", "user file", "train.py"].source.size == len(GOOD)
    assert {kind for owner, kind, _ in files if owner != "user"} == {"component file"}


# ---- locks -----------------------------------------------------------------------------------------------------------


def test_locked_takes_nothing_that_the_lock_does_not_name(tmp_path):
    site, plan = Site(locks=tmp_path), plan_with(archive(None))
    with pytest.raises(RequestError, match="no lock of this plan"):
        gather_locked(plan, CATALOG, site, "--framework x", strict=True)
    lock = new_lock(plan, "").replace(archives=(locked_archive("metis", archive(), SHA, None),))
    save_lock(lock, lock_path(plan, site))
    with pytest.raises(RequestError, match="the tools that build the image"):
        gather_locked(plan, CATALOG, site, "--framework x", strict=True)
    inputs = gather_locked(plan, CATALOG, site, "--framework x", strict=False)
    assert (inputs.lock, inputs.strict, inputs.flags) == (lock, False, "--framework x")
    assert [each.sha256 for each in inputs.archives] == [SHA]
    assert [each.sha256 for each in with_lock(inputs, None).archives] == [None]


def cut_off(*folders: Path) -> Site:
    (archives, wheels) = folders
    return Site(no_index=True, build_network="none", artifact_folder=archives, find_links=(wheels,))


def test_a_site_without_a_network_has_to_have_every_file(tmp_path):
    site = cut_off(tmp_path / "a", tmp_path / "w")
    plan = plan_with(archive(), wheel())
    components = tuple(c for c in plan.components if c.name == "metis")
    plan = plan.replace(components=components)

    def refused() -> SourceError:
        with pytest.raises(SourceError) as failed:
            check_folders(gather(plan, CATALOG, site))
        assert failed.value.exit_code == 8
        return failed.value

    assert refused().details["file"] == FILE
    put(tmp_path / "a" / FILE)
    assert refused().details["urls"] == [str(tmp_path / "w" / WHEEL)]
    put(tmp_path / "w" / WHEEL, b"else")
    assert f"{tmp_path / 'w' / WHEEL}: has the sha256 {BAD}" in refused().message
    put(tmp_path / "w" / WHEEL)
    check_folders(gather(plan, CATALOG, site))
    # Where there is a network, nobody is asked for a folder.
    put(tmp_path / "w" / WHEEL, b"else")
    check_folders(gather(plan, CATALOG, Site(find_links=(tmp_path / "w",))))


# ---- any folder ------------------------------------------------------------------------------------------------------

LAYOUTS = st.sampled_from(["missing", "right", "wrong", "empty", "a folder"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=some(100), deadline=None)
@given(first=LAYOUTS, second=LAYOUTS)
def test_of_any_folder_only_the_right_bytes_are_taken(tmp_path_factory, first, second):
    folder = tmp_path_factory.mktemp("folder")
    paths = (folder / SHA[:2] / SHA / FILE, folder / FILE)
    for path, how in zip(paths, (first, second), strict=True):
        if how == "a folder":
            path.mkdir(parents=True)
        elif how != "missing":
            put(path, {"right": GOOD, "wrong": b"else", "empty": b""}[how])
    found = metis(ANY, Site(artifact_folder=folder))
    expected = next((path for path, how in zip(paths, (first, second), strict=True) if how == "right"), None)
    assert found.path == expected
    assert all(hashlib.sha256(Path(path).read_bytes()).hexdigest() == it != SHA for path, it in found.wrong.items())
    if expected is None:
        assert len(found.wrong) == sum(how in ("wrong", "empty") for how in (first, second))
        assert list(found.absent) == [str(path) for path in paths]


ANY = plan_with(archive())


# ---- who may look ----------------------------------------------------------------------------------------------------

READERS = (
    *("build/build.py", "build/context.py", "lock/diff.py", "lock/make.py", "lock/mirror.py"),
    *("prove/system_check.py", "sources/failures.py", "sources/reachability.py"),
)
# What looks for bytes on this machine, or knows where they would be.
LOOKING = {
    *("tools_lock", "component_files", "code_files", "user_requirements", "images_of", "mirrored", "places"),
    *("on_mirror", "local_files", "gathered", "find_lock", "artifact_folder", "find_links"),
    *("local_indexes", "apt_folder", "artifact_mirror"),
}


def looked_for(source: str) -> set[str]:
    """The names of a module that look for bytes."""
    names = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    names |= {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    return names & LOOKING


@pytest.mark.parametrize("module", READERS)
def test_whoever_needs_bytes_reads_the_record(module):
    text = (Path(trainwright.__file__).parent / module).read_text()
    # Of a source the places of the record; of a failed registry the name of the image in it.
    assert looked_for(text) - ({"places"} if module == "sources/reachability.py" else set()) == set()


@pytest.mark.parametrize("call", ["site.local_files(name)", "tools_lock(python)", "locations.places(source, site)"])
def test_a_look_of_its_own_is_found(call):
    assert looked_for(f"def f():\n    return {call}")


def test_the_record_is_frozen():
    inputs = gather(ANY, CATALOG, Site())
    assert isinstance(inputs, Inputs)
    for record in (inputs, next(iter(inputs))):
        with pytest.raises(AttributeError):
            record.lock = None  # type: ignore[misc]
