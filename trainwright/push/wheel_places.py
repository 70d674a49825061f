"""Where a site keeps compiled wheels for all its machines: a folder, a bucket of S3, or a repository of a registry.

An entry has the name of its key. In a registry it is an image of one layer, which the docker client pushes and pulls
with its own logins; no layer of any other image contains it.
"""

from __future__ import annotations

import re
import shutil
import tarfile
import tempfile
import uuid
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from trainwright.core.errors import RegistryRefused, RequestError
from trainwright.core.runner import Completed, run
from trainwright.engine.engine import Engine
from trainwright.push.ecr import aws_client
from trainwright.site.site import Site, stated_region

if TYPE_CHECKING:
    from trainwright.build.wheel_cache import WheelPlace

_TRANSFER_SECONDS = 1800.0
_INSIDE = "wheel"  # the folder of an image that holds an entry
# What registries answer where a tag or a repository is missing.
_MISSING = re.compile(r"not found|manifest unknown|name unknown|does not exist", re.IGNORECASE)


def place_of(site: Site, engine: Engine) -> WheelPlace | None:
    """The place that a site names.

    Args:
        site: with ``wheels``.
        engine: whose client speaks to a registry.

    Raises:
        RequestError: a bucket is named, and no region.
        RegistryRefused: the profile in the environment does not exist.
    """
    if site.wheels is None:
        return None
    kind, _, address = site.wheels.rpartition("://")
    if kind == "oci":
        return RegistryPlace(address, engine)
    if kind == "s3":
        region = site.aws.region or stated_region()
        if region is None:
            raise RequestError(
                f"wheels = {site.wheels!r}: no AWS region is known",
                remedy="Set region in [aws] of the site file, or AWS_REGION.",
            )
        bucket, _, prefix = address.partition("/")
        return BucketPlace(bucket, prefix, aws_client("s3", region, site))
    return FolderPlace(Path(address))


class FolderPlace:
    """A folder, such as one of a network file system. It is made when the first wheel is kept."""

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self._folder = folder

    def fetch(self, key: str, folder: Path) -> bool:
        """Copy the files of an entry into a folder; whether there is such an entry."""
        entry = self._folder / key
        if not entry.is_dir():
            return False
        try:
            shutil.copytree(entry, folder, dirs_exist_ok=True)
        except (OSError, shutil.Error) as wrong:
            raise RegistryRefused(f"{entry}: cannot be read: {wrong}") from None
        return True

    def store(self, key: str, folder: Path) -> None:
        """Copy the files of a folder as an entry, which appears as a whole."""
        part = self._folder / f".{uuid.uuid4().hex}.part"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            shutil.copytree(folder, part)
            shutil.rmtree(self._folder / key, ignore_errors=True)
            part.rename(self._folder / key)
        except OSError as wrong:
            raise RegistryRefused(f"{self._folder}: cannot be written: {wrong}") from None
        finally:
            shutil.rmtree(part, ignore_errors=True)


class BucketPlace:
    """A bucket of S3, or a prefix in it."""

    def __init__(self, bucket: str, prefix: str, client: Any) -> None:
        self._bucket, self._client = bucket, client
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self.name = f"s3://{bucket}/{self._prefix}"

    def fetch(self, key: str, folder: Path) -> bool:
        """Write the archive of an entry into a folder; whether there is such an entry."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._object(key))
            _unpack(answer["Body"], folder)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in ("NoSuchKey", "404"):
                return False
            raise RegistryRefused(f"{self.name}: {error}") from None
        except BotoCoreError as error:
            raise RegistryRefused(f"{self.name}: {error}") from None
        return True

    def store(self, key: str, folder: Path) -> None:
        """Upload the files of a folder as one archive."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            with tempfile.TemporaryFile() as archive:
                _pack(folder, archive)
                archive.seek(0)
                self._client.put_object(Bucket=self._bucket, Key=self._object(key), Body=archive)
        except (BotoCoreError, ClientError) as error:
            raise RegistryRefused(f"{self.name}: {error}") from None

    def _object(self, key: str) -> str:
        return f"{self._prefix}{key}.tar"


class RegistryPlace:
    """A repository of any registry that the docker client is logged in to."""

    def __init__(self, repository: str, engine: Engine) -> None:
        self.name = f"oci://{repository}"
        self._repository, self._engine = repository, engine

    def fetch(self, key: str, folder: Path) -> bool:
        """Pull the image of an entry and copy its files into a folder; whether there is such an image."""
        reference = f"{self._repository}:{key}"
        pulled = self._docker("pull", "--quiet", reference)
        if not pulled.ok and _MISSING.search(pulled.stderr):
            return False
        self._need(pulled)
        container = f"trainwright-wheel-{uuid.uuid4().hex[:12]}"
        try:
            # A container of it is never started: it has no command.
            self._need(self._docker("create", "--name", container, reference, "none", finish=True))
            self._need(self._docker("cp", f"{container}:/{_INSIDE}/.", str(folder)))
        finally:
            self._docker("rm", container)
            self._docker("rmi", reference)
        return True

    def store(self, key: str, folder: Path) -> None:
        """Push the files of a folder as an image."""
        reference = f"{self._repository}:{key}"
        with tempfile.TemporaryDirectory(prefix="trainwright-") as scratch:
            layer = Path(scratch, "layer.tar")
            with layer.open("wb") as archive:
                _pack(folder, archive, f"{_INSIDE}/")
            self._need(self._docker("import", str(layer), reference))
        try:
            self._need(self._docker("push", "--quiet", reference))
        finally:
            self._docker("rmi", reference)

    def _docker(self, *words: str, finish: bool = False) -> Completed:
        argv = [self._engine.client.path, *words]
        return run(argv, env=self._engine.cli_env, timeout=_TRANSFER_SECONDS, finish=finish)

    def _need(self, done: Completed) -> None:
        if not done.ok:
            raise RegistryRefused(
                f"{self.name}: docker {done.argv[1]}: {done.tail(2)}",
                remedy=f"docker login {self._repository.partition('/')[0]}",
            )


def _pack(folder: Path, archive: IO[bytes], inside: str = "") -> None:
    """Write the files of a folder as a tar archive without times and owners."""
    with tarfile.open(fileobj=archive, mode="w") as out:
        for path in sorted(folder.iterdir()):
            member = tarfile.TarInfo(inside + path.name)
            member.size, member.mode = path.stat().st_size, 0o644
            with path.open("rb") as content:
                out.addfile(member, content)


def _unpack(archive: IO[bytes], folder: Path) -> None:
    """The files of an archive, into a folder and nowhere else."""
    try:
        with tarfile.open(fileobj=archive, mode="r|") as packed:
            for member in packed:
                content = packed.extractfile(member)
                if content is None or Path(member.name).name != member.name:
                    raise RegistryRefused(f"an archive with {member.name!r} is not one of ours")
                with (folder / member.name).open("wb") as out:
                    shutil.copyfileobj(content, out)
    except tarfile.TarError as wrong:
        raise RegistryRefused(f"not an archive: {wrong}") from None
