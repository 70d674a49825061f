"""Names that lead somewhere: buckets, regions, partitions, registries of AWS; and what is not offered there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.catalog.image_line import version_key
from trainwright.core.errors import did_you_mean
from trainwright.core.findings import Finding, Rule
from trainwright.estimator.image import ECR
from trainwright.estimator.rules_distribution import SDK
from trainwright.estimator.subject import Subject
from trainwright.sagemaker.dlc import FRAMEWORKS, load_dlc, registry_of

BUCKET = Rule(
    code="TW310",
    severity="error",
    title="a bucket name that S3 does not allow",
    source="Amazon S3 user guide, general purpose bucket naming rules: lower-case letters, digits, dots and hyphens, 3 "
    "to 63 characters, no IP address; before March 2018 us-east-1 also took upper case and underscores, up to 255 "
    "characters",
    remedy="Use the bucket's own name.",
)
ELSEWHERE = Rule(
    code="TW311",
    severity="error",
    title="a key, a plan or a role of another region or partition than the job, or a region that does not exist",
    source="AWS General Reference, ARNs; AWS KMS developer guide: a key exists in one region; AWS's developer guide, "
    "training plans: reserved capacity is in one Availability Zone; botocore, endpoints.json: partitions of regions",
    remedy="Use one of the job's region.",
)
NOT_OFFERED = Rule(
    code="TW312",
    severity="error",
    title="debugger or profiler in a region or on an instance type for which SDK 2 refuses it",
    source=f"{SDK}: DEBUGGER_UNSUPPORTED_REGIONS, PROFILER_UNSUPPORTED_REGIONS, _instance_type_supports_profiler; it "
    "raises ValueError or RuntimeError before it sends the job",
    remedy="Remove it, or use another region or instance type.",
)
NO_SUCH_IMAGE = Rule(
    code="TW313",
    severity="error",
    title="an address of one of AWS's images that leads nowhere: another region's account, or a Python it never had",
    source="sagemaker 2.257.7, image_uri_config: accounts by region, Python versions by version of the framework",
    remedy="Use what the message names; AWS lists its images in aws/deep-learning-containers, available_images.md.",
)
OF_ANOTHER_KIND = Rule(
    code="TW320",
    severity="error",
    title="a name or an id of something else in place of a subnet, a security group or a file system",
    source="AWS's API reference, VpcConfig: security groups in the form sg-xxxxxxxx; Amazon VPC user guide: ids of "
    "subnets begin with subnet-; botocore's models of FSx and EFS, FileSystemId",
    remedy="Use the id that the console shows: subnet-..., sg-..., fs-....",
)
BY_HTTPS = Rule(
    code="TW322",
    severity="error",
    title="an output address that begins with https, from which SDK 2 cannot take the bucket for the code",
    source="sagemaker 2.257.7, estimator.py, _stage_user_code_in_s3; fw_utils.py, parse_s3_url: ValueError",
    remedy="Write it as s3://bucket/prefix.",
)
RULES = (BUCKET, ELSEWHERE, NOT_OFFERED, NO_SUCH_IMAGE, OF_ANOTHER_KIND, BY_HTTPS)
_STRICT = re.compile(r"(?!.*\.\.)(?![0-9]+(?:\.[0-9]+){3}$)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_ONCE = re.compile(r"[A-Za-z0-9._-]{3,255}")  # in us-east-1, before March 2018
_REGION = re.compile(r"[a-z]{2,5}(-[a-z]+)+-[0-9]{1,2}")
# Key of the job file: how its ids look. Their lengths are checked with the service's limits.
_IDS = {"subnets": re.compile(r"subnet-[0-9a-z]+"), "security_group_ids": re.compile(r"sg-[0-9a-z]+")}
_FILE_SYSTEM = re.compile(r"fs-[0-9a-f]+")
_ARN = re.compile(r"arn:(?P<partition>[a-z-]+):(?P<service>[a-z-]+):(?P<region>[a-z0-9-]*):[0-9]*:.*")
# botocore's endpoints.json: the regions of every partition other than aws, by how their names begin.
_PARTITIONS = {
    "cn-": "aws-cn",
    "us-gov-": "aws-us-gov",
    "us-iso-": "aws-iso",
    "us-isob-": "aws-iso-b",
    "eu-isoe-": "aws-iso-e",
    "us-isof-": "aws-iso-f",
    "eusc-": "aws-eusc",
}
# sagemaker 2.257.7, fw_utils.py; both lists are the same.
WITHOUT_DEBUGGER = (
    *("us-iso-east-1", "us-isob-east-1", "ap-southeast-3", "ap-southeast-4", "eu-south-2", "me-central-1"),
    *("ap-south-2", "eu-central-2", "us-gov-east-1"),
)
# Repository → the first version without the tag py3: sagemaker 2.257.7, image_uri_config.
FIRST_WITHOUT_PY3 = {"pytorch-training": (1, 9), "tensorflow-training": (2, 2)}
_TAG = re.compile(
    r"(?P<version>[0-9]+\.[0-9]+\.[0-9]+)(?:-transformers(?P<transformers>[0-9.]+))?"
    r"-(?P<device>gpu|cpu)-(?P<python>py[0-9]+)(?:-.*)?"
)


def check(subject: Subject) -> Iterator[Finding]:
    """Check the rules of this family."""
    region = region_of(subject)
    yield from _buckets(subject, region)
    yield from _region(subject)
    yield from _ids(subject)
    job = subject.job
    uploads = job.entry_point and not (job.source_dir or "").startswith("s3://")
    if uploads and subject.sdk == 2 and (job.output or "").startswith("https://"):
        yield BY_HTTPS.finding(f"{job.output} is not an s3:// address", path="output")
    if region:
        yield from _elsewhere(subject, region)
        yield from _offered(subject, region)
    yield from _image(subject)


def region_of(subject: Subject) -> str | None:
    """The region of the job: its own, else that of its image, which has to be the same; None if neither is named."""
    found = ECR.fullmatch(subject.job.image or "")
    return subject.job.region or (found["region"] if found else None)


def partition_of(region: str) -> str:
    """The partition of a region, such as ``aws-cn`` of ``cn-north-1``."""
    return next((name for begin, name in _PARTITIONS.items() if region.startswith(begin)), "aws")


def _addresses(subject: Subject) -> Iterator[tuple[str, str]]:
    """Key and S3 address of every place that the job names."""
    job = subject.job
    for key in ("output", "source_dir"):
        yield key, getattr(job, key) or ""
    for key in ("checkpoint", "tensorboard", "debugger", "profiler"):
        kept = getattr(job, key)
        yield f"{key}.s3_uri", kept.s3_uri if kept else ""
    for name, given in job.inputs.items():
        address = given.get("s3_data") if isinstance(given, dict) else given
        yield f"inputs.{name}", address if isinstance(address, str) else ""


def _buckets(subject: Subject, region: str | None) -> Iterator[Finding]:
    for path, address in _addresses(subject):
        bucket = address.removeprefix("s3://").partition("/")[0]
        # An access point may stand in a bucket's place, by its ARN.
        if not address.startswith("s3://") or not bucket or bucket.startswith("arn:"):
            continue
        if not (_ONCE if region in (None, "us-east-1") else _STRICT).fullmatch(bucket):
            yield BUCKET.finding(f"{bucket!r} cannot be the name of a bucket", path=path)


def _ids(subject: Subject) -> Iterator[Finding]:
    for key, form in _IDS.items():
        for each in getattr(subject.job, key):
            if not form.fullmatch(each):
                yield OF_ANOTHER_KIND.finding(
                    f"{each!r} is not in the form {form.pattern.partition('[')[0]}...", path=key
                )
    for name, given in subject.job.inputs.items():
        system = given.get("file_system_id") if isinstance(given, dict) else None
        if isinstance(system, str) and not _FILE_SYSTEM.fullmatch(system):
            yield OF_ANOTHER_KIND.finding(f"{system!r} is not in the form fs-...", path=f"inputs.{name}")


def _region(subject: Subject) -> Iterator[Finding]:
    region, known = subject.job.region, load_dlc().domains
    if region is None or region in known:
        return
    # A region that AWS opened after this release is not in the table.
    yield ELSEWHERE.finding(
        f"{region!r} is not a known region. {did_you_mean(region, known)}",
        path="region",
        severity="warning" if _REGION.fullmatch(region) else "error",
        remedy="Use the name of a region, such as us-west-2.",
    )


def _elsewhere(subject: Subject, region: str) -> Iterator[Finding]:
    job, partition = subject.job, partition_of(region)
    for key in ("role", "training_plan", "volume_kms_key", "output_kms_key"):
        arn = _ARN.fullmatch(getattr(job, key) or "")
        if arn is None:
            continue
        if arn["partition"] != partition:
            yield ELSEWHERE.finding(
                f"{key} is in the partition {arn['partition']}, the job's region {region} in {partition}", path=key
            )
        # The key for the models belongs to their bucket.
        elif arn["region"] and arn["region"] != region and key != "output_kms_key":
            yield ELSEWHERE.finding(f"{key} is in {arn['region']}, the job in {region}", path=key)


def _offered(subject: Subject, region: str) -> Iterator[Finding]:
    if subject.sdk != 2:
        return
    for key in ("debugger", "profiler"):
        if getattr(subject.job, key) and region in WITHOUT_DEBUGGER:
            yield NOT_OFFERED.finding(f"SDK 2 refuses {key} in {region}", path=key)
    for _, name in subject.types:
        if subject.job.profiler and name.startswith("ml.trn"):
            yield NOT_OFFERED.finding(f"SDK 2 refuses profiler on {name}", path="profiler")


def _image(subject: Subject) -> Iterator[Finding]:
    found, table = ECR.fullmatch(subject.job.image or ""), load_dlc()
    if found is None or found["repository"] not in FRAMEWORKS:
        return
    accounts = table.accounts[registry_of(found["repository"])]
    if found["account"] not in accounts.values():
        return  # a copy in an account of the user
    right = accounts.get(found["region"])
    if right not in (None, found["account"]):
        yield NO_SUCH_IMAGE.finding(
            f"AWS's account for {found['repository']} in {found['region']} is {right}, not {found['account']}",
            path="image",
            remedy=str(subject.job.image).replace(found["account"], str(right), 1),
        )
    tag = _TAG.fullmatch(found["tag"] or "")
    if tag is None:
        return
    pythons = {
        each.python
        for each in table.images
        if each.repository == found["repository"]
        and (each.version, each.device, each.transformers) == (tag["version"], tag["device"], tag["transformers"])
    }
    # py3: its minor version is not known, and it is another name of py36 and py37 while images had both.
    both = tag["python"] == "py3" and version_key(tag["version"]) < FIRST_WITHOUT_PY3.get(found["repository"], ())
    if pythons and not both and not pythons & {None, "py2", "py3", tag["python"]}:
        names = " and ".join(sorted(str(each) for each in pythons))
        yield NO_SUCH_IMAGE.finding(
            f"{found['repository']} {tag['version']} is published for {names}, not {tag['python']}", path="image"
        )
