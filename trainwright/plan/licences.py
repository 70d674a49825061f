"""Licences: what a plan says about passing an image on, and which registries everybody can read."""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.catalog.component import Licence
from trainwright.core.errors import RequestError
from trainwright.plan.plan import Base, Plan, PlannedComponent

# Registries whose repositories are public unless they are made private.
PUBLIC = ("docker.io", "index.docker.io", "public.ecr.aws", "ghcr.io", "quay.io", "registry.gitlab.com")

# Of a container of AWS as a whole. Section 1.1 (of 2025-10-22): "You may not transfer outside the Services any software
# […] you obtain from us or third party licensors in connection with the Services without specific authorization". The
# LICENSE of aws/deep-learning-containers (Apache-2.0) is for its sources; it has smdistributed's libraries "released
# under the AWS Customer Agreement" (f06ada0e, 2026-08-19).
OF_AWS = Licence(name="AWS Service Terms, 1.1", redistribute="no", text="https://aws.amazon.com/service-terms/")
# Where that repository's Dockerfiles put them: those of master (f06ada0e) and of TensorFlow 2.21; PyTorch's since 2.11
# (docker/pytorch/Dockerfile.cuda, f1e622e4, 2026-07-22).
INSIDE = "/license.txt, or /root/*_PACKAGES_LICENSES"


def of_base(base: Base) -> Licence | None:
    """The licence of a base image as a whole; None if its components have theirs."""
    return OF_AWS if base.kind == "dlc" else None


def redistribution(components: Sequence[PlannedComponent], base: Base) -> list[str]:
    """The notices about what may not be passed on, or only under conditions: components, and AWS's container."""
    told = []
    for word, says in (
        ("no", "must not be redistributed"),
        ("conditions", "only under the conditions of their licences"),
    ):
        names = [c.name for c in components if c.licence is not None and c.licence.redistribute == word]
        told += [f"{', '.join(names)} {says}"] if names else []
    notices = [f"licences (/licenses in the image): {'; '.join(told)}"] if told else []
    if licence := of_base(base):
        notices.append(
            f"the licence of AWS's container ({licence.name}, {licence.text}) does not allow redistribution outside of "
            f"AWS; the licences of what is in it: {INSIDE} in the image"
        )
    return notices


def check_public(plan: Plan, repository: str, *, allowed: bool) -> None:
    """Check that an image may go to a repository.

    Args:
        plan: of the image.
        repository: host and path.
        allowed: whether the caller says that it may.

    Raises:
        RequestError: the registry is a public one, and components or the base image must not be redistributed.
    """
    host = repository.partition("/")[0]
    host = host if "." in host or ":" in host or host == "localhost" else PUBLIC[0]
    base = (str(plan.base.image),) if of_base(plan.base) else ()
    held = (*base, *plan.restricted("no"), *plan.restricted("conditions"))
    if host in PUBLIC and held and not allowed:
        raise RequestError(
            f"--registry {repository}: {host} is a public registry, and the licences of {', '.join(held)} do not allow "
            "redistribution, or only under conditions",
            remedy="Push to a private registry, or, if the repository is private or you have the permission: "
            "--allow-redistribution. `./invoke plan` and `plan --json` have the licences.",
        )
