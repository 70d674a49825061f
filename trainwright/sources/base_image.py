"""Base images from registries: where this site pulls them from, and whether they match the lock.

A plan names an image as its publisher does (``nvidia/cuda:12.4.1-base-ubuntu22.04``). The site may have a mirror of the
registry, or the image as an archive in a folder; either reaches the build as the build argument ``BASE_IMAGE`` (or
``BUILD_IMAGE``), so Dockerfile, labels and plan stay what they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwright.catalog.nvidia_images import copy_command, other_places, successor
from trainwright.core.errors import SourceError
from trainwright.core.heartbeat import heartbeat, waiting
from trainwright.core.runner import run
from trainwright.core.say import Say
from trainwright.engine.engine import Engine
from trainwright.plan.plan import Base
from trainwright.site.site import Site
from trainwright.sources.inputs import BaseImage

DEFAULT_REGISTRY = "docker.io"
PULL_SECONDS = 3600
LOADED = "trainwright/base:"  # names in the engine for images of a site's folder


@dataclass(frozen=True)
class PulledImage:
    """An image in the engine: the id of its content, and its digest if it came from a registry."""

    image_id: str
    digest: str | None


def canonical(reference: str) -> str:
    """A reference in full: ``debian:12`` is ``docker.io/library/debian:12``."""
    first, slash, _ = reference.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return reference
    return f"{DEFAULT_REGISTRY}/{reference if slash else f'library/{reference}'}"


def mirrored(reference: str, registries: Mapping[str, str]) -> str:
    """What an image is pulled as at this site: the longest matching prefix in ``registries`` is replaced.

    A reference without a matching prefix stays as it is.
    """
    full = canonical(reference)
    for name in sorted(registries, key=len, reverse=True):
        if full.startswith(name.rstrip("/") + "/"):
            return registries[name].rstrip("/") + full[len(name.rstrip("/")) :]
    return reference


def images_of(base: Base, ids: Mapping[str, str | None], site: Site) -> tuple[BaseImage, ...]:
    """The registry images of a base.

    Args:
        base: of the plan, with the digests of its lock if there is one.
        ids: the image ids in the lock, by build argument; empty without a lock.
        site: its mirrors of registries, and its folder of images.
    """
    rows = (("BASE_IMAGE", base.image, base.digest), ("BUILD_IMAGE", base.build_image, base.build_digest))
    found = []
    for argument, name, digest in rows:
        if name is not None:
            image_id, folder = ids.get(argument), site.image_folder
            path = image_file(folder, image_id) if folder is not None and image_id else None
            found.append(BaseImage(argument, name, digest, image_id, mirrored(name, site.registries), path))
    return tuple(found)


def build_arguments(images: Iterable[BaseImage], engine: Engine, *, say: Say) -> dict[str, str]:
    """The build arguments that name the base images of a build.

    Args:
        images: of the plan.
        engine: has, loads or will pull them.
        say: progress callback.

    Raises:
        SourceError: an archive in the site's folder contains another image, or an image that is pinned only by its id
            is missing.
    """
    arguments = {}
    for image in images:
        if image.image_id and image.path is not None:
            arguments[image.argument] = _from_folder(image.name, image.image_id, image.path, engine, say)
        elif image.image_id and image.digest is None:
            if (found := inspect(engine, image.reference)) is None or found.image_id != image.image_id:
                raise SourceError(
                    f"the base: the image {image.reference} that the lock pins, {image.image_id[7:19]}, is not in this "
                    "engine",
                    remedy="It did not come from a registry: copy it here with docker load, or lock another one: "
                    "./invoke lock … --upgrade base",
                    component="base",
                    file=image.name,
                    expected=image.image_id,
                    found=found.image_id if found else None,
                    urls=[image.reference],
                )
            arguments[image.argument] = image.reference
        elif image.reference != image.name:
            arguments[image.argument] = image.pinned
    return arguments


def image_file(folder: Path, image_id: str) -> Path:
    """The path of an image in a folder of images."""
    return folder / f"{image_id.removeprefix('sha256:')}.tar"


def _from_folder(image: str, image_id: str, path: Path, engine: Engine, say: Say) -> str:
    """The engine's name for an image of the folder; loads the image if necessary."""
    name = f"{LOADED}{image_id[7:19]}"
    if inspect(engine, image_id) is None:
        say(f"loading {image} from {path}")
        with heartbeat(say, waiting(f"loading {image}")):
            done = run([engine.client.path, "load", "--input", str(path)], env=engine.cli_env, timeout=PULL_SECONDS)
        # An image's id is the digest of its configuration, which names each layer by its digest.
        if inspect(engine, image_id) is None:
            why = "no such file" if not path.is_file() else done.tail(2) if not done.ok else "is another image"
            raise SourceError(
                f"the base: {image} ({image_id[7:19]}) cannot be loaded\n  {path}: {why}",
                remedy=f"Fetch it again on a machine with network access: rm -f {path}; "
                f"./invoke mirror pull --lock FILE --to {path.parent.parent}",
                component="base",
                file=path.name,
                expected=image_id,
                urls=[str(path)],
            )
    run([engine.client.path, "tag", image_id, name], env=engine.cli_env)
    return name


def inspect(engine: Engine, reference: str) -> PulledImage | None:
    """An image in the engine, or None."""
    done = run([engine.client.path, "image", "inspect", "--format", "{{json .}}", reference], env=engine.cli_env)
    if not done.ok:
        return None
    data = json.loads(done.stdout)
    repository = re.sub(r"(@.*|:[^/]*)$", "", reference.partition("@")[0])
    wanted = {canonical(repository), repository}
    digests = [each.partition("@") for each in data.get("RepoDigests") or []]
    digest = next((d for name, _, d in digests if name in wanted or canonical(name) in wanted), None)
    return PulledImage(image_id=str(data["Id"]), digest=digest)


def pull(engine: Engine, reference: str, *, say: Say) -> PulledImage:
    """Pull an image; if that fails and the engine has it, use the engine's.

    Raises:
        SourceError: neither has it; names where else an image of NVIDIA's is, or what replaces it.
    """
    say(f"pulling {reference}")
    with heartbeat(say, waiting(f"pulling {reference}")):
        done = run([engine.client.path, "pull", "--quiet", reference], env=engine.cli_env, timeout=PULL_SECONDS)
    found = inspect(engine, reference)
    if found is None:
        raise SourceError(
            f"the base: the engine cannot pull {reference}\n  {done.tail(2)}",
            remedy="\n".join(
                [
                    "Set a mirror of the registry ([registries] in trainwright.toml, docs/site.md), "
                    "or copy the image here: docker load -i FILE",
                    *elsewhere(reference),
                ]
            ),
            component="base",
            file=reference,
            urls=[reference],
        )
    if not done.ok:
        say(f"{reference} cannot be pulled; using the engine's image")
    return found


def elsewhere(reference: str) -> list[str]:
    """What to do about an image of NVIDIA's that cannot be pulled, one line each; empty for all other images."""
    plain = reference.partition("@")[0]
    if later := successor(plain):
        return [
            f"NVIDIA deleted this tag. Set its successor as image of the line's base: {later}; or, if a machine still "
            f"has the image, copy it: {copy_command(plain)}."
        ]
    return [
        f"The same image is {other}: {fetch_command(other, plain)}, or for every image of NVIDIA's "
        f'under [registries]: "docker.io/nvidia" = "{other.partition("/cuda:")[0]}"'
        for other in other_places(plain)
    ]


def fetch_command(other: str, name: str) -> str:
    """The command that pulls an image from another registry and gives it the name that a build uses."""
    return f"docker pull {other} && docker tag {other} {name}"


def save(engine: Engine, image_id: str, folder: Path) -> Path:
    """Write an image into a folder as an archive of ``docker save``, atomically.

    Raises:
        SourceError: the engine cannot write it.
    """
    path = image_file(folder, image_id)
    folder.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    done = run([engine.client.path, "save", "--output", str(part), image_id], env=engine.cli_env, timeout=PULL_SECONDS)
    if not done.ok:
        part.unlink(missing_ok=True)
        raise SourceError(f"the engine cannot save the image {image_id[7:19]}: {done.tail(2)}", component="base")
    part.chmod(0o644)
    part.replace(path)
    return path
