"""An emulated AWS on loopback: ``with emulated_aws() as aws: ...``.

Its registry has ECR's own host names on port 443, so it takes root, and the names are in /etc/hosts and in the engine's
trust while it is open. A name leads to one address on a machine: a second test run that wants the same account and
region waits for the first. Take an account of your own for what takes minutes.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.doubles.api import Api, served
from tests.doubles.certificates import make_certificates
from tests.doubles.ecr_front import Backing, ecr_front
from tests.doubles.faults import Asked, Faults, Wrong
from tests.doubles.images import Images
from tests.doubles.jobs import Jobs
from tests.doubles.machine import HOSTS, WAIT_SECONDS, claimed, known_to_this_machine, scratch_folder
from tests.doubles.names import Registry
from tests.doubles.registry import registry
from tests.doubles.replication import Replication
from tests.doubles.tokens import HALF_A_DAY, Tokens

if TYPE_CHECKING:
    import pytest

ENGINE_SECONDS = 20.0  # Go looks at /etc/hosts every 5 s
MESSAGES = {
    "AccessDeniedException": "User: arn:aws:sts::{account}:user/moto is not authorized to perform: ecr:{operation}",
    "ExpiredTokenException": "The security token included in the request is expired",
    "ThrottlingException": "Rate exceeded",
    "ServerException": "An internal error occurred",
    "UnrecognizedClientException": "The security token included in the request is invalid.",
}


@dataclass
class EmulatedAws:
    """A running one.

    ``token_seconds`` is how long a token of GetAuthorizationToken is good for; with a negative number it has expired.
    ``registry_port`` and ``folder`` are those of the registry behind it.
    """

    account: str
    regions: tuple[str, ...]
    endpoint_url: str
    authority: Path
    faults: Faults
    tokens: Tokens
    jobs: Jobs
    registry_port: int = 0
    folder: Path = Path()
    token_seconds: float = HALF_A_DAY

    def stored(self, digest: str) -> Path:
        """The file in which the registry behind keeps a blob, of whatever repositories."""
        name = digest.removeprefix("sha256:")
        return self.folder / "registry/docker/registry/v2/blobs/sha256" / name[:2] / name / "data"

    def host(self, region: str | None = None, account: str | None = None) -> str:
        """The registry's host name, by default that of the first region."""
        return Registry(account or self.account, region or self.regions[0]).host

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which boto3, in this process or in a child, comes here and nowhere else."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": "AKIAEMULATEDEMULATED",
            "AWS_SECRET_ACCESS_KEY": "emulated",
            "AWS_DEFAULT_REGION": self.regions[0],
            "AWS_REGION": self.regions[0],
            "AWS_CA_BUNDLE": str(self.authority),
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "*",
            "no_proxy": "*",
        }

    def lend(self, patch: pytest.MonkeyPatch) -> None:
        """Have boto3 in this process come here, without a developer's own settings, as long as the patch lasts."""
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in self.environment.items():
            patch.setenv(name, value)

    def child_environment(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """``base`` without a developer's own AWS settings (a profile, a session), and with :attr:`environment`."""
        return {name: value for name, value in base.items() if not name.startswith("AWS_")} | self.environment

    def client(self, service: str, region: str | None = None) -> Any:
        """A boto3 client of this AWS, whatever the environment says."""
        import boto3
        from botocore.config import Config

        return boto3.Session("AKIAEMULATEDEMULATED", "emulated").client(
            service,
            region_name=region or self.regions[0],
            endpoint_url=self.endpoint_url,
            config=Config(proxies={}, retries={"total_max_attempts": 1}),
        )

    def token(self, expires_in: float = HALF_A_DAY) -> str:
        """A password for the registry's user ``AWS``, good for ``expires_in`` seconds (negative: expired)."""
        return self.tokens.issue(expires_in)[0]

    def login(self, expires_in: float = HALF_A_DAY) -> dict[str, str]:
        """The docker SDK's ``auth_config``."""
        return {"username": "AWS", "password": self.token(expires_in)}

    def fail_api(
        self, operation: str, code: str, times: int = 1, status: int = 400, message: str | None = None
    ) -> None:
        """The next ``times`` calls of ``operation`` ("PutImage") are refused with an error of AWS's."""
        text = message or MESSAGES.get(code, code).format(account=self.account, operation=operation)
        self.faults.arm_api(operation, code, text, status, times)

    def fail_registry(self, method: str, path_regex: str, what: Wrong, times: int = 1) -> None:
        """The next ``times`` requests of ``method`` ("*": any) with a path that matches somewhere go wrong.

        Args:
            what: a status; ``reset``: the connection is cut in the middle of the body; ``hang``: never answered, until
                :meth:`release`; ``expire-token``: the token of the request has expired from now on.
        """
        self.faults.arm_registry(method, path_regex, what, times)

    @contextmanager
    def mounting(self) -> Iterator[None]:
        """The repositories of the first region lend layers to each other: the account setting BLOB_MOUNTING."""
        api = self.client("ecr")
        api.put_account_setting(name="BLOB_MOUNTING", value="ENABLED")
        try:
            yield
        finally:
            api.put_account_setting(name="BLOB_MOUNTING", value="DISABLED")

    def release(self) -> None:
        """Forget all faults; requests that hang are cut."""
        self.faults.disarm()

    @property
    def requests(self) -> list[Asked]:
        """Every request to the registry, in the order of their ends; ``requests.clear()`` begins anew."""
        return self.faults.requests

    @property
    def calls(self) -> list[str]:
        """The operations of the API that were called, in their order."""
        return self.faults.calls

    def uploaded(self) -> int:
        """Bytes of blobs that came in."""
        return sum(asked.received for asked in self.requests if "/blobs/uploads/" in asked.path)


def why_not() -> str:
    """Why no AWS can be emulated here; empty where it can."""
    if os.geteuid() != 0:
        return "port 443 and /etc/hosts need root"
    return "" if os.access(HOSTS, os.W_OK) else f"{HOSTS} cannot be written"


@contextmanager
def emulated_aws(
    account: str = "123456789012",
    regions: Sequence[str] = ("us-west-2",),
    other_accounts: Sequence[str] = (),
    *,
    wait_s: float = WAIT_SECONDS,
) -> Iterator[EmulatedAws]:
    """An AWS with nothing in it, undone on the way out.

    Args:
        account: of the caller.
        regions: whose registries have names.
        other_accounts: whose registries have names, too (in the same regions).
        wait_s: seconds to wait for another process that emulates one of these names.
    """
    hosts = [Registry(each, region).host for each in (account, *other_accounts) for region in regions]
    images, tokens, faults = Images(), Tokens(), Faults()
    with ExitStack() as stack:
        stack.enter_context(claimed(hosts, wait_s))
        folder = scratch_folder()
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(_forget, (account, *other_accounts))
        certificates = make_certificates(folder, hosts)
        port = stack.enter_context(registry(folder))
        Replication(images, port)
        address = stack.enter_context(ecr_front(certificates, Backing(port, images, tokens, faults)))
        stack.enter_context(known_to_this_machine(address, hosts, certificates.authority, folder))
        api = Api(account, images, tokens, faults)
        aws = EmulatedAws(
            account,
            tuple(regions),
            stack.enter_context(served(api)),
            certificates.authority,
            faults,
            tokens,
            api.jobs,
            port,
            folder,
        )
        api.token_seconds = lambda: aws.token_seconds
        stack.callback(faults.disarm)
        _engine_finds(aws)
        yield aws


def _forget(accounts: Sequence[str]) -> None:
    """Remove what moto, whose records belong to the process, has of these accounts."""
    from moto.core.base_backend import BackendDict

    for records in BackendDict._instances:  # type: ignore[misc]
        for account in accounts:
            records.pop(account, None)


def _engine_finds(aws: EmulatedAws) -> None:
    """Wait until the engine, if there is one, asks the registry here: it may remember an older /etc/hosts.

    Raises:
        TimeoutError: it does not; an engine on another machine cannot.
    """
    import docker
    from docker.errors import APIError, DockerException

    try:
        engine = docker.from_env(timeout=30)
    except DockerException:
        return
    last: Exception | None = None
    try:
        end = time.monotonic() + ENGINE_SECONDS
        while not aws.requests:
            if time.monotonic() > end:
                raise TimeoutError(f"the container engine does not find {aws.host()}: {last}")
            try:
                engine.images.get_registry_data(f"{aws.host()}/nothing:here")
            except APIError as refused:
                last = refused
            if not aws.requests:
                time.sleep(0.2)
    finally:
        engine.close()
        aws.requests.clear()
