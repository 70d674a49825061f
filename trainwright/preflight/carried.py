"""What an image carries: the Python packages of one that was built here, or of the plan that a job file names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from trainwright.core.errors import RequestError, did_you_mean
from trainwright.sagemaker.job import Job
from trainwright.sagemaker.job_parts import PlanRequest

if TYPE_CHECKING:
    from trainwright.build.store import BuildRecord
    from trainwright.plan.plan import Plan


class Carried(NamedTuple):
    """What an image carries: its name, its Python's full version, and versions of packages by normalized name."""

    image: str
    python: str
    packages: Mapping[str, str]


def carried(image: str) -> Carried:
    """The packages of an image that was built here, from its record.

    Args:
        image: a tag, its address in a registry, or the beginning of its id.

    Raises:
        RequestError: no image of that name was built here.
    """
    from trainwright.build.store import all_records

    records = all_records()
    for record in records:
        if image in (*record.tags, record.pushed) or record.image_id.removeprefix("sha256:").startswith(
            image.removeprefix("sha256:") or " "
        ):
            return _of_record(record, image)
    known = [tag for record in records for tag in record.tags]
    raise RequestError(
        f"--image {image}: was not built here, so its packages are not known. {did_you_mean(image, known)}".strip(),
        remedy="./invoke list --built shows the images that were built here.",
    )


def of_job(job: Job) -> Carried:
    """The packages of a job's image: of its build record here, else of the lock of its plan.

    A container of AWS has packages of its own, whatever image line the job's plan names.

    Raises:
        RequestError: they are not known, or the request for the plan is invalid.
        Conflict: no image line fits the request.
    """
    from trainwright.sagemaker.dlc import GALLERY, accounts_of_aws

    image = job.image or ""
    if image.partition(".dkr.ecr.")[0] in accounts_of_aws() or image.startswith(f"{GALLERY}/"):
        raise RequestError(
            f"{image}: a container of AWS, whose packages no image line names",
            remedy="An image that ./invoke build --base dlc makes from it records its packages.",
        )
    return of_plan(resolve_plan(job.plan)) if job.plan else carried(str(job.image))


def of_plan(plan: Plan) -> Carried:
    """The packages of the image that a plan builds: of its build record here, else of its lock.

    Raises:
        RequestError: not all of them are known without a build.
    """
    from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

    from trainwright.build.store import all_records

    name = plan.tags[0]
    for record in all_records():
        if record.plan.id == plan.id:
            return _of_record(record, name)
    if plan.base.kind == "dlc" or plan.unlocked:
        why = "it is not locked" if plan.unlocked else "AWS's base image brings packages that no plan names"
        raise RequestError(f"{name}: its packages are not known before it is built: {why}", remedy="./invoke build")
    packages: dict[str, str] = {}
    for source in (each for component in plan.components for each in component.sources):
        if source.package and "==" in source.package:
            package, _, version = source.package.partition("==")
            packages[str(canonicalize_name(package))] = version
        elif source.file and source.file.endswith(".whl"):
            try:
                wheel, wheel_version, *_ = parse_wheel_filename(source.file)
            except InvalidWheelFilename:
                continue
            packages[str(wheel)] = str(wheel_version)
    return Carried(name, plan.python, packages)


def resolve_plan(image: PlanRequest) -> Plan:
    """Resolve the plan of a job file; nothing is built and no engine is used.

    Raises:
        RequestError: the request is invalid.
        Conflict: no image line fits the request.
    """
    from trainwright.catalog.catalog import open_catalog
    from trainwright.lock import unproven
    from trainwright.plan.request import make_request as request_of
    from trainwright.plan.resolve import resolve
    from trainwright.site.site import load_site

    site = load_site()
    request = request_of(
        framework=image.framework,
        cuda=image.cuda,
        version=image.version,
        python=image.python,
        base=image.base,
        with_=",".join(image.with_) or None,
        without=",".join(image.without) or None,
        for_gpus=",".join(image.for_gpus) or None,
    )
    return resolve(request, open_catalog(), site.base_image, unproven.stored_lock, site.aws.region)


def _of_record(record: BuildRecord, name: str) -> Carried:
    from packaging.utils import canonicalize_name

    found = record.probe.get("distributions", {})
    packages = {str(canonicalize_name(each)): str(version) for each, version in found.items()}
    python = record.probe.get("interpreter", {}).get("version") or record.plan.python
    return Carried(name, str(python), packages)
