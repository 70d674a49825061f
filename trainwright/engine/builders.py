"""Buildx builders: selects one, and knows what each can do.

A builder with another driver (``docker-container``, ``kubernetes``, ``remote``) does not see the engine's images: it
pushes to a registry, or its image is loaded into the engine. In both cases the engine proves the image.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwright.core.errors import EngineError, RegistryRefused, RequestError, did_you_mean
from trainwright.core.runner import run
from trainwright.engine.engine import ANSWER_SECONDS, Engine
from trainwright.site.site import Site

PULL_SECONDS = 3600.0
BOOT_SECONDS = 180.0  # `inspect --bootstrap` pulls the image of a builder that was never used
CREATE = "docker buildx create --name trainwright --driver docker-container"
# A repository with its registry, without tag and digest (distribution/reference).
_REPOSITORY = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*(?::[0-9]+)?(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)+")
_REFUSED = re.compile(
    r"unauthorized|denied|no basic auth|forbidden|name unknown|does not exist|failed to (authorize|push|fetch oauth)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Builder:
    """A builder.

    Attributes:
        name: empty if the client decides.
        driver: of buildx: ``docker`` is the engine's own BuildKit, ``builtin`` that of a client without buildx.
        image_store: whether it keeps images in containerd, as an engine with the containerd image store does.
    """

    name: str
    driver: str
    image_store: bool = False

    @property
    def own(self) -> bool:
        """Whether it is the engine's own BuildKit."""
        return self.driver in ("builtin", "docker")

    @property
    def exports_cache(self) -> bool:
        """Whether it can write a registry cache (buildx: not the docker driver on the engine's old image store)."""
        return self.driver != "builtin" and (not self.own or self.image_store)


def find_builder(engine: Engine, site: Site) -> Builder:
    """The builder of this site: the named one, else the client's default.

    Raises:
        EngineError: the builder does not exist or start, or the client has no buildx.
    """
    name = site.builder or ""
    if engine.client.buildkit != "buildx":
        if name:
            raise needs_buildx(engine, name)
        return Builder("", "builtin")
    argv = [engine.client.path, "buildx", "inspect"]
    said = run([*argv, "--bootstrap", *([name] if name else [])], env=engine.cli_env, timeout=BOOT_SECONDS)
    driver = re.search(r"^Driver:\s*(\S+)", said.stdout, re.MULTILINE)
    if driver is None or not said.ok:
        raise _no_builder(engine, name, said.tail(3))
    # An engine with the old image store does not list a snapshotter.
    return Builder(name, driver[1], image_store="buildkit.worker.snapshotter" in said.stdout)


def builder_for(engine: Engine, site: Site, *, asked: bool) -> Builder:
    """The builder of a build. It is inspected only if it is not the engine's own, or if ``asked`` is set.

    Raises:
        EngineError: as :func:`find_builder`.
    """
    if asked or site.builder:
        return find_builder(engine, site)
    return Builder("", "docker" if engine.client.buildkit == "buildx" else "builtin")


def needs_buildx(engine: Engine, name: str) -> EngineError:
    """The failure if a builder is named but the client has no buildx."""
    return EngineError(
        f"the builder {name!r} cannot be used: {engine.client.path} has no buildx",
        remedy="Install the docker-buildx plugin (0.13 or newer), or use no builder (`builder` in the site file, "
        "or ./invoke build --builder).",
    )


def _no_builder(engine: Engine, name: str, why: str) -> EngineError:
    listed = run([engine.client.path, "buildx", "ls"], env=engine.cli_env, timeout=ANSWER_SECONDS)
    # Nodes of a builder are indented; the one in use has a star.
    known = [line.split()[0].rstrip("*") for line in listed.stdout.splitlines()[1:] if line[:1].strip()]
    if name and name not in known:
        return EngineError(f"--builder {name}: buildx has no such builder. {did_you_mean(name, known)}", remedy=CREATE)
    return EngineError(
        f"the builder {name or '(default)'} does not answer: {why}",
        remedy=f"{engine.client.path} buildx inspect --bootstrap {name}".strip(),
    )


def check_registry(repository: str) -> str:
    """Check the repository of ``--registry``; returns it unchanged.

    Raises:
        RequestError: it is invalid, or has a tag: an image gets its tags only once it is proven.
    """
    if _REPOSITORY.fullmatch(repository):
        return repository
    untagged = re.sub(r"(@.*|:[^/:]*)$", "", repository)
    near = untagged if _REPOSITORY.fullmatch(untagged) else "123456789012.dkr.ecr.us-west-2.amazonaws.com/team/pytorch"
    raise RequestError(
        f"--registry {repository}: not a repository without a tag",
        remedy=f"For example: --registry {near}   (the image gets its tags from ./invoke push, once it is proven)",
    )


def require_push(builder: Builder, registry: str) -> None:
    """Check that a builder can push what it builds.

    Raises:
        EngineError: it is the engine's own, which cannot push by digest.
    """
    if builder.own:
        raise EngineError(
            f"--registry {registry}: the engine's own BuildKit cannot push what it builds by its digest",
            remedy=f"{CREATE}; then --builder trainwright. Or build here, and ./invoke push.",
        )


def refuse_local_images(builder: Builder, arguments: Mapping[str, str], loaded: str) -> None:
    """Check that a builder which does not see the engine's images needs none of them.

    Args:
        builder: the builder.
        arguments: build arguments with the names of base images.
        loaded: prefix of the names of images that exist only in the engine.

    Raises:
        EngineError: a base image exists only in the engine.
    """
    for name in arguments.values():
        if not builder.own and name.startswith(loaded):
            raise EngineError(
                f"the base image {name} exists only in this engine, and the builder {builder.name} cannot use it",
                remedy="Push it to a registry that the builder can reach, name that in [registries] of the site file, "
                "or build without --builder.",
            )


def output_words(builder: Builder, registry: str | None, metadata: Path) -> list[str]:
    """The arguments for the output: into the engine, or by digest into a repository."""
    if builder.driver == "builtin":
        return []
    if registry is None:
        return ["--load"] if builder.own else ["--load", "--provenance=false"]
    # A single manifest instead of an index with attestations: its digest is the image's.
    output = f"type=image,name={registry},push=true,push-by-digest=true,name-canonical=true"
    return ["--output", output, "--provenance=false", "--metadata-file", str(metadata)]


def pushed_image(registry: str, metadata: Path) -> tuple[str, str]:
    """The id of an image that a builder pushed, and its address by digest.

    Args:
        registry: the repository of ``--registry``.
        metadata: the file that the client wrote.
    """
    said = json.loads(metadata.read_text())
    return str(said.get("containerimage.config.digest", "")), f"{registry}@{said['containerimage.digest']}"


def pull_pushed(engine: Engine, reference: str) -> str:
    """Pull what a builder pushed, to prove it here; returns the image's id.

    Args:
        engine: the engine that pulls; it checks the digest.
        reference: the address by digest.

    Raises:
        RegistryRefused: it cannot be pulled.
    """
    done = run([engine.client.path, "pull", "--quiet", reference], env=engine.cli_env, timeout=PULL_SECONDS)
    if not done.ok:
        raise RegistryRefused(
            f"{reference} was pushed, but could not be pulled for its proof: {done.tail(3)}",
            remedy=f"{engine.client.path} pull {reference}   # then build again: the steps are in the builder's cache",
            reference=reference,
        )
    shown = run([engine.client.path, "image", "inspect", "--format", "{{.Id}}", reference], env=engine.cli_env)
    if not shown.ok:
        raise EngineError(f"the engine cannot find the image that it pulled: {shown.tail(2)}")
    return shown.stdout.strip()


def push_failure(registry: str | None, said: str, log: str) -> RegistryRefused | None:
    """The failure of the builder's push, if the last lines of the build are about one."""
    if registry is None or not _REFUSED.search(said):
        return None
    host = registry.partition("/")[0]
    return RegistryRefused(
        f"{registry} did not accept the image: {said.strip()[:400]}",
        remedy=f"Log in (docker login {host}) and check that the repository exists; then the same build continues from "
        f"the builder's cache. Full log: {log}",
        registry=registry,
    )
