"""The build context: all that a Dockerfile takes from it is in it, and wheels and packages of a site's folders."""

from __future__ import annotations

import errno
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from trainwright.build.context import write_context
from trainwright.catalog.catalog import load_catalog
from trainwright.core import owned
from trainwright.core.errors import BuildFailed, RequestError
from trainwright.plan.plan import Plan, PlannedSource
from trainwright.plan.plan_lock import LockedSystemPackage
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site
from trainwright.sources import apt_repository
from trainwright.sources.fetch import new_lock
from trainwright.sources.gather import gather
from trainwright.sources.inputs import Input

CATALOG = load_catalog()
GOOD = b"the right bytes"
SHA = hashlib.sha256(GOOD).hexdigest()
# A source in the context of a bind mount or of COPY, not one of another stage.
MOUNT = re.compile(r"--mount=type=bind,(?P<words>\S+)")
COPY = re.compile(r"^(?:COPY|ADD) (?:--chmod=\S+ )?(?P<names>(?!--from)\S.*) \S+$", re.MULTILINE)

pytestmark = pytest.mark.usefixtures("own_places")


def plan_of(**words: str) -> Plan:
    """A plan on an image, as contexts with a root file system take half a minute."""
    plan = resolve(make_request(framework="pytorch", **words), CATALOG)
    return plan.replace(base=plan.base.replace(image=plan.base.image or "debian:12"))


def with_python(plan: Plan, name: str, *sources: PlannedSource) -> Plan:
    """The plan, the component's Python packages being these."""
    return plan.replace(components=tuple(c.replace(sources=sources) if c.name == name else c for c in plan.components))


def context(plan: Plan, folder: Path, site: Site | None = None) -> Path:
    write_context(gather(plan, CATALOG, site or Site()), folder, say=lambda _: None)
    return folder


def names_of(dockerfile: str) -> set[str]:
    """What a Dockerfile takes from its context."""
    found: set[str] = set()
    for mount in MOUNT.finditer(dockerfile):
        words = dict(word.partition("=")[::2] for word in mount["words"].split(","))
        found |= {words["source"]} if "from" not in words else set()
    return found | {name for copy in COPY.finditer(dockerfile) for name in copy["names"].split()}


@pytest.mark.parametrize(
    "words",
    [{"cuda": "cpu"}, {"cuda": "cu124"}, {"cuda": "cu113", "version": "1.10.2"}, {"cuda": "cu126", "version": "2.6.0"}],
    ids=str,
)
def test_all_that_the_dockerfile_takes_is_there(tmp_path: Path, words: dict[str, str]) -> None:
    folder = context(plan_of(**words), tmp_path / "context")
    wanted = names_of((folder / "Dockerfile").read_text())
    assert {"apt", "tools/apt", "requirements/tools.txt", "wheels/tools"} <= wanted
    assert len([name for name in wanted if name.startswith("archives/")]) >= 1
    assert sorted(name for name in wanted if not (folder / name).exists()) == []


def test_the_root_file_system_is_where_the_dockerfile_adds_it_from(tmp_path: Path) -> None:
    tar = tmp_path / "made.tar"
    tar.write_bytes(GOOD)
    inputs = gather(plan_of(cuda="cpu"), CATALOG, Site())
    own = inputs.plan.replace(base=inputs.plan.base.replace(image=None))
    rootfs = Input("base", "root file system", PlannedSource(file="made.tar", sha256=SHA), path=tar)
    write_context(replace(inputs, plan=own, rootfs=rootfs), tmp_path / "context", say=lambda _: None)
    added = [name for name in names_of((tmp_path / "context/Dockerfile").read_text()) if name.endswith(".tar")]
    assert [(tmp_path / "context" / name).read_bytes() for name in added] == [GOOD]


def wheel(name: str = "thing", version: str = "1.0", sha256: str = SHA) -> PlannedSource:
    return PlannedSource(package=f"{name}=={version}", file=f"{name}-{version}-py3-none-any.whl", sha256=sha256)


def test_wheels_and_what_is_built_from_source_are_listed_apart_with_their_hashes(tmp_path: Path) -> None:
    source = PlannedSource(package="other==2", file="other-2.tar.gz", sha256="b" * 64)
    folder = context(with_python(plan_of(cuda="cpu"), "mpi4py", wheel(), source), tmp_path / "context")
    assert (folder / "requirements/mpi4py.txt").read_text() == f"thing===1.0 --hash=sha256:{SHA}\n"
    assert (folder / "requirements/mpi4py.source.txt").read_text() == f"other===2 --hash=sha256:{'b' * 64}\n"
    constraints = (folder / "requirements/constraints.txt").read_text().splitlines()
    assert {"thing===1.0", "other===2"} <= {*constraints}
    assert constraints == sorted(constraints)
    assert not [line for line in constraints if line.startswith("uv=")], "tools are not in the image"
    assert not (folder / "requirements/python.source.txt").exists()


def test_the_frameworks_own_index_is_asked_for_its_local_versions_unless_they_are_here(tmp_path: Path) -> None:
    plan = plan_of(cuda="cpu")
    own = plan.component("pytorch")
    assert own is not None and own.index
    local = wheel("torch", "2.13.0+cpu")
    head = f"--extra-index-url {own.index}\n"

    def listed(*sources: PlannedSource, site: Site | None = None) -> str:
        context(with_python(plan, "pytorch", *sources), tmp_path / "context", site)
        return (tmp_path / "context/requirements/pytorch.txt").read_text()

    assert listed(local, wheel()).startswith(head)
    assert not listed(wheel()).startswith("--"), "no local version"
    here = tmp_path / "wheels"
    here.mkdir()
    (here / str(local.file)).write_bytes(GOOD)
    assert not listed(local, wheel(), site=Site(find_links=(here,))).startswith("--")
    assert (tmp_path / "context/wheels/pytorch" / str(local.file)).read_bytes() == GOOD
    more = wheel("vision", "1.0+cpu", "c" * 64)
    assert listed(local, more, site=Site(find_links=(here,))).startswith(head), "one of two is here"
    # A component without an index of its own has its local versions from the site's.
    context(with_python(plan, "mpi4py", more), tmp_path / "context")
    assert (tmp_path / "context/requirements/mpi4py.txt").read_text().startswith("vision===1.0+cpu --hash")


def test_packages_of_the_sites_folder_are_a_repository_of_the_context(tmp_path: Path) -> None:
    pool = tmp_path / "site/pool"
    pool.mkdir(parents=True)
    (pool / "gcc_1-2_amd64.deb").write_bytes(GOOD)
    row = f"Package: gcc\nVersion: 1-2\nArchitecture: amd64\nSHA256: {SHA}"
    apt_repository.write_index(tmp_path / "site", "debian-12", [row])
    package = LockedSystemPackage(
        name="gcc", version="1-2", architecture="amd64", sha256=SHA, size=len(GOOD), stages=("toolchain",)
    )
    plan = plan_of(cuda="cpu")
    lock = new_lock(plan, "").replace(system=(package,))
    site = Site(apt_folder=tmp_path / "site")
    write_context(gather(plan, CATALOG, site, lock), tmp_path / "context", say=lambda _: None)
    repository = tmp_path / "context/apt/repository"
    assert (repository / "pool/gcc_1-2_amd64.deb").read_bytes() == GOOD
    index = (repository / "dists/debian-12/main/binary-amd64/Packages").read_bytes()
    assert b"Package: gcc\nVersion: 1-2\n" in index
    assert hashlib.sha256(index).hexdigest() in (repository / "dists/debian-12/Release").read_text()


def test_a_folder_of_the_user_is_left_alone_and_named_as_on_the_command_line(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "diary").write_text("dear diary")
    inputs = gather(plan_of(cuda="cpu"), CATALOG, Site())
    for named, shown in (("", str(mine)), ("--output here", "--output here")):
        with pytest.raises(RequestError) as refused:
            write_context(inputs, mine, say=lambda _: None, named=named)
        assert refused.value.message.startswith(shown)
    assert [path.name for path in mine.iterdir()] == ["diary"]


def test_a_context_that_was_cut_short_has_no_dockerfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build could not tell that the rest of the file is from another day."""
    inputs, folder = gather(plan_of(cuda="cpu"), CATALOG, Site()), tmp_path / "context"
    write_context(inputs, folder, say=lambda _: None, refresh="2026-11-24")
    written = owned.write_atomically

    def cut(path: Path, text: str) -> None:
        if path.name == "refresh":
            raise KeyboardInterrupt
        written(path, text)

    with monkeypatch.context() as patched:
        patched.setattr(owned, "write_atomically", cut)
        with pytest.raises(KeyboardInterrupt):
            write_context(inputs, folder, say=lambda _: None, refresh="2026-11-25")
    assert not (folder / "Dockerfile").exists()
    write_context(inputs, folder, say=lambda _: None, refresh="2026-11-25")
    assert (folder / "Dockerfile").is_file()


def test_a_full_disk_is_named_as_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, _: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    inputs = gather(plan_of(cuda="cpu"), CATALOG, Site())
    monkeypatch.setattr(owned, "write_atomically", full)
    for named, shown in (("", str(tmp_path / "new")), ("--output new", "--output new")):
        with pytest.raises(BuildFailed) as failed:
            write_context(inputs, tmp_path / "new", say=lambda _: None, named=named)
        assert failed.value.message.startswith(f"{shown}: the disk is full")


@pytest.mark.parametrize("names", [["train.py"], ["train.py", "more.py"]], ids=len)
def test_how_much_code_goes_into_the_image_is_told(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / "src").mkdir(exist_ok=True)
        (tmp_path / "src" / name).write_text("1\n")
    said: list[str] = []
    plan = plan_of(cuda="cpu", code=str(tmp_path / "src"), entry_point="train.py")
    write_context(gather(plan, CATALOG, Site()), tmp_path / "context", say=said.append)
    much = "1 file, 2 B" if len(names) == 1 else "2 files, 4 B"
    assert said == [f"{tmp_path / 'src'}: {much} go into /opt/ml/code"]


def test_what_apt_may_take_is_pinned_where_there_is_apt(tmp_path: Path) -> None:
    """Amazon Linux has dnf, which reads no preferences."""
    package = LockedSystemPackage(
        name="gcc", version="1-2", architecture="amd64", sha256=SHA, size=1, stages=("toolchain",)
    )
    for cuda, system, names in (
        ("cpu", (package,), {"preferences", "pins"}),
        ("cpu", None, set()),
        ("cu133", (package,), set()),
    ):
        plan = plan_of(cuda=cuda)
        inputs = replace(gather(plan, CATALOG, Site()), lock=new_lock(plan, "").replace(system=system))
        write_context(inputs, tmp_path / "context", say=lambda _: None)
        assert {path.name for path in (tmp_path / "context/apt").iterdir()} == names


@pytest.mark.parametrize("words", [{"cuda": "cpu"}, {"cuda": "cu124"}, {"cuda": "cu113", "version": "1.10.2"}])
def test_another_day_is_another_step_for_whatever_installs_packages(tmp_path, words):
    """BuildKit's key of a step has the content of what it binds from the context."""
    plan = plan_of(**words)
    inputs = gather(plan, CATALOG, Site())
    for day in (None, "2026-11-24", "2026-11-25"):
        write_context(inputs, tmp_path / str(day), say=lambda _: None, refresh=day)
    assert not [*(tmp_path / "None" / "apt").iterdir()]
    read = [(tmp_path / day / "apt" / "refresh").read_text() for day in ("2026-11-24", "2026-11-25")]
    assert read == ["2026-11-24\n", "2026-11-25\n"]
    steps = re.findall(r"^RUN (?:.*\\\n)*.*", (tmp_path / "None" / "Dockerfile").read_text(), re.MULTILINE)
    installing = [step for step in steps if "apt-install" in step]
    assert installing
    assert all("source=apt,target=/mnt/apt" in step for step in installing)
