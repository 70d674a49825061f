"""Base images of registries: mirrors stand in by prefix, and an image is the one that the lock pins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.errors import RequestError, SourceError
from trainwright.core.runner import Completed
from trainwright.engine.engine import Client, Engine
from trainwright.plan.plan import Base
from trainwright.site.site import Site, load_site
from trainwright.sources import base_image
from trainwright.sources.base_image import canonical, images_of, mirrored
from trainwright.sources.inputs import with_digest

DIGEST = "sha256:" + "d" * 64
IDS = {"BASE_IMAGE": "sha256:" + "1" * 64, "BUILD_IMAGE": "sha256:" + "2" * 64}
IMAGES = Base(kind="nvidia", os="ubuntu-20.04", image="nvidia/cuda:1-base", build_image="nvidia/cuda:1-devel")
ENGINE = Engine(Client("/usr/bin/docker", "builtin", "20.10", "plain"), "20.10")


def quiet(_: str) -> None:
    """Nobody listens."""


@pytest.mark.parametrize(
    ("reference", "full"),
    [
        ("debian:12", "docker.io/library/debian:12"),
        ("nvidia/cuda:1", "docker.io/nvidia/cuda:1"),
        ("public.ecr.aws/a/b:1", "public.ecr.aws/a/b:1"),
        ("localhost/a:1", "localhost/a:1"),
        ("host:5000/a:1", "host:5000/a:1"),
    ],
)
def test_a_reference_in_full(reference, full):
    assert canonical(reference) == full
    assert canonical(full) == full


@pytest.mark.parametrize(
    ("reference", "here"),
    [
        ("debian:12", "mirror.example/hub/library/debian:12"),
        ("nvidia/cuda:1", "mirror.example/nvidia-only/cuda:1"),
        ("docker.io/nvidia/cuda:1", "mirror.example/nvidia-only/cuda:1"),
        ("public.ecr.aws/a/b:1", "mirror.example/ecr/a/b:1"),
        ("public.ecr.aws.evil.example/a:1", "public.ecr.aws.evil.example/a:1"),
        ("quay.io/a:1", "quay.io/a:1"),
    ],
)
def test_the_longest_name_of_a_registry_is_replaced(reference, here):
    registries = {
        "docker.io": "mirror.example/hub",
        "docker.io/nvidia": "mirror.example/nvidia-only",
        "public.ecr.aws": "mirror.example/ecr/",
    }
    assert mirrored(reference, registries) == here
    assert mirrored(reference, {}) == reference


@given(st.from_regex(r"[a-z0-9]{1,9}(/[a-z0-9]{1,9}){0,2}:[a-z0-9]{1,5}", fullmatch=True))
def test_a_mirror_changes_the_registry_alone(reference):
    here = mirrored(reference, {"docker.io": "m.example:5000/x"})
    assert here.startswith("m.example:5000/x/")
    assert canonical(reference).removeprefix("docker.io") == here.removeprefix("m.example:5000/x")


def test_a_digest_is_added_once():
    assert with_digest("a:1", DIGEST) == f"a:1@{DIGEST}"
    assert with_digest(f"a:1@{DIGEST}", DIGEST) == f"a:1@{DIGEST}"
    assert with_digest("a:1", None) == "a:1"


class Docker:
    """Stands in for the client: the images that it has by reference, those that it can load, what it was told."""

    def __init__(self, has: dict[str, str], loads: dict[str, str] | None = None) -> None:
        self.has, self.loads = has, loads or {}
        self.calls: list[list[str]] = []

    def __call__(self, argv, **_) -> Completed:
        words = list(argv[1:])
        self.calls.append(words)
        out, code = "", 0
        if words[:2] == ["image", "inspect"]:
            found = self.has.get(words[-1]) or (words[-1] if words[-1] in self.has.values() else None)
            code = 0 if found else 1
            out = json.dumps({"Id": found, "RepoDigests": [f"mirror.example/hub/nvidia/cuda@{DIGEST}"]})
        elif words[0] == "load":
            path = Path(words[-1])
            if not path.is_file() or path.name not in self.loads:
                code = 1
            else:
                self.has[path.name] = self.loads[path.name]
        elif words[0] == "pull":
            code = 0 if words[-1] in self.has else 1
        return Completed(tuple(argv), code, out, "no such thing", 0.0)


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Docker:
    made = Docker({})
    monkeypatch.setattr(base_image, "run", made)
    return made


def arguments(base: Base, ids: dict[str, str | None], site: Site) -> dict[str, str]:
    return base_image.build_arguments(images_of(base, ids, site), ENGINE, say=quiet)


def test_a_mirror_and_a_lock_make_build_arguments(docker):
    site = Site(registries={"docker.io": "mirror.example/hub"})
    base = IMAGES.replace(digest=DIGEST)
    assert arguments(base, {}, site) == {
        "BASE_IMAGE": f"mirror.example/hub/nvidia/cuda:1-base@{DIGEST}",
        "BUILD_IMAGE": "mirror.example/hub/nvidia/cuda:1-devel",
    }
    # Without a mirror the Dockerfile says it all.
    assert arguments(base, {}, Site()) == {}
    assert arguments(Base(kind="debian", os="debian-12"), {}, site) == {}


def test_images_of_a_folder_are_loaded_once_and_held_to_their_ids(docker, tmp_path):
    site = Site(image_folder=tmp_path)
    for image_id in IDS.values():
        path = base_image.image_file(tmp_path, image_id)
        path.write_bytes(b"")
        docker.loads[path.name] = image_id
    for _ in range(2):
        found = arguments(IMAGES, IDS, site)
        assert found == {name: f"trainwright/base:{image_id[7:19]}" for name, image_id in IDS.items()}
    assert len([words for words in docker.calls if words[0] == "load"]) == len(IDS)


@pytest.mark.parametrize("how", ["missing", "broken", "another image"])
def test_a_folder_without_the_right_image_ends_with_8(docker, tmp_path, how):
    path = base_image.image_file(tmp_path, IDS["BASE_IMAGE"])
    if how != "missing":
        path.write_bytes(b"")
    if how == "another image":
        docker.loads[path.name] = "sha256:" + "9" * 64
    with pytest.raises(SourceError) as refused:
        arguments(IMAGES, IDS, Site(image_folder=tmp_path))
    assert refused.value.exit_code == 8
    assert refused.value.details["component"] == "base"
    assert str(path) in refused.value.message
    assert "mirror pull" in refused.value.remedy


def test_an_image_of_no_registry_has_to_be_the_one_of_the_lock(docker):
    base = Base(kind="debian", os="debian-12", image="team/base:1")
    docker.has["team/base:1"] = IDS["BASE_IMAGE"]
    assert arguments(base, IDS, Site()) == {"BASE_IMAGE": "team/base:1"}
    docker.has["team/base:1"] = IDS["BUILD_IMAGE"]
    with pytest.raises(SourceError, match="not in this engine"):
        arguments(base, IDS, Site())


def test_what_cannot_be_pulled_names_the_mirror(docker):
    with pytest.raises(SourceError, match="cannot pull gone:1") as refused:
        base_image.pull(ENGINE, "gone:1", say=quiet)
    assert "[registries]" in refused.value.remedy
    docker.has["mirror.example/hub/nvidia/cuda:1"] = IDS["BASE_IMAGE"]
    pulled = base_image.pull(ENGINE, "mirror.example/hub/nvidia/cuda:1", say=quiet)
    assert (pulled.image_id, pulled.digest) == (IDS["BASE_IMAGE"], DIGEST)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("nvidia/cuda:11.2.1-base-ubuntu20.04", ["deleted", "nvidia/cuda:11.2.2-base-ubuntu20.04", "docker save"]),
        (
            "nvidia/cuda:11.3.1-base-ubuntu20.04",
            ["docker pull nvcr.io/nvidia/cuda:11.3.1-base-ubuntu20.04", 'nvcr.io/nvidia"'],
        ),
        ("nvidia/cuda:11.3.1-base-ubuntu20.04@sha256:" + "d" * 64, ["docker tag nvcr.io/nvidia/cuda:11.3.1-base"]),
    ],
)
@pytest.mark.usefixtures("docker")
def test_an_image_of_nvidia_that_cannot_be_pulled_has_another_place_or_a_successor(image, words):
    with pytest.raises(SourceError) as refused:
        base_image.pull(ENGINE, image, say=quiet)
    assert all(word in refused.value.remedy for word in words)


def test_the_site_names_registries(tmp_path):
    (tmp_path / "trainwright.toml").write_text('[registries]\n"docker.io" = "mirror.example:5000/hub"\n')
    assert load_site(cwd=tmp_path, environ={"HOME": "/", "PIP_CONFIG_FILE": "/dev/null"}).registries == {
        "docker.io": "mirror.example:5000/hub"
    }
    (tmp_path / "trainwright.toml").write_text('[registries]\n"docker.io" = "https://mirror.example"\n')
    with pytest.raises(RequestError, match="registries"):
        load_site(cwd=tmp_path, environ={"HOME": "/", "PIP_CONFIG_FILE": "/dev/null"})
