"""Which lines are stale and why: each cause by itself, from records, locks, plans and a database."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.build_records import record_of
from tests.support.documents import validated
from tests.support.in_process import call
from tests.support.osv import database
from trainwright.build import store
from trainwright.build.store import BuildRecord
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import RequestError
from trainwright.fresh.archive_today import NewerPackage
from trainwright.fresh.documents import FreshDocument
from trainwright.fresh.fresh import Questions, look, read_age
from trainwright.fresh.images import built_here
from trainwright.lock.diff import row
from trainwright.pipeline.images import ChosenImage, choose
from trainwright.plan.plan_lock import LockedBase, LockedPython, LockedSystemPackage, PlanLock, lock_path, save_lock
from trainwright.scan.documents import Vulnerability
from trainwright.site.site import Site
from trainwright.verbs.fresh import stale_lines

pytestmark = pytest.mark.usefixtures("own_places")

NAME = "pytorch-2.6.0-cu124-debian"
EXTENDED = "pytorch-2.13.0-cu130-nvidia"  # starts from an image of a registry
NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
DIGESTS = [f"sha256:{letter * 64}" for letter in "ab"]


def chosen(name: str = NAME) -> ChosenImage:
    (image,) = choose(name, load_catalog(), Site())
    return image


def built(image: ChosenImage, number: int = 1, **changes: Any) -> BuildRecord:
    """Keep the record of an image of a line, built a day ago."""
    plan = changes.pop("plan", image.plan)
    record = record_of(plan, f"sha256:{number:016x}{0:048x}")
    day_ago = (NOW - timedelta(days=1)).isoformat()
    record = record.replace(**({"built_at": day_ago} | changes))
    store.save(record)
    return record


def locked(image: ChosenImage, site: Site, **changes: Any) -> None:
    fields: dict[str, Any] = {
        "plan": image.plan.id,
        "request": image.request.flags(),
        "python_version": image.plan.python,
        "platform": "x86_64-manylinux_2_28",
    }
    save_lock(PlanLock(**fields | changes), lock_path(image.plan, site))


def looked(image: ChosenImage, site: Site | None = None, **questions: Any) -> FreshDocument:
    return look([image], built_here([image]), site or Site(), Questions(**questions), now=NOW)


def causes(document: FreshDocument) -> dict[str, str]:
    (line,) = document.lines
    return {reason.cause: reason.says for reason in line.reasons}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(locks=tmp_path / "locks")


def test_a_line_that_was_never_built(tmp_path):
    document = looked(chosen())
    assert causes(document) == {"never": "never built"}
    assert (document.exit_code, document.next) == (1, f"./invoke build --images {NAME}")
    assert document.lines[0].image is None


def test_an_image_of_todays_plan_is_fresh():
    record = built(chosen())
    document = looked(chosen())
    assert (document.exit_code, document.stale, document.next) == (0, 0, "")
    assert document.lines[0].image == record.image_id


def test_the_newest_image_of_a_line_counts():
    image = chosen()
    old = image.plan.replace(id="f" * 64)
    built(image, 1, plan=old, built_at="2026-11-20T00:00:00+00:00")
    assert set(causes(looked(image))) == {"plan"}
    built(image, 2, built_at="2026-11-21T00:00:00+00:00")
    assert not causes(looked(image))
    built(image, 3, plan=old, built_at="2026-11-22T00:00:00+00:00")
    assert set(causes(looked(image))) == {"plan"}


def test_another_plan_names_what_changed():
    image = chosen()
    components = [c.replace(version="2.20.5") if c.name == "nccl" else c for c in image.plan.components]
    built(image, plan=image.plan.replace(id="f" * 64, components=tuple(components)))
    says = causes(looked(image))["plan"]
    assert "nccl 2.20.5 (wheel) → 2.21.5 (wheel)" in says
    assert "pytorch" not in says


@pytest.mark.parametrize("name", ["pytorch-2.6.0-cu126-debian", EXTENDED])
def test_images_of_other_lines_are_no_images_of_this_one(name):
    other = choose("pytorch-*", load_catalog(), Site())
    for number, image in enumerate(each for each in other if each.name != NAME):
        built(image, number)
    assert set(causes(looked(chosen()))) == {"never"}


def test_images_with_files_of_a_user_or_other_components_do_not_count():
    image = chosen()
    built(image, 1, plan=image.plan.replace(user=image.plan.user.replace(code_sha256="a" * 64)))
    built(image, 2, plan=image.plan.replace(flavour="compiler"))
    assert set(causes(looked(image))) == {"never"}


def test_a_base_image_that_has_moved(site):
    image = chosen(EXTENDED)
    record = built(image)
    labels = {**image.plan.labels, "org.opencontainers.image.base.digest": DIGESTS[0]}
    store.save(record.replace(probe={**record.probe, "image": {"id": record.image_id, "labels": labels}}))
    base = {"kind": image.plan.base.kind, "os": image.plan.base.os, "image": image.plan.base.image}
    locked(image, site, base=LockedBase(**base, digest=DIGESTS[0]))
    assert not causes(looked(image, site))
    locked(image, site, base=LockedBase(**base, digest=DIGESTS[1]))
    assert causes(looked(image, site)) == {"base": "base image aaaaaaaaaaaa, now bbbbbbbbbbbb"}


def test_a_lock_that_was_upgraded_after_the_build(site):
    image = chosen()
    record = built(image)
    python = LockedPython(
        name="torch",
        version=record.probe["distributions"]["torch"],
        file="torch-1-py3-none-any.whl",
        sha256="a" * 64,
        component="pytorch",
    )
    system = LockedSystemPackage(
        name="libc6", version="2.36-9", architecture="amd64", sha256="a" * 64, size=1, stages=("os",)
    )
    # What only a build stage installs is not in the image, whatever is there under its name.
    compiler = system.replace(name="libc6", version="9", stages=("toolchain",))
    locked(image, site, python=(python,), system=(system, compiler))
    assert not causes(looked(image, site))
    locked(image, site, python=(python,), system=(system.replace(version="2.36-10"),))
    assert causes(looked(image, site)) == {"lock": "its lock has since changed: libc6 2.36-9 → 2.36-10"}


class Today:
    """Sources that have what a test says."""

    def __init__(self, *, base: str = "", newer: tuple[str, ...] = (), rows: Any = (), unknown: Any = ()) -> None:
        self.unknown, self.moved, self.newer, self.rows = [*unknown], base, newer, rows
        self.asked: list[str] = []
        self.fits: tuple[str, ...] = ()

    def base(self, *_: object) -> str:
        self.asked.append("base")
        return self.moved

    def packages(self, _: BuildRecord, packages: Mapping[str, str]) -> list[NewerPackage]:
        return [NewerPackage(name, packages[name], "9") for name in self.newer if name in packages]

    def of_line(self, *_: object) -> tuple[str, ...]:
        return self.fits

    def upgrades(self, *_: object) -> Any:
        return self.rows


def test_upgrades_of_a_lock_which_a_build_does_not_take(site):
    image = chosen()
    built(image)
    rows = [
        row("python", "numpy", "1.0", "1.1", "newer"),
        row("base", "debian", DIGESTS[0], DIGESTS[1], "newer"),
        row("archive", "metis/x.tar.gz", "aa", None, "gone"),
    ]
    assert not causes(looked(image, site, sources=Today(rows=rows)))  # there is no lock
    locked(image, site)
    document = looked(image, site, sources=Today(rows=rows))
    says = causes(document)["upgrade"]
    assert "numpy 1.0 → 1.1" in says
    assert "metis" not in says
    # It would be the same image, tomorrow night as well.
    assert (document.stale, document.exit_code, document.names, document.next) == (1, 1, (), "")
    assert not causes(looked(image, site, sources=Today(rows=rows[2:])))


def test_newer_packages_of_the_distribution(site):
    image = chosen()
    built(image)
    document = looked(image, site, sources=Today(newer=("libc6",)))
    assert causes(document) == {"package": "newer packages: libc6 2.36-9 → 9"}
    assert document.names == (NAME,)
    system = LockedSystemPackage(
        name="libc6", version="2.36-9", architecture="amd64", sha256="a" * 64, size=1, stages=("os",)
    )
    locked(image, site, system=(system,))
    assert not causes(looked(image, site, sources=Today(newer=("libc6",))))  # a build installs what is locked


def test_a_base_that_has_moved_in_its_registry(site):
    image = chosen(EXTENDED)
    built(image)
    document = looked(image, site, sources=Today(base="nvidia/cuda:x is 0123 now"))
    assert causes(document) == {"base": "nvidia/cuda:x is 0123 now"}
    assert document.names == (EXTENDED,)
    base = {"kind": image.plan.base.kind, "os": image.plan.base.os, "image": image.plan.base.image}
    locked(image, site, base=LockedBase(**base, digest=DIGESTS[0]))
    sources = Today(base="nvidia/cuda:x is 0123 now")
    looked(image, site, sources=sources)
    assert sources.asked == []  # what a build starts from is in the lock


def test_what_a_new_lock_of_a_line_would_take_is_noted_and_makes_nothing_stale(site):
    image = chosen()
    built(image)
    sources = Today()
    sources.fits = ("a 1 → 2", "b 1 → 2", "c 1 → 2", "d 1 → 2")
    document = looked(image, site, sources=sources)
    assert document.notes == (f"{NAME}: ./invoke lock-lines would take a 1 → 2, b 1 → 2, c 1 → 2 and 1 more",)
    assert document.exit_code == 0
    locked(image, site)
    assert looked(image, site, sources=sources).notes == ()


def test_what_gave_no_answer_is_noted_once():
    image = chosen()
    built(image)
    assert looked(image, sources=Today(unknown=["a", "b", "a"])).notes == ("a", "b")


@pytest.mark.parametrize(
    ("ecosystem", "installed", "renews"),
    [("Debian:12", ("libc6",), True), ("Debian:12", ("gone",), False), ("PyPI", ("libc6",), False)],
)
def test_only_what_a_build_renews_is_built_again(ecosystem, installed, renews):
    image = chosen()
    built(image)
    row = {"id": "CVE-1", "aliases": (), "level": "high", "package": "x", "version": "1", "fixed": "2", "summary": ""}
    stays = Vulnerability(**row | {"id": "CVE-2"}, ecosystem="PyPI", installed=("x",), state="counts")
    found = Vulnerability(**row, ecosystem=ecosystem, installed=installed, state="counts")
    scan = SimpleNamespace(vulnerabilities=(stays, found))
    document = looked(image, vulnerabilities=lambda _: scan)
    assert "CVE-1" in causes(document)["vulnerability"] and "CVE-2" in causes(document)["vulnerability"]
    assert (document.exit_code, document.names) == (1, (NAME,) * renews)
    # The archive is known: whether it has the fix decides.
    for sources, built_again in ((Today(), False), (Today(newer=("libc6",)), True), (Today(unknown=["x"]), renews)):
        assert bool(looked(image, vulnerabilities=lambda _: scan, sources=sources).names) is built_again


@pytest.mark.parametrize(("limit", "stale"), [("23h", True), ("1d", False), ("2d", False), ("1w", False)])
def test_an_age(limit, stale):
    built(chosen())  # 24 hours ago
    assert ("age" in causes(looked(chosen(), max_age=read_age(limit)))) is stale


@pytest.mark.parametrize("word", ["", "30", "d", "0d", "-1d", "30m", "1.5d", "999999d"])
def test_what_is_not_an_age(word):
    with pytest.raises(RequestError, match="not an age"):
        read_age(word)


def test_the_lines_that_build_takes_with_stale():
    names = [NAME, "pytorch-2.13.0-cpu-debian"]
    images = choose(",".join(names), load_catalog(), Site())
    built(chosen(NAME))
    assert [image.name for image in stale_lines(images, Site())] == names[1:]


# ---- the verb --------------------------------------------------------------------------------------------------------


def vulnerable(image: ChosenImage) -> None:
    record = built(image)
    store.save(record.replace(probe={**record.probe, "packages": {}, "distributions": {"requests": "2.30.0"}}))


@pytest.mark.parametrize(
    ("words", "stale"), [((), True), (("--fail-on", "medium"), True), (("--fail-on", "high"), False)]
)
def test_a_fixable_vulnerability(tmp_path, words, stale):
    vulnerable(chosen())
    root = str(database(tmp_path / "osv"))
    done = call("fresh", NAME, "--offline", "--database", root, "--json", *words, cwd=tmp_path)
    assert done.returncode == int(stale), done.stderr
    (line,) = validated(done.stdout)["lines"]
    assert [reason["cause"] for reason in line["reasons"]] == ["vulnerability"] * stale
    assert all("CVE-2023-32681" in reason["says"] for reason in line["reasons"])


def test_the_verb_says_what_it_did_not_look_at_and_what_is_next(tmp_path):
    built(chosen())
    done = call("fresh", NAME, "pytorch-2.13.0-cpu-debian", "--offline", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "./invoke build --images pytorch-2.13.0-cpu-debian"
    assert "--offline" in done.stdout
    assert "no --database" in done.stdout
    named = call("fresh", NAME, "pytorch-2.13.0-cpu-debian", "--offline", "--names", cwd=tmp_path)
    assert (named.returncode, named.stdout) == (1, "pytorch-2.13.0-cpu-debian\n")
    assert "pytorch-2.13.0-cpu-debian  never  never built" in named.stderr  # why, for the log of the nightly build
    assert call("fresh", NAME, "--offline", "--names", cwd=tmp_path).stdout.strip() == ""


def test_a_repository_for_each_framework(tmp_path, monkeypatch):
    asked = []

    def look_up(images, place, catalog, site, *, say):
        asked.append((place.repository, [image.plan.framework for image in images]))
        return {}

    monkeypatch.setattr("trainwright.fresh.images.in_registry", look_up)
    (tmp_path / "trainwright.toml").write_text('[aws]\naccount = "123456789012"\nregion = "us-west-2"\n')
    lines = (NAME, "pytorch-2.13.0-cpu-debian", "tensorflow:cpu")
    done = call("fresh", *lines, "--offline", "--names", "--repository-prefix", "team", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert asked == [("team/pytorch", ["pytorch"] * 2), ("team/tensorflow", ["tensorflow"])]
    asked.clear()
    call("fresh", *lines, "--offline", "--names", "--repository", "team/all", cwd=tmp_path)
    assert asked == [("team/all", ["pytorch", "pytorch", "tensorflow"])]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("fresh", "--repository", "a", "--repository-prefix", "b"), "one of them"),
        (("build", "pytorch:cpu", "--refresh", "tomorrow"), "--refresh tomorrow: not a day"),
        (("fresh", "pytorhc"), "Did you mean pytorch"),
        (("fresh", "--max-age", "soon"), "--max-age soon: not an age"),
        (("fresh", "--fail-on", "hihg"), "Did you mean high"),
        (("build", "--stale", "pytorch:cpu"), "--stale: only with --images"),
        (("build", "--resume", "x", "--stale"), "--stale: not with --resume"),
    ],
)
def test_a_mistake_is_named(tmp_path, words, says):
    done = call(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
