"""The fleet on loopback: lines per hour, bytes sent once, seconds to promote 3 GB, and races for one tag.

Builds and pushes have this machine's engine; the registries of three accounts in two regions are emulated
(tests/doubles/aws.py, root), with a real registry behind. What is promoted is copied by ``docker pull`` and
``docker push`` beside it, through the same registries.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import docker  # noqa: E402
import pytest  # noqa: E402

from bench.measured import keep  # noqa: E402
from tests.doubles.aws import EmulatedAws, emulated_aws  # noqa: E402
from tests.doubles.tiny import tiny_image  # noqa: E402
from tests.e2e.test_build_images import LINE, LINES  # noqa: E402
from tests.support.build_records import record_of  # noqa: E402
from tests.support.in_process import call  # noqa: E402
from tests.support.registry_images import push_proven  # noqa: E402
from tests.support.tag_race import Repository, ended, image, orders  # noqa: E402
from trainwright.build import store  # noqa: E402
from trainwright.catalog.catalog import load_catalog  # noqa: E402
from trainwright.cli.output import say  # noqa: E402
from trainwright.core.paths import images_dir  # noqa: E402
from trainwright.core.runner import run  # noqa: E402
from trainwright.engine.engine import Engine, connect  # noqa: E402
from trainwright.plan.plan import Plan  # noqa: E402
from trainwright.plan.request import make_request  # noqa: E402
from trainwright.plan.resolve import resolve  # noqa: E402
from trainwright.push.ecr import Ecr  # noqa: E402
from trainwright.push.moving import move  # noqa: E402
from trainwright.push.references import PushPlace  # noqa: E402
from trainwright.push.registry import Registry  # noqa: E402
from trainwright.push.tag_log import TagLog, standing  # noqa: E402
from trainwright.site.site import Site  # noqa: E402

ACCOUNTS = ("730000000021", "730000000022", "730000000023")
REGIONS = ("us-west-2", "eu-central-1")
PARTS = ("built", "uploaded", "promoted", "raced")


def built(scratch: Path) -> dict[str, float]:
    """Seconds that a run over four small lines takes without a cache, by builds at a time on this one engine."""
    for version, more in LINES.items():
        folder = scratch / "catalog/images/pytorch" / f"{version}-cpu"
        folder.mkdir(parents=True)
        (folder / "line.yaml").write_text(LINE.format(version=version, more=more))
        shutil.copy(images_dir() / "pytorch/cpu/lock.json", folder)
    took = {}
    for jobs in ("1", "2"):
        words = ("--images", "pytorch-0.*", "--catalog", str(scratch / "catalog"), "--no-cache", "--jobs", jobs)
        own = {"TRAINWRIGHT_STATE": str(scratch / f"state-{jobs}")}
        began = time.monotonic()
        subprocess.run(  # noqa: S603
            [sys.executable, "-m", "trainwright", "build", *words], cwd=ROOT, env=os.environ | own, check=True
        )
        took[jobs] = round(time.monotonic() - began, 1)
        say(f"{len(LINES)} lines, {jobs} at a time: {took[jobs]} s")
    return took


def forget_built(engine: Engine) -> None:
    """Remove the images of :func:`built` from the engine."""
    rows = run([engine.client.path, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "trainwright/pytorch"])
    own = [tag for tag in rows.stdout.split() if tag.startswith("trainwright/pytorch:0.")]
    if own:
        run([engine.client.path, "rmi", *own])


@contextmanager
def clouds() -> Iterator[EmulatedAws]:
    """Three accounts in two regions, to which everything in this process goes."""
    with emulated_aws(ACCOUNTS[0], REGIONS, ACCOUNTS[1:]) as aws, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in aws.environment.items():
            patch.setenv(name, value)
        yield aws


def answer(*words: str) -> Any:
    """The document of a verb; its failure ends the bench."""
    done = call(*words, "--json")
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    return json.loads(done.stdout)


def uploaded(aws: EmulatedAws, plan: Plan, megabytes: int) -> dict[str, int]:
    """Bytes that one push sends where rules copy the image to every other registry; and the same push again."""
    from moto.ecr.models import ecr_backends

    name = f"bench/{uuid.uuid4().hex[:8]}"
    others = [(account, region) for account in ACCOUNTS for region in REGIONS][1:]
    for account, region in others:
        allowed = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNTS[0]}:root"}, "Resource": "*"}
        allowed |= {"Sid": "Copies", "Action": ["ecr:CreateRepository", "ecr:ReplicateImage"]}
        policy = {"Version": "2012-10-17", "Statement": [allowed]}
        ecr_backends[account][region].put_registry_policy(json.dumps(policy))
    rule = {"destinations": [{"region": region, "registryId": account} for account, region in others]}
    aws.client("ecr").put_replication_configuration(replicationConfiguration={"rules": [rule]})
    tag = f"trainwright-bench/{uuid.uuid4().hex[:8]}:1"
    layers = [os.urandom(megabytes * 500_000) for _ in range(2)]
    with tiny_image(docker.from_env(), tag, *layers, labels=plan.labels) as made:
        store.save(record_of(plan, made, tag=tag))
        words = ("push", "--image", tag, "--repository", name, "--region", REGIONS[0], "--create", "--progress", "none")
        aws.requests.clear()
        (row,) = answer(*words, "--wait-for-replicas")["images"]
        sent = aws.uploaded()
        aws.requests.clear()
        answer(*words)
        again = aws.uploaded()
    aws.client("ecr").put_replication_configuration(replicationConfiguration={"rules": []})
    manifest = Ecr(PushPlace(ACCOUNTS[0], REGIONS[0], name), Site()).manifest(digest=row["digest"])
    assert manifest is not None
    said = json.loads(manifest.text)
    blobs = [said["config"], *said["layers"]]
    for account, region in others:
        ecr = Ecr(PushPlace(account, region, name), Site())
        registry = Registry(ecr, Site())
        assert ecr.manifest(digest=row["digest"]) == manifest, (account, region)
        assert all(registry.has_blob(one["digest"]) for one in blobs), (account, region)
    return {
        "image": sum(one["size"] for one in blobs),
        "sent": sent,
        "registries": 1 + len(row["replicas"]),
        "again": again,
    }


def layer(megabytes: int) -> bytes:
    """A layer with a file that does not compress, as an engine takes it."""
    content, packed = os.urandom(megabytes * 1_000_000), io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=0) as stream,
        tarfile.open(fileobj=stream, mode="w|") as files,
    ):
        entry = tarfile.TarInfo(uuid.uuid4().hex)
        entry.size = len(content)
        files.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def promoted(aws: EmulatedAws, engine: Engine, plan: Plan, megabytes: int, rounds: int) -> dict[str, float]:
    """Seconds to bring an image from one account to another, without an engine and with one, in turns."""
    aws.client("ecr").create_repository(repositoryName="bench/large")
    here = PushPlace(ACCOUNTS[0], REGIONS[0], "bench/large")
    ecr = Ecr(here, Site())
    made = push_proven(
        ecr, Registry(ecr, Site()), plan, *(layer(megabytes // 6) for _ in range(6)), built=datetime.now(UTC)
    )
    took: dict[str, list[float]] = {"ours": [], "docker": []}
    sent = 0
    for number in range(rounds):
        there = PushPlace(ACCOUNTS[1], REGIONS[1], f"bench/ours-{number}")
        began = time.monotonic()
        (row,) = answer(
            "promote",
            here.digested(made.digest),
            "--to",
            f"{there.account}/{there.region}/{there.repository}",
            "--create",
        )["promoted"]
        took["ours"].append(time.monotonic() - began)
        sent = row["sent_bytes"]
        say(f"promote: {took['ours'][-1]:.1f} s")
        took["docker"].append(_by_engine(aws, engine, here.digested(made.digest), number))
        say(f"docker pull, docker push: {took['docker'][-1]:.1f} s")
    ours, theirs = (round(statistics.median(took[name]), 1) for name in ("ours", "docker"))
    return {"bytes": sent, "seconds": ours, "docker_seconds": theirs, "rounds": rounds}


def _by_engine(aws: EmulatedAws, engine: Engine, address: str, number: int) -> float:
    name = f"bench/docker-{number}"
    _create(name)
    target = f"{aws.host(REGIONS[1], ACCOUNTS[1])}/{name}:1"
    with tempfile.TemporaryDirectory() as folder:
        token = base64.b64encode(f"AWS:{aws.token()}".encode()).decode()
        hosts = {aws.host(): {"auth": token}, target.partition("/")[0]: {"auth": token}}
        Path(folder, "config.json").write_text(json.dumps({"auths": hosts}))
        environment: Mapping[str, str] = {**engine.cli_env, "DOCKER_CONFIG": folder}
        began = time.monotonic()
        try:
            for words in (("pull", "--quiet", address), ("tag", address, target), ("push", "--quiet", target)):
                done = run([engine.client.path, *words], env=environment)
                if not done.ok:
                    raise SystemExit(f"docker {' '.join(words)}: {done.tail(5)}")
            return time.monotonic() - began
        finally:
            run([engine.client.path, "rmi", address, target], env=environment)


def _create(name: str) -> None:
    from moto.ecr.models import ecr_backends

    backend = ecr_backends[ACCOUNTS[1]][REGIONS[1]]
    backend.create_repository(name, ACCOUNTS[1], {"encryptionType": "AES256"}, None, "MUTABLE", [])


def raced(count: int) -> dict[str, float]:
    """Orders of the calls of two pushers; and those after which an image, a decision or the tag's place was lost."""
    tag, (older, newer) = "pytorch-2.6-cu124", (image("2.6.0", 1), image("2.6.0", 2))
    lost, began = 0, time.monotonic()
    for chance in orders(count, 0):
        here = Repository()
        for manifest, _ in (older, newer):
            here.add(manifest)
        there = cast(Any, here)
        pushers = [lambda one=one, there=there: move(there, there, *one, tag) for one in (older, newer)]
        ended(here, pushers, chance)
        log = TagLog(there, there, tag).read()
        # The newer one always decides; the older one has nothing to say once it sees that.
        whole = newer[0].digest in {one.digest for one in log}
        images = {one.image_digest for one in here.record.images}
        right = here.points_to(tag) == standing(log).digest == newer[0].digest
        lost += not (whole and right and {older[0].digest, newer[0].digest} <= images)
    return {"orders": count, "lost": lost, "seconds": round(time.monotonic() - began, 1)}


def main() -> None:
    """Measure what is asked for, print it, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--megabytes", type=int, default=3000, help="of the image that is promoted")
    parser.add_argument("--rounds", type=int, default=2, help="promotions, and copies by the engine")
    parser.add_argument("--orders", type=int, default=1000, help="of the calls of two pushers")
    words = parser.parse_args()
    parts = words.parts or PARTS
    engine = connect(say=say)
    plan = resolve(make_request(framework="pytorch", cuda="cu124", version="2.6.0"), load_catalog())

    def told(name: str, values: Mapping[str, Any], used: Engine | None = engine) -> None:
        print(json.dumps(values), keep(f"fleet-{name}", dict(values), used), sep="\n", flush=True)

    with tempfile.TemporaryDirectory(prefix="trainwright-bench-") as folder:
        os.environ["TRAINWRIGHT_STATE"] = f"{folder}/state"
        if "built" in parts:
            try:
                told("built", built(Path(folder)))
            finally:
                forget_built(engine)
        if {"uploaded", "promoted"} & {*parts}:
            with clouds() as aws:
                if "uploaded" in parts:
                    told("uploaded", uploaded(aws, plan, 100))
                if "promoted" in parts:
                    told("promoted", promoted(aws, engine, plan, words.megabytes, words.rounds))
        if "raced" in parts:
            told("raced", raced(words.orders), None)


if __name__ == "__main__":
    main()
