"""What a proof says, that it says nothing of the machine, and that an edited one is not taken for one."""

from __future__ import annotations

import json

import pytest

from tests.support.proofs import RECORDED, line_of, proof_of, recorded, rehearsed
from trainwright.build.ledger import LedgerRow
from trainwright.catalog.catalog import open_catalog
from trainwright.core.errors import RequestError
from trainwright.plan.of_line import plan_of
from trainwright.plan.plan_lock import LockedBase, LockedSystemPackage, PlanLock
from trainwright.proofs.make import checksums, efa_seen, make_proof
from trainwright.proofs.places import files
from trainwright.proofs.proof import dump, parse, read
from trainwright.site.site import Site
from trainwright.sources.gather import gather

pytestmark = pytest.mark.usefixtures("own_places")


def test_a_proof_is_read_as_it_was_written(tmp_path):
    proof = proof_of()
    path = tmp_path / "cpu.json"
    path.write_text(dump(proof))
    assert read(path) == proof
    assert next(iter(json.loads(path.read_text()))) == "digest"


def test_a_proof_has_the_bytes_of_each_component():
    catalog = open_catalog()
    entry = line_of("pytorch/cpu", catalog)
    plan = plan_of(entry, catalog)
    rows = (("pytorch", 503_277_280), ("metis", 687_976), ("toolchain", 0))
    ledger = tuple(LedgerRow(name=name, seconds=1.0, bytes=count, cached=False) for name, count in rows)
    inputs = gather(plan, catalog.alone(entry), Site())
    record = recorded(plan).replace(ledger=ledger)
    proof = make_proof(entry, record, inputs, rehearsed(), gpu=False, efa=False)
    assert json.loads(dump(proof))["components"] == {"metis": 687_976, "pytorch": 503_277_280}


def test_proofs_that_were_committed_are_read_and_written_as_they_are():
    paths = list(files().values())
    assert paths
    for path in paths:
        assert dump(read(path)) == path.read_text(), path


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"outcome": "proven"', '"outcome": "failed"'),
        ("contract::test_user_is_root", "contract::test_user_is_toor"),
        ('"digest": "sha256:', '"digest": "sha256:0'),
        ('\n "digest"', '\n  "digest"'),
        ('"gpu": false', '"gpu": true'),
        ("{\n", '{\n "another": 1,\n'),
    ],
)
def test_an_edited_proof_is_refused(old, new):
    text = dump(proof_of())
    assert old in text
    with pytest.raises(RequestError, match=r"cpu\.json: (was edited|not a proof)") as refused:
        parse(text.replace(old, new, 1), "cpu.json")
    assert "./invoke prove" in refused.value.remedy


def test_a_document_that_is_no_proof_is_refused():
    with pytest.raises(RequestError, match="not a proof"):
        parse(json.dumps({"schema": "trainwright/plan/1"}), "plan.json")


def test_a_proof_names_its_tests_and_its_rehearsal():
    proof = proof_of()
    rows = RECORDED["smoke"]["rows"]
    for outcome in ("passed", "failed", "skipped"):
        wanted = [f"{row['component']}::{row['check']}" for row in rows if row["outcome"] == outcome]
        assert list(getattr(proof.tests, outcome)) == wanted
    assert proof.tests.passed and proof.tests.skipped
    assert proof.rehearsal is not None
    assert (proof.rehearsal.hosts, proof.rehearsal.launcher, proof.rehearsal.job) == (2, "torchrun", "train.py")
    assert "all-reduce" in proof.rehearsal.checks.passed
    assert proof.outcome == "proven"


def test_a_proof_says_nothing_of_the_machine():
    """The record, the rehearsal and the site do: folders, host names, an account, addresses of mirrors."""
    catalog = open_catalog()
    entry = next(each for each in catalog.lines if each.line.base.kind == "dlc")
    plan = plan_of(entry, catalog, region="eu-central-1")
    assert ".dkr.ecr.eu-central-1." in str(plan.base.image)
    site = Site(index_url="https://me:hunter22@mirror.corp.example/simple")
    record = recorded(plan).replace(
        probe={
            "facts": {"pip": {"error": f"at {site.index_url}\ncannot open https://me:hunter22@mirror.corp.example/x"}}
        }
    )
    inputs = gather(plan, catalog.alone(entry), site)
    text = dump(make_proof(entry, record, inputs, rehearsed(), gpu=False, efa=False))
    for word in ("somebody", "rehearsal.internal", "hunter22", "dkr.ecr", "eu-central-1", "corp.example"):
        assert word not in text
    assert "somebody" in json.dumps(RECORDED["rehearsal"])


@pytest.mark.parametrize(
    ("image", "told"),
    [
        ("registry.corp.example:5000/mirror/cuda:12.4.1-base-ubuntu22.04", "mirror/cuda:12.4.1-base-ubuntu22.04"),
        ("registry.corp.example/base@sha256:" + "ab" * 32, "base@sha256:" + "ab" * 32),
        ("localhost/base:1", "base:1"),
        ("nvcr.io/nvidia/cuda:12.4.1-base-ubuntu22.04", "nvcr.io/nvidia/cuda:12.4.1-base-ubuntu22.04"),
        ("nvidia/cuda:12.4.1-base-ubuntu22.04", "nvidia/cuda:12.4.1-base-ubuntu22.04"),
    ],
)
def test_a_proof_names_no_registry_of_the_site(image, told):
    """A host and a folder are told apart as the engine does it: by a dot, a colon, or the word localhost."""
    catalog = open_catalog()
    entry = next(each for each in catalog.lines if each.line.base.kind == "nvidia")
    plan = plan_of(entry, catalog)
    plan = plan.replace(base=plan.base.replace(image=image))
    inputs = gather(plan, catalog.alone(entry), Site())
    proof = make_proof(entry, recorded(plan), inputs, rehearsed(), gpu=False, efa=False)
    assert proof.base.image == told
    assert "corp.example" not in dump(proof)


def test_an_error_of_the_probe_is_its_last_line():
    facts = proof_of().facts
    assert facts["nccl"]["error"] == "IndexError: list index out of range"
    assert facts["openmpi"]["version"] == "4.1.4"


@pytest.mark.parametrize(("smoke", "rehearsal"), [("test_x", "passed"), ("", "failed"), ("", None)])
def test_what_failed_is_not_proven(smoke, rehearsal):
    catalog = open_catalog()
    entry = line_of("pytorch/cpu", catalog)
    plan = plan_of(entry, catalog)
    document = None if rehearsal is None else rehearsed(outcome=rehearsal)
    inputs = gather(plan, catalog.alone(entry), Site())
    proof = make_proof(entry, recorded(plan, failed=smoke), inputs, document, gpu=False, efa=False)
    assert proof.outcome == "failed"
    assert (f"contract::{smoke}" in proof.tests.failed) is bool(smoke)
    assert proof.failed_step == ("smoke" if smoke else "rehearsal")
    assert parse(dump(proof), "cpu.json") == proof
    assert "failed_step" not in dump(proof_of())


def test_checksums_are_those_of_the_lock_and_of_the_plan():
    catalog = open_catalog()
    entry = line_of("pytorch/cpu", catalog)
    plan = plan_of(entry, catalog)
    package = {"name": "libc6", "version": "2.36-9", "architecture": "amd64", "size": 1, "stages": ("os",)}
    lock = PlanLock(
        plan=plan.id,
        request="--framework pytorch",
        python_version="3.11",
        platform=json.loads(entry.lock_path.read_text())["platform"],
        base=LockedBase(kind="debian", os="debian-12", sha256="ab" * 32),
        system=(LockedSystemPackage(**package, sha256="cd" * 32),),
    )
    found = checksums(gather(plan, catalog.alone(entry), Site(), lock))
    assert found["package"] == {"libc6=2.36-9": "cd" * 32}
    assert list(found["root file system"].values()) == ["ab" * 32]
    wheels = {s.file: s.sha256 for c in plan.components for s in c.wheels}
    assert wheels and wheels.items() <= found["python"].items()
    assert not any("component" in kind or "user" in kind for kind in found)


@pytest.mark.parametrize(("vendor", "seen"), [("0x1d0f\n", True), ("0x15b3\n", False)])
def test_an_rdma_device_of_amazon_is_efa(tmp_path, vendor, seen):
    """Linux, drivers/infiniband/hw/efa: the vendor is Amazon's, 0x1d0f; 0x15b3 is Mellanox."""
    device = tmp_path / "rdmap0s6" / "device"
    device.mkdir(parents=True)
    (device / "vendor").write_text(vendor)
    assert efa_seen(tmp_path) is seen
    assert not efa_seen(tmp_path / "nowhere")
