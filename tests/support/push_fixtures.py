"""What tests of ``push`` share, as a plugin of pytest: images, the verb, what is found in the registry."""

from __future__ import annotations

import io
import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from tests.doubles.tiny import tiny_image
from tests.support.build_records import record_of
from tests.support.finished import Finished
from trainwright.build import store
from trainwright.catalog.catalog import load_catalog
from trainwright.cli.tasks import VerbTask
from trainwright.plan.plan import Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.push.tag_log import own_tag
from trainwright.verbs.push import push as push_verb

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "trainwright" / "schemas" / "push.schema.json"
Push = Callable[..., Finished]
SHARED, OWN = 300_000, 20_000  # bytes that do not compress


@pytest.fixture(scope="module")
def plan() -> Plan:
    return resolve(make_request(framework="pytorch", cuda="cpu"), load_catalog())


@pytest.fixture(scope="module")
def make(engine, plan, state) -> Iterator[Callable[..., str]]:
    """Make an image of a few random layers with the plan's labels and a record; returns its name."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWRIGHT_STATE", str(state))

        def run(*layers: bytes, smoke: bool = True, of: Plan = plan) -> str:
            name = f"trainwright-test/push:{uuid.uuid4().hex[:8]}"
            image = stack.enter_context(tiny_image(engine, name, *layers, labels=of.labels))
            store.save(record_of(of, image, tag=name, smoke=smoke))
            return name

        yield run


@pytest.fixture(scope="module")
def images(make) -> tuple[str, str]:
    """Two images of one plan that share a layer, the older one first. Every test has a repository of its own."""
    shared = os.urandom(SHARED)
    first = make(shared, os.urandom(OWN))
    return first, make(shared, os.urandom(OWN))


@pytest.fixture
def image(images) -> str:
    return str(images[0])


@pytest.fixture
def words(aws) -> tuple[str, ...]:
    """The flags of a push to a repository that does not exist yet."""
    return ("--repository", f"team/{uuid.uuid4().hex[:8]}", "--region", "us-west-2", "--progress", "plain", "--json")


@pytest.fixture
def push(aws, words, state, monkeypatch) -> Push:
    """Run the verb with the words of this test; in this process, as it is run often."""

    def run(*images: str, more: tuple[str, ...] = ("--create",), **environment: str) -> Finished:
        flags: dict[str, Any] = {"image": list(images), "region": [], "tag": []}
        given = iter([*words, *more])
        for flag in given:
            name = flag.removeprefix("--").replace("-", "_")
            if name in ("create", "json", "unproven", "dry_run", "soci", "leave_tags"):
                flags[name] = True
            elif isinstance(flags.get(name), list):
                flags[name].append(next(given))
            else:
                flags[name] = {"revision": int, "stall": float}.get(name, str)(next(given))
        out, err, code = io.StringIO(), io.StringIO(), 0
        with monkeypatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            aws.lend(patch)
            for name, value in {"TRAINWRIGHT_STATE": str(state), **environment}.items():
                patch.setenv(name, value)
            try:
                VerbTask(push_verb)(Context(), **flags)
            except Exit as ended:
                code = ended.code
        return Finished(code, out.getvalue(), err.getvalue())

    return run


def tags_of(aws, words: tuple[str, ...], region: str | None = None) -> dict[str, str]:
    """The digest of every tag of an image, as the API has them; logs of tags, and proofs, have tags of their own."""
    found = aws.client("ecr", region).describe_images(repositoryName=words[1])["imageDetails"]
    tags = {tag: image["imageDigest"] for image in found for tag in image.get("imageTags", [])}
    return {tag: digest for tag, digest in tags.items() if not own_tag(tag)}


def moving(tags: dict[str, str], plan: Plan) -> dict[str, str]:
    """Those tags that move."""
    return {tag: digest for tag, digest in tags.items() if plan.id[:12] not in tag}


def one(done: Any) -> dict[str, Any]:
    """The row of a push of one image that went well."""
    assert done.code == 0, done.err[-3000:]
    jsonschema.validate(done.json, json.loads(SCHEMA.read_text()))
    (row,) = done.json["images"]
    return dict(row)


def refused(done: Any, cause: str) -> dict[str, Any]:
    """The document of a refusal."""
    assert done.code == 7, (done.out[-2000:], done.err[-2000:])
    assert done.json["error"] == "registry"
    assert done.json["cause"] == cause, done.json
    assert done.json["remedy"]
    return done.json
