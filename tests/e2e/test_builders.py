"""Builders that are not the engine's own: images by digest through a registry, registry caches, bake files."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.packages import unpacked
from tests.doubles.registry import registry
from tests.doubles.remote_builder import RELEASE, RemoteBuilder, buildx_configuration, remote_builder
from tests.support import builds
from tests.support.documents import validated
from tests.support.loopback import dead_url
from trainwright.build.ledger import LedgerRow
from trainwright.build.options import BuildOptions
from trainwright.core.errors import EngineError, ProofFailed, RegistryRefused
from trainwright.engine.engine import connect, find_client
from trainwright.pipeline.bake import target_name, write_bake
from trainwright.pipeline.sharing import SharedImage, groups
from trainwright.plan.plan import PLAN_LABEL, Expectation, Plan
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.prove.in_build import ALL, ASKED, BUILD, read
from trainwright.site.site import load_site
from trainwright.sources.gather import gather

TAG = "trainwright-test/builders:1"
MANIFESTS = "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json"


@pytest.fixture(scope="module")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A client with buildx, for this module."""
    made = buildx_configuration(tmp_path_factory.mktemp("client"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_CONFIG", str(made))
        yield made


@pytest.fixture(scope="module")
def farm(configuration: Path) -> Iterator[RemoteBuilder]:
    if os.geteuid() != 0 or shutil.which("runc", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip("a second engine needs root and runc")
    unpacked("docker.io", release=RELEASE)
    with remote_builder(Path(tempfile.mkdtemp(prefix="tw-")), configuration) as builder:
        yield builder


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory, docker: Any) -> Iterator[str]:
    """The address of a registry; what was pulled from it is gone on the way out."""
    with registry(tmp_path_factory.mktemp("registry")) as port:
        yield f"127.0.0.1:{port}"
        pulled = docker("images", "--digests", "--format", "{{.Repository}}@{{.Digest}}", f"127.0.0.1:{port}/*/*")
        for reference in pulled.split():
            docker("rmi", reference, check=False)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, docker: Any) -> Iterator[None]:
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("TRAINWRIGHT_REVISION", "0" * 40)  # a commit in the middle of the tests changes no image
    yield
    docker("rmi", "--force", TAG, check=False)


def small_plan(catalog: Any, **changes: Any) -> Plan:
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), catalog)
    return plan.replace(**{"tags": (TAG,), **changes})


def build(catalog: Any, builder: str | None, *, plan: Plan | None = None, **options: Any) -> tuple[Any, list[str]]:
    """The record of a build of the small line, and what was said."""
    site = load_site().replace(builder=builder, build_network="host")
    said: list[str] = []
    chosen = BuildOptions(progress="none", **options)
    record = builds.build(
        gather(plan or small_plan(catalog), catalog, site), connect(setup=False), options=chosen, say=said.append
    )
    return record, said


def ask(address: str, path: str) -> tuple[int, Any]:
    request = urllib.request.Request(f"http://{address}/v2/{path}", headers={"Accept": MANIFESTS})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, None


def tags(address: str, repository: str) -> list[str]:
    status, document = ask(address, f"{repository}/tags/list")
    return (document["tags"] or []) if status == 200 else []


def test_a_builder_pushes_by_digest_and_the_engine_proves(small_catalog, farm, repositories, docker):
    cache = f"{repositories}/team/cache"
    record, said = build(small_catalog, farm.name, registry=f"{repositories}/team/small", cache=(cache,))
    repository, _, digest = record.pushed.partition("@")
    assert repository == f"{repositories}/team/small"
    status, manifest = ask(repositories, f"team/small/manifests/{digest}")
    assert status == 200
    assert manifest["config"]["digest"] == record.image_id
    # No tag in the registry before the proof, and none by this build after it.
    assert tags(repositories, "team/small") == []
    assert docker("image", "inspect", "--format", "{{.Id}}", TAG) == record.image_id
    assert record.probe
    assert {row.name: row for row in record.ledger}["python"].bytes > 0
    (cached,) = tags(repositories, "team/cache")
    assert cached.startswith("pytorch-2.13.0-cpu")
    assert not any("--cache" in line for line in said), said

    # A new machine: the layers of every stage come from the registry, and the image is the same.
    farm.forget()
    again, _ = build(small_catalog, farm.name, registry=f"{repositories}/team/small", cache=(cache,))
    assert again.cached
    assert again.image_id == record.image_id

    # An image that is not what its plan says goes nowhere: the builder keeps it, and sends what it found.
    docker("rmi", "--force", TAG)
    assert any("proves it" in line for line in said), said
    plan = small_plan(small_catalog)
    other = Expectation(component="python", fact=plan.expect[0].fact, value="another")
    wrong = plan.replace(id="0" * 64, expect=(other,))
    with pytest.raises(ProofFailed, match=r"should be another, the image has 3\.11") as failed:
        build(small_catalog, farm.name, plan=wrong, registry=f"{repositories}/team/wrong")
    found = json.loads((Path(failed.value.details["results"]) / "probe.json").read_text())
    assert found["facts"]["python"]
    assert ask(repositories, "team/wrong/tags/list")[0] == 404, "nothing was pushed"
    assert not docker("image", "inspect", TAG, check=False).startswith("[{")

    # Without a registry the image is loaded into the engine.
    loaded, _ = build(small_catalog, farm.name)
    assert loaded.pushed is None
    assert docker("image", "inspect", "--format", "{{.Id}}", TAG) == loaded.image_id


def test_an_image_stays_where_it_was_built(program, farm, repositories, docker, tmp_path):
    site, repository = tmp_path / "site.toml", f"{repositories}/team/stays"
    site.write_text('build_network = "host"\n')
    words = ("--framework", "pytorch", "--cuda", "cpu")
    own = {"TRAINWRIGHT_STATE": str(tmp_path / "state"), "DOCKER_CONFIG": str(farm.configuration)}
    where = ("--builder", farm.name, "--registry", repository, "--stay", "--site", str(site))
    done = program("build", *words, *where, "--json", **own)
    assert done.code == 0, done.err[-4000:]
    document = validated(done.out)
    name, _, digest = document["image"].partition("@")
    assert name == repository and tags(repositories, "team/stays") == []
    status, manifest = ask(repositories, f"team/stays/manifests/{digest}")
    assert status == 200 and manifest["layers"]
    here = docker("image", "inspect", "--format", "{{.Id}}", manifest["config"]["digest"], check=False)
    assert not here.startswith("sha256:"), "it came here"
    results = Path(document["results"])
    proof = read(results, results / ASKED, asked=ALL)
    assert proof.tested and len(proof.rows) >= document["passed"] > 0
    assert document["left"] == proof.left
    assert json.loads((results / BUILD).read_text())["buildkit"] == f"{farm.name} (remote)"
    assert document["next"] == ""  # the registry is not ECR


ELF = b"\x7fELF"
PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\r?\n[A-Za-z0-9+/=\r\n]{64}")


def private_keys(docker: Any, reference: str, folder: Path) -> dict[str, bytes]:
    """Every file of any layer of an image that has a private key in it; libraries bring some for their self-tests."""
    path = folder / "image.tar"
    docker("save", "-o", str(path), reference)
    found: dict[str, bytes] = {}
    with tarfile.open(path) as image:
        manifest: Any = image.extractfile("manifest.json")
        layers = {layer for entry in json.load(manifest) for layer in entry["Layers"]}
        for layer in layers:
            with tarfile.open(fileobj=image.extractfile(layer)) as files:
                opened: Any = files.extractfile
                contents = ((file.name, opened(file).read()) for file in files if file.isfile())
                found |= {n: data for n, data in contents if not data.startswith(ELF) and PRIVATE_KEY.search(data)}
    path.unlink()
    return found


def test_users_of_one_cache_share_no_key(small_catalog, farm, repositories, docker, tmp_path):
    """Two plans through one registry cache, the second on an empty builder, as a second machine of a team builds it."""
    plan, address = small_plan(small_catalog), f"{repositories}/team"
    # Another label, which comes last: every layer can be taken from the cache.
    other = plan.replace(id="1" * 64, labels={**plan.labels, "io.trainwright.plan": "1" * 64})
    first, _ = build(small_catalog, farm.name, plan=plan, registry=f"{address}/keys", cache=(f"{address}/keys-cache",))
    farm.forget()
    second, _ = build(
        small_catalog, farm.name, plan=other, registry=f"{address}/keys", cache=(f"{address}/keys-cache",)
    )
    assert first.image_id != second.image_id
    (one, two) = (
        json.loads(docker("image", "inspect", image))[0]["RootFS"]["Layers"]
        for image in (first.image_id, second.image_id)
    )
    assert one == two, "the second build took its layers from the cache"
    assert private_keys(docker, first.image_id, tmp_path) == {}
    made = set()
    for image in (first.image_id, second.image_id):
        # What was one key for all is now one for every start.
        start = "/usr/sbin/sshd && cat /root/.ssh/id_ed25519.pub /etc/ssh/ssh_host_*_key.pub"
        for _ in range(2):
            keys = docker("run", "--rm", "--entrypoint", "sh", image, "-c", start).splitlines()
            assert len(keys) == 2, "root's and the server's"
            made |= {line.split()[1] for line in keys}
    assert len(made) == 8


def test_a_registry_that_takes_nothing(small_catalog, farm):
    address = dead_url().removeprefix("http://")
    with pytest.raises(RegistryRefused) as refused:
        build(small_catalog, farm.name, registry=f"{address}/team/small")
    assert refused.value.exit_code == 7
    assert address in refused.value.remedy


def test_a_cache_that_cannot_be_written_is_told_and_fails_nothing(small_catalog, farm):
    address = dead_url().removeprefix("http://")
    record, said = build(small_catalog, farm.name, cache=(f"{address}/team/cache",))
    assert record.image_id
    assert any(address in line for line in said)


def test_what_the_engines_own_builder_cannot_do(small_catalog, configuration, repositories):
    with pytest.raises(EngineError, match="by its digest"):
        build(small_catalog, None, registry=f"{repositories}/team/small")
    record, said = build(small_catalog, None, cache=(f"{repositories}/team/cache",))
    assert record.image_id
    assert any("cannot export" in line for line in said)


def test_a_misspelt_builder(small_catalog, farm):
    with pytest.raises(EngineError) as refused:
        build(small_catalog, farm.name[:-1])
    assert farm.name in refused.value.message


def test_a_bake_file_is_read_and_built_by_buildx(small_catalog, configuration, repositories, tmp_path, docker):
    plan = small_plan(small_catalog, tags=("trainwright/builders:1", "trainwright/builders:2"))
    folder = tmp_path / "bake"
    path = write_bake(
        [gather(plan, small_catalog, load_site())], folder, cache=[f"{repositories}/cache"], say=lambda _: None
    )
    client, name = find_client().path, target_name(plan)
    environment = {**os.environ, "DOCKER_BUILDKIT": "1", "REGISTRY": "trainwright-test", "SOURCE_REVISION": "abc"}

    def asked(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [client, "buildx", "bake", "--file", path.name, *words]
        return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    def bake(*words: str) -> str:
        done = asked(*words)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    (shown,) = json.loads(bake("--print", "pytorch"))["target"].values()
    assert shown["context"] == f"contexts/{name}"
    assert shown["tags"] == ["trainwright-test/builders:1", "trainwright-test/builders:2"]
    assert shown["args"]["SOURCE_REVISION"] == "abc"
    try:
        # The engine's own builder cannot write a cache.
        bake("--load", "--set", "*.cache-to=", name)
        (image,) = json.loads(docker("image", "inspect", "trainwright-test/builders:1"))
        assert image["Config"]["Labels"]["io.trainwright.plan"] == plan.id
        assert image["Config"]["Labels"]["org.opencontainers.image.revision"] == "abc"
        bake("proved", "proof", "--set", "*.args.PROVE=probe")
        results = folder / "proofs" / name
        assert (results / "passed").is_file()
        # The image matches its plan but cannot train: it has no `train`.
        refused = asked("proved")
        assert refused.returncode != 0
        assert "test_train_is_on_path_and_executable" in refused.stderr
        bake("proof")
        assert not (results / "passed").exists() or "not proven" in (results / "said").read_text()
    finally:
        docker("rmi", "--force", "trainwright-test/builders:1", "trainwright-test/builders:2", check=False)


def test_stages_that_images_share_are_built_once(small_catalog, farm, repositories):
    """As the jobs of a batch do it: one machine builds the stages of a group, the others have them of the cache."""
    plan = small_plan(small_catalog)
    changed = {"id": "1" * 64, "labels": {**plan.labels, PLAN_LABEL: "1" * 64}}
    other = plan.replace(**changed, environment={**plan.environment, "OTHER": "yes"})
    images = [
        SharedImage(name, each, render_dockerfile(each, small_catalog)) for name, each in (("a", plan), ("b", other))
    ]
    (group,) = groups(images)
    site = load_site().replace(builder=farm.name, build_network="host")

    def stages_of(each: Plan, shared: str) -> list[bool]:
        options = BuildOptions(progress="none", cache=(shared,))
        farm.forget()
        progress = builds.build_stages(
            gather(each, small_catalog, site),
            connect(setup=False),
            names=group.stages,
            options=options,
            say=lambda _: None,
        )
        return [v.cached for v in progress.steps if v.stage in group.stages and not v.text.startswith("FROM ")]

    def rows_of(shared: str) -> dict[str, LedgerRow]:
        farm.forget()
        record, _ = build(small_catalog, farm.name, plan=other, cache=(f"{shared}-b", shared))
        return {row.name: row for row in record.ledger}

    # BuildKit now and then misses a step of a registry's cache (moby/buildkit #4674), writing or reading: up to three
    # attempts, each with a cache and a builder without any step.
    for attempt in range(3):
        shared = f"{repositories}/team/cache:{group.name}-{attempt}"
        assert not any(stages_of(plan, shared))
        assert tags(repositories, "team/cache")
        again, rows = stages_of(other, shared), rows_of(shared)
        if all(again) and rows["tools"].cached:
            break

    assert again
    assert all(again)
    # An image that is told of its group's cache builds only what is its own.
    # Not the row of os: the loader's cache, which every image makes for itself, is part of it.
    assert rows["base"].cached
    assert rows["tools"].cached
    assert not rows["ssh"].cached
