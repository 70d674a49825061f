"""Builders, registry caches and bake files: what the client is told, and what is refused before it is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.build.options import BuildOptions
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import EngineError, RequestError
from trainwright.core.owned import fill
from trainwright.engine import builders, cache
from trainwright.engine.builders import Builder
from trainwright.engine.buildkit import command
from trainwright.engine.buildkit_log import BuildProgress
from trainwright.engine.engine import Client, Engine
from trainwright.pipeline.bake import bake_document, target_name, write_bake
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site
from trainwright.sources.gather import gather

REPOSITORY = "123456789012.dkr.ecr.us-west-2.amazonaws.com/trainwright/cache"
OWN = Builder("", "docker")
FARM = Builder("farm", "docker-container")


@pytest.fixture(scope="module")
def plans():
    catalog = load_catalog()
    return [resolve(make_request(framework="pytorch", cuda=cuda), catalog) for cuda in ("cpu", "cu124")]


def engine_with(folder: Path, script: str, buildkit: str = "buildx") -> Engine:
    """An engine whose client is a shell script."""
    program = folder / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Engine(Client(str(program), buildkit, "26.1.5", "rawjson"), "26.1.5")  # type: ignore[arg-type]


INSPECT = """\
case "$*" in
*inspect*farm) printf 'Name:   farm\\nDriver: docker-container\\n' ;;
*inspect*" store") printf 'Name: store\\nDriver: docker\\n org.mobyproject.buildkit.worker.snapshotter: overlayfs\\n' ;;
*"inspect --bootstrap") printf 'Name:   default\\nDriver: docker\\n' ;;
*" ls") printf 'NAME/NODE DRIVER STATUS\\nfarm remote\\n \\\\_ farm0 x running\\ndefault* docker\\n' ;;
*) echo 'ERROR: no builder found' >&2; exit 1 ;;
esac"""


def test_what_a_builder_can_do_is_asked_of_buildx(tmp_path):
    engine = engine_with(tmp_path, INSPECT)
    assert builders.find_builder(engine, Site(builder="farm")) == Builder("farm", "docker-container")
    own = builders.find_builder(engine, Site())
    assert own.own
    assert not own.exports_cache
    store = builders.find_builder(engine, Site(builder="store"))
    assert store.own
    assert store.exports_cache


def test_a_builder_that_is_not_there(tmp_path):
    with pytest.raises(EngineError) as refused:
        builders.find_builder(engine_with(tmp_path, INSPECT), Site(builder="fram"))
    assert "farm" in refused.value.message
    assert "farm0" not in refused.value.message
    with pytest.raises(EngineError):
        builders.find_builder(engine_with(tmp_path, INSPECT, "builtin"), Site(builder="farm"))
    assert builders.find_builder(engine_with(tmp_path, "exit 1", "builtin"), Site()).driver == "builtin"


def test_nothing_is_asked_for_a_plain_build(tmp_path):
    engine = engine_with(tmp_path, f"touch {tmp_path}/asked; exit 1")
    assert builders.builder_for(engine, Site(), asked=False).driver == "docker"
    assert not (tmp_path / "asked").exists()


def test_a_foreign_builder_is_told_that_it_may_use_the_machines_network(tmp_path):
    engine = engine_with(tmp_path, INSPECT)
    argv = command(engine, Site(builder="farm", build_network="host"), {}, {})
    assert argv[argv.index("--builder") + 1] == "farm"
    assert argv[argv.index("--allow") + 1] == "network.host"
    assert "--allow" not in command(engine, Site(build_network="host"), {}, {})
    assert "--allow" not in command(engine, Site(builder="farm"), {}, {})


def test_where_the_image_goes(tmp_path):
    metadata = tmp_path / "metadata"
    assert builders.output_words(Builder("", "builtin"), None, metadata) == []
    assert builders.output_words(OWN, None, metadata) == ["--load"]
    words = builders.output_words(FARM, REPOSITORY, metadata)
    output = dict(part.split("=", 1) for part in words[words.index("--output") + 1].split(","))
    assert (output["type"], output["push"], output["push-by-digest"]) == ("image", "true", "true")
    assert output["name"] == REPOSITORY
    assert "--provenance=false" in words
    with pytest.raises(EngineError):
        builders.require_push(OWN, REPOSITORY)
    builders.require_push(FARM, REPOSITORY)


def test_a_base_image_of_the_engine_alone_is_refused_to_a_foreign_builder():
    arguments = {"BASE_IMAGE": "trainwright/base:0123456789ab"}
    with pytest.raises(EngineError):
        builders.refuse_local_images(FARM, arguments, "trainwright/base:")
    builders.refuse_local_images(OWN, arguments, "trainwright/base:")
    builders.refuse_local_images(FARM, {"BASE_IMAGE": "docker.io/library/debian:12"}, "trainwright/base:")


@pytest.mark.parametrize(
    ("bad", "offer"),
    [
        (f"{REPOSITORY}:tag", REPOSITORY),
        (f"{REPOSITORY}@sha256:0", REPOSITORY),
        ("pytorch", "/"),
        ("UPPER/case", "/"),
        ("", "/"),
    ],
)
def test_registry_is_a_repository_without_a_tag(bad, offer):
    with pytest.raises(RequestError) as refused:
        BuildOptions(registry=bad)
    assert offer in refused.value.remedy
    assert BuildOptions(registry="localhost:5000/a/b").registry


@pytest.mark.parametrize("bad", ["cache", "team/cache", f"{REPOSITORY}@sha256:0", f"{REPOSITORY}:", "http://x/y", ""])
def test_cache_is_a_repository_of_a_registry(bad):
    with pytest.raises(RequestError):
        BuildOptions(cache=(bad,))


def test_the_first_cache_is_written_and_every_one_is_read(plans):
    imports, exports = cache.cache_options([REPOSITORY, f"{REPOSITORY}:shared_1"], plans[0])
    assert [option.rsplit(":", 1)[1] for option in imports][1] == "shared_1"
    (export,) = exports
    fields = dict(part.split("=", 1) for part in export.split(","))
    assert fields["mode"] == "max"
    # What ECR wants of a cache.
    assert fields["image-manifest"] == fields["oci-mediatypes"] == "true"
    assert imports[0] == f"type=registry,ref={fields['ref']}"
    assert cache.cache_options([], plans[0]) == ([], [])


def test_lines_do_not_overwrite_each_others_cache(plans):
    refs = {cache.cache_options([REPOSITORY], plan)[0][0] for plan in plans}
    assert len(refs) == len(plans)


def test_what_a_builder_cannot_do_with_a_cache_is_said(plans):
    said: list[str] = []
    assert cache.cache_words([REPOSITORY], plans[0], Builder("", "builtin"), say=said.append) == []
    assert len(said) == 1
    words = cache.cache_words([REPOSITORY], plans[0], OWN, say=said.append)
    assert "--cache-from" in words
    assert "--cache-to" not in words
    assert len(said) == 2
    words = cache.cache_words([REPOSITORY], plans[0], FARM, say=said.append)
    assert "--cache-to" in words
    assert len(said) == 2
    assert cache.cache_words([], plans[0], Builder("", "builtin"), say=said.append) == []
    assert len(said) == 2


@given(st.text(alphabet="abcAZ019.:/_-@", max_size=40))
def test_a_reference_that_is_taken_has_a_registry_and_no_digest(reference):
    try:
        cache.check_reference(reference)
    except RequestError:
        return
    host, slash, rest = reference.partition("/")
    assert slash
    assert "." in host or ":" in host or host == "localhost"
    assert "@" not in rest
    assert not any(part == "" for part in rest.split("/"))


def test_trouble_with_a_cache_is_not_the_step_that_failed():
    rows = [
        {"digest": "a", "name": "importing cache manifest from x/y:1", "started": "2026-11-21T10:00:00Z",
         "completed": "2026-11-21T10:00:01Z", "error": "x/y:1: not found"},
        {"digest": "b", "name": "importing cache manifest from x/y:2", "started": "2026-11-21T10:00:00Z",
         "completed": "2026-11-21T10:00:01Z", "error": "denied"},
        {"digest": "c", "name": "[final 1/2] RUN false", "started": "2026-11-21T10:00:02Z",
         "completed": "2026-11-21T10:00:03Z", "error": "exit code: 1"},
    ]  # fmt: skip
    progress = BuildProgress("rawjson")
    progress.feed(json.dumps({"vertexes": rows}))
    progress.close()
    assert progress.failed is not None
    assert progress.failed.name == "[final 1/2] RUN false"
    # A cache that is not there yet is no trouble.
    assert len(progress.cache_troubles) == 1
    assert "denied" in progress.cache_troubles[0]


def test_a_bake_file_has_a_target_for_every_plan(plans):
    document = bake_document(plans, cache=[REPOSITORY], arguments={target_name(plans[0]): {"A": "b"}})
    assert document["group"]["default"]["targets"] == ["pytorch"]
    names = document["group"]["pytorch"]["targets"]
    assert names == [target_name(plan) for plan in plans]
    proving = {f"{name}-{stage}" for name in names for stage in ("proved", "proof")}
    assert set(document["target"]) == {*names, *proving}
    for plan in plans:
        target = document["target"][target_name(plan)]
        assert target["labels"] == plan.labels
        assert len(target["tags"]) == len(plan.tags)
        assert all(tag.startswith("${REGISTRY}/pytorch:") for tag in target["tags"])
        assert len(target["cache-from"]) == len(target["cache-to"]) == 1
        assert "secret" not in target
    assert document["target"][target_name(plans[0])]["args"]["A"] == "b"
    assert document["group"]["proved"]["targets"] == [f"{name}-proved" for name in names]
    with pytest.raises(RequestError):
        bake_document([])
    with pytest.raises(RequestError):
        bake_document([plans[0], plans[0]])
    with pytest.raises(RequestError):
        bake_document(plans, cache=["nowhere"])


def test_bake_proves_no_image_on_a_container_of_aws():
    """What a base contains is found in containers, which a build step does not have."""
    asked = make_request(framework="pytorch", version="2.6.0", base="dlc")
    assert set(bake_document([resolve(asked, load_catalog())])["group"]) == {"default", "pytorch"}


def test_secrets_of_a_bake_file_are_for_its_owner_alone(plans, tmp_path, monkeypatch):
    monkeypatch.setattr("trainwright.pipeline.bake.fetch_base", lambda inputs, **_: inputs)
    monkeypatch.setattr(
        "trainwright.pipeline.bake.write_context",
        lambda *words, **_: fill(words[1], {"Dockerfile": "FROM a\n"}, kind="context", named="x", last="Dockerfile"),
    )
    bundle = tmp_path / "ca.pem"
    bundle.write_text("bundle")
    site = Site(index_url="https://user:secret@packages.example/simple", ca_bundle=bundle)
    inputs = [gather(plan, load_catalog(), site) for plan in plans]
    path = write_bake(inputs, tmp_path / "bake", say=lambda _: None)
    text = path.read_text()
    assert "user:secret" not in text
    target = json.loads(text)["target"][target_name(plans[0])]
    sources = dict(one.split(",src=") for one in target["secret"])
    assert sources["id=ca"] == str(bundle)
    held = path.parent / sources["id=pip"]
    assert "user:secret" in held.read_text()
    assert held.stat().st_mode & 0o077 == 0
    assert (path.parent / "secrets" / ".gitignore").read_text() == "*\n"
    # Again, with one image less: its context goes.
    write_bake(inputs[:1], path.parent, say=lambda _: None)
    assert [folder.name for folder in (path.parent / "contexts").iterdir()] == [target_name(plans[0])]
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "work.txt").write_text("mine")
    with pytest.raises(RequestError):
        write_bake(inputs, tmp_path / "taken", say=lambda _: None)
