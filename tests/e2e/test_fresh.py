"""`scan` and `fresh` of an image in a registry with ECR's rules, and the gate of `promote`."""

from __future__ import annotations

import lzma
import os
import uuid
from datetime import UTC, datetime

import pytest

from tests.doubles.aws import emulated_aws, why_not
from tests.support.documents import validated
from tests.support.in_process import call
from tests.support.loopback import loopback
from tests.support.osv import database, record
from tests.support.registry_images import push_proven
from trainwright.catalog.catalog import load_catalog
from trainwright.fresh.base_today import BaseImages, BaseToday
from trainwright.pipeline.images import choose
from trainwright.push.ecr import Ecr
from trainwright.push.references import PushPlace
from trainwright.push.registry import Registry
from trainwright.push.tags import tags_of
from trainwright.site.site import Site

DEV, PROD, WEST = "730000000001", "730000000002", "us-west-2"
NAME = "pytorch-2.6.0-cu124-debian"
DAYS = [datetime(2026, 11, day, tzinfo=UTC) for day in (1, 2)]
TORCH = record(
    "GHSA-1",
    "torch",
    {"introduced": "0"},
    {"fixed": "2.7.0"},
    ecosystem="PyPI",
    aliases=["CVE-2026-1"],
    database_specific={"severity": "HIGH"},
)
LIBC = record("DEBIAN-CVE-2026-2", "libc6", {"introduced": "0"}, upstream=["CVE-2026-2"])


@pytest.fixture(scope="module")
def clouds():
    if reason := why_not():
        pytest.skip(reason)
    with emulated_aws(DEV, (WEST,), (PROD,)) as aws:
        yield aws


@pytest.fixture
def place(clouds, monkeypatch, tmp_path):
    """A repository with two images of a line; `address` is the newer one's."""
    clouds.lend(monkeypatch)
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    clouds.requests.clear()
    place = PushPlace(DEV, WEST, f"dev/{uuid.uuid4().hex[:8]}")
    clouds.client("ecr").create_repository(repositoryName=place.repository)
    yield place
    clouds.release()


@pytest.fixture
def address(place):
    (image,) = choose(NAME, load_catalog(), Site())
    ecr = Ecr(place, Site())
    digests = [
        push_proven(ecr, Registry(ecr, Site()), image.plan, os.urandom(1000), built=built).digest for built in DAYS
    ]
    return place.digested(digests[1])


def test_an_image_is_scanned_by_what_is_attached_to_it(address, tmp_path):
    root = str(database(tmp_path / "osv", TORCH, LIBC))
    done = call("scan", address, "--database", root, "--fail-on", "high", "--json")
    assert done.returncode == 1, done.stderr
    document = validated(done.stdout)
    assert document["image"] == address.partition("@")[2]
    states = {row["id"]: row["state"] for row in document["vulnerabilities"]}
    assert states == {"CVE-2026-1": "counts", "CVE-2026-2": "below"}


def test_the_gate_of_promote(clouds, address, tmp_path):
    root = str(database(tmp_path / "osv", TORCH, LIBC))
    words = ("promote", address, "--to", f"{PROD}/{WEST}/prod/x", "--create", "--database", root, "--json")
    clouds.requests.clear()
    refused = call(*words, "--scan-fail-on", "high")
    assert refused.returncode == 6, refused.stderr
    assert [row["id"] for row in validated(refused.stdout)["vulnerabilities"]] == ["CVE-2026-1"]
    assert not [asked for asked in clouds.requests if asked.method in ("POST", "PATCH", "PUT")]
    assert call(*words, "--scan-fail-on", "critical").returncode == 0


def test_the_newest_image_of_a_line_in_a_repository(place, address, tmp_path):
    (tmp_path / "trainwright.toml").write_text(f'aws = {{account = "{DEV}", region = "{WEST}"}}\n')
    words = ("fresh", NAME, "--repository", place.repository, "--offline", "--json")
    done = call(*words)
    assert done.returncode == 0, done.stdout
    (line,) = validated(done.stdout)["lines"]
    assert line["image"] == address
    stale = validated(call(*words, "--database", str(database(tmp_path / "osv", TORCH, LIBC))).stdout)
    assert [reason["cause"] for reason in stale["lines"][0]["reasons"]] == ["vulnerability"]
    (other,) = validated(call("fresh", "pytorch-2.13.0-cpu-debian", *words[2:]).stdout)["lines"]
    assert [reason["cause"] for reason in other["reasons"]] == ["never"]


def test_what_the_nightly_build_asks_of_a_registry_an_archive_and_a_database(place, address, tmp_path):
    """With addresses alone, as its machine has no engine and keeps nothing: the fix of one package, in two causes."""
    libc = record("DEBIAN-CVE-2026-2", "libc6", {"introduced": "0"}, {"fixed": "2.36-10"}, upstream=["CVE-2026-2"])
    root = database(tmp_path / "osv", TORCH, libc, packed=("PyPI", "Debian:12"))
    suites = [f"/debian/dists/{suite}/main/binary-amd64/Packages.xz" for suite in ("bookworm", "bookworm-updates")]
    security = "/security/dists/bookworm-security/main/binary-amd64/Packages.xz"
    with loopback() as server:
        server.pages = {path: lzma.compress(b"Package: libc6\nVersion: 2.36-9\n") for path in suites}
        server.pages[security] = lzma.compress(b"")
        for ecosystem in ("PyPI", "Debian:12"):
            server.pages[f"/osv/{ecosystem}/all.zip"] = (root / ecosystem / "all.zip").read_bytes()
        (tmp_path / "trainwright.toml").write_text(
            f'apt_mirror = "{server.url}/debian"\napt_security_mirror = "{server.url}/security"\n'
            f'[aws]\naccount = "{DEV}"\nregion = "{WEST}"\n'
        )
        words = ("fresh", NAME, "--repository", place.repository, "--database", f"{server.url}/osv", "--names")
        before = call(*words)
        server.pages[security] = lzma.compress(b"Package: libc6\nVersion: 2.36-10\n")
        after = call(*words)
    # What is known before the archive has the fix would be built every night, and change nothing.
    assert (before.returncode, before.stdout.strip()) == (1, ""), before.stderr
    assert "CVE-2026-1 (high, torch 2.6.0 → 2.7.0)" in before.stderr and "(not by another build alone)" in before.stderr
    assert (after.returncode, after.stdout.strip()) == (1, NAME), after.stderr
    assert "newer packages: libc6 2.36-9 → 2.36-10" in after.stderr
    assert "fixable: CVE-2026-2" in after.stderr


def test_a_base_image_in_ecr_is_asked_for_with_the_credentials_of_aws(place, address):
    ecr = Ecr(place, Site())
    manifest = ecr.manifest(digest=address.partition("@")[2])
    assert manifest is not None
    ecr.put_tag(manifest, "base")
    found = BaseImages(Site()).today(f"{place.host}/{place.repository}:base")
    configuration = Registry(ecr, Site()).configuration(manifest)
    assert configuration is not None
    assert found == BaseToday(manifest.digest, tuple(configuration["rootfs"]["diff_ids"]))
    assert "no such image" in str(BaseImages(Site()).today(f"{place.host}/{place.repository}:other"))


def test_the_tenth_image_of_a_day_is_newer_than_the_second(place, address, tmp_path):
    (tmp_path / "trainwright.toml").write_text(f'aws = {{account = "{DEV}", region = "{WEST}"}}\n')
    (image,) = choose(NAME, load_catalog(), Site())
    ecr, day = Ecr(place, Site()), datetime(2026, 11, 3, tzinfo=UTC)
    older, newer = (ecr.manifest(tag=tags_of(image.plan, built, load_catalog()).immutable) for built in DAYS)
    assert older is not None and newer is not None
    for revision, manifest in ((2, older), (10, newer)):
        ecr.put_tag(manifest, tags_of(image.plan, day, load_catalog(), revision=revision).immutable)
    done = call("fresh", NAME, "--repository", place.repository, "--offline", "--json")
    assert validated(done.stdout)["lines"][0]["image"] == address
