"""The labels of OCI: which there are; that none depends on the moment of a build or tells of this machine."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cyclonedx.spdx import get_spdx_licensing

from trainwright.build.build import run_build
from trainwright.build.labels import build_labels, content_labels, licenses, public_address
from trainwright.build.options import BuildOptions
from trainwright.catalog.catalog import open_catalog
from trainwright.catalog.component import Licence
from trainwright.core.errors import BuildFailed, EngineError, RequestError
from trainwright.engine.builders import Builder
from trainwright.engine.engine import Client, Engine
from trainwright.pipeline.bake import bake_document, target_name
from trainwright.plan.of_line import plan_of
from trainwright.plan.plan_lock import LockedBase, PlanLock
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site
from trainwright.sources.gather import gather
from trainwright.sources.inputs import Inputs

CATALOG = open_catalog()
OCI = "org.opencontainers.image."
DIGEST = f"sha256:{'d' * 64}"
# annotations.md of opencontainers/image-spec, "Pre-Defined Annotation Keys", but for what only an image layout has.
KEYS = {"created", "authors", "url", "documentation", "source", "version", "revision", "vendor", "licenses", "ref.name"}
KEYS |= {"title", "description", "base.digest", "base.name"}


@pytest.fixture(autouse=True)
def _elsewhere(own_places: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder that is no checkout, and no variable of this machine."""
    monkeypatch.chdir(tmp_path)
    for name in ("SOURCE_DATE_EPOCH", "TRAINWRIGHT_SOURCE", "TRAINWRIGHT_DOCUMENTATION", "TRAINWRIGHT_REVISION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))


def inputs_of(cuda: str = "cpu", **lock: object) -> Inputs:
    plan = resolve(make_request(framework="pytorch", cuda=cuda), CATALOG)
    common = {"plan": plan.id, "request": "x", "python_version": plan.python, "platform": "x86_64-manylinux_2_28"}
    return gather(plan, CATALOG, Site(), PlanLock(**(common | lock)) if lock else None)


def oci(labels: dict[str, str]) -> dict[str, str]:
    return {name.removeprefix(OCI): value for name, value in labels.items() if name.startswith(OCI)}


def test_every_key_is_one_of_oci():
    found = {*oci(build_labels(inputs_of("cu113"))), *oci(inputs_of("cu113").plan.labels), "revision"}
    assert found == KEYS


def test_an_image_from_scratch_has_no_base_and_nothing_empty():
    found = oci(build_labels(inputs_of()))
    assert set(found) == {"description", "licenses"}
    assert all(found.values())
    assert found["description"].startswith(
        "SageMaker training with pytorch 2.13.0, CPU only, Python 3.11: python 3.11, "
    )


def test_on_an_image_the_base_is_named_in_full_and_its_labels_are_not_inherited():
    found = oci(build_labels(inputs_of("cu113")))
    assert found["base.name"] == "docker.io/nvidia/cuda:11.3.1-cudnn8-runtime-ubuntu20.04"
    empty = {"authors", "base.digest", "created", "documentation", "ref.name", "source", "url", "vendor"}
    assert {name for name, value in found.items() if not value} == empty


def test_the_digest_of_the_base_is_that_of_the_lock():
    image = "nvidia/cuda:11.3.1-cudnn8-runtime-ubuntu20.04"
    base = LockedBase(kind="nvidia", os="ubuntu-20.04", image=image, digest=DIGEST, image_id=DIGEST)
    assert oci(content_labels(inputs_of("cu113", base=base)))["base.digest"] == DIGEST


def with_base(inputs: Inputs, tmp_path: Path) -> Inputs:
    (tmp_path / "rootfs.tar").write_text("")
    (tmp_path / "base.json").write_text(json.dumps({"created": "2026-11-02T03:04:05+00:00"}))
    assert inputs.rootfs is not None
    return replace(inputs, rootfs=replace(inputs.rootfs, path=tmp_path / "rootfs.tar"))


def test_created_follows_from_the_content(tmp_path, monkeypatch):
    made = with_base(inputs_of(), tmp_path)
    assert oci(content_labels(made))["created"] == "2026-11-02T03:04:05Z"
    assert content_labels(made) == content_labels(made)
    locked = with_base(inputs_of(made="2026-11-20T10:00:00+00:00"), tmp_path)
    assert oci(content_labels(locked))["created"] == "2026-11-20T10:00:00Z"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert oci(content_labels(locked))["created"] == "2023-11-14T22:13:20Z"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(RequestError, match="SOURCE_DATE_EPOCH=yesterday"):
        content_labels(locked)


def test_licences_are_an_spdx_expression():
    plan = inputs_of().plan
    names = ["MIT", "BSD-2-Clause OR GPL-2.0-only", "BSD-3-Clause AND Some EULA (of X)", "MIT", "of your own code"]
    owners = ["python", "efa", "ssh", "metis", "user"]
    made = [c.replace(licence=None) for c in plan.components]
    parts = [made[0].replace(name=owner, licence=Licence(name=name)) for owner, name in zip(owners, names, strict=True)]
    found = licenses(plan.replace(components=(*parts, made[0])))
    assert found == "(BSD-2-Clause OR GPL-2.0-only) AND BSD-3-Clause AND LicenseRef-Some-EULA-of-X AND MIT"


def test_the_licences_of_every_line_are_an_expression():
    texts = {plan.id: licenses(plan) for plan in (plan_of(entry, CATALOG) for entry in CATALOG.lines)}
    # Two lines add nothing whose licence is known to AWS's containers.
    assert sum(not text for text in texts.values()) <= 2
    # The library knows no LicenseRef-; SPDX 2.3, annex D: the characters that one may have.
    known = {re.sub(r"LicenseRef-[A-Za-z0-9.-]+", "MIT", text) for text in texts.values() if text}
    wrong = {text: get_spdx_licensing().validate(text).errors for text in known}
    assert len(known) > 5
    assert {text: errors for text, errors in wrong.items() if errors} == {}


@pytest.mark.parametrize(
    ("remote", "wanted"),
    [
        ("https://github.com/team/images.git", "https://github.com/team/images.git"),
        ("https://bot:hunter2hunter2@git.example.com/team/images", "https://git.example.com/team/images"),
        ("https://git.example.com/a?token=hunter2", "https://git.example.com/a"),
        ("git@github.com:team/images.git", "ssh://github.com/team/images.git"),
        ("ssh://git@git.example.com:2222/team/images", "ssh://git.example.com:2222/team/images"),
        ("/srv/git/images", ""),
        ("../images", ""),
        ("file:///srv/git/images", ""),
        ("https://[broken", ""),
        ("", ""),
    ],
)
def test_where_the_source_is(remote, wanted):
    assert public_address(remote) == wanted


def test_source_and_documentation(tmp_path, monkeypatch):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    subprocess.run(["git", "-C", tmp_path, "remote", "add", "origin", "https://me:secret99@example.com/a"], check=True)
    assert oci(build_labels(inputs_of()))["source"] == "https://example.com/a"
    monkeypatch.setenv("TRAINWRIGHT_SOURCE", "https://example.com/other")
    monkeypatch.setenv("TRAINWRIGHT_DOCUMENTATION", "https://wiki.example.com/images")
    found = oci(build_labels(inputs_of()))
    assert (found["source"], found["documentation"]) == ("https://example.com/other", "https://wiki.example.com/images")
    monkeypatch.setenv("TRAINWRIGHT_DOCUMENTATION", "wiki")
    with pytest.raises(RequestError, match="TRAINWRIGHT_DOCUMENTATION=wiki"):
        build_labels(inputs_of())


def test_the_builder_is_given_them_and_the_dockerfile_is_not(tmp_path):
    inputs = inputs_of()
    client = tmp_path / "docker"
    client.write_text(f'#!/bin/sh\n[ "$1" = version ] || printf "%s\\n" "$@" > {tmp_path}/argv\nexit 1\n')
    client.chmod(0o755)
    engine = Engine(Client(str(client), "builtin", "20.10", "plain"), "20.10")
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text("FROM scratch AS final\n")
    with pytest.raises((BuildFailed, EngineError)):
        run_build(
            inputs,
            context,
            engine,
            options=BuildOptions(progress="none"),
            builder=Builder("", "builtin"),
            arguments={},
            say=lambda _: None,
        )
    words = (tmp_path / "argv").read_text().splitlines()
    given = dict(words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--label")
    assert given == build_labels(inputs)
    assert given["io.trainwright.plan"] == inputs.plan.id


def test_a_bake_file_has_those_that_follow_from_the_content():
    inputs = inputs_of("cu113")
    name = target_name(inputs.plan)
    document = bake_document([inputs.plan], labels={name: content_labels(inputs)})
    labels = document["target"][name]["labels"]
    assert labels == inputs.plan.labels | content_labels(inputs)
