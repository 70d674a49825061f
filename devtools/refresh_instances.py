"""Makes ``trainwright/instances.json`` from published packages; they are downloaded and read, never installed.

Several packages know a part of what SageMaker's instance types hold. Each is read into claims (instance type → field →
value). If two differ in a fact, the refresh stops and lists them, until a person has looked and added an
:class:`~trainwright.sagemaker.instances.InstanceCorrection` here; the corrections go into the provenance of the file.
"""

from __future__ import annotations

import difflib
import hashlib
import sys
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from packaging.utils import parse_sdist_filename, parse_wheel_filename

from devtools.instance_claims import (
    Facts,
    claims_of_core,
    claims_of_hyperpod,
    claims_of_moto,
    claims_of_toolkit,
    valid_types,
)
from devtools.instance_merge import merge, table_text
from trainwright.cli.output import say
from trainwright.core.errors import RequestError, SourceError
from trainwright.core.owned import write_atomically
from trainwright.core.runner import run
from trainwright.sagemaker.instances import (
    PATH,
    InstanceCorrection,
    InstanceProvenance,
    PublishedFile,
    read_table,
)

MAX_BYTES = 100_000
DEVICES = ("gpus", "gpu", "gpu_memory_gib", "neuron_devices", "neuron_cores")

_NOMINAL = (
    "24 GB of an A10G are 22888 MiB, which sagemaker-core itself says for ml.g5.48xlarge and EC2's own table (moto) "
    "for all of the family; the other sizes were written down as 24 GiB"
)
_GB200 = (
    "a placeholder: sagemaker-training treats the type as EFA with RDMA, and DescribeInstanceTypes gave "
    "MaximumEfaInterfaces 16 with 17 network cards (github.com/NVIDIA/aicr/issues/1256, comment of 2026-08-25)"
)
_GRACE = (
    "no package says: its CPU is NVIDIA Grace, which is Arm (AWS Containers blog, Unlocking next-generation AI "
    "performance with Dynamic Resource Allocation on Amazon EKS and Amazon EC2 P6e-GB200)"
)
CORRECTIONS = (
    InstanceCorrection(
        source="sagemaker-core",
        instances=("ml.g5n.xlarge",),
        field="name",
        says="ml.g5n.xlarge",
        taken="ml.g5.xlarge",
        why="a typing error: there is no family g5n, and ml.g5.xlarge is missing from that table",
    ),
    InstanceCorrection(
        source="sagemaker-core",
        instances=tuple(f"ml.g5.{size}xlarge" for size in ("", 2, 4, 8, 12, 16, 24)),
        field="gpu_memory_gib",
        says=24,
        taken=22.35,
        why=_NOMINAL,
    ),
    InstanceCorrection(
        source="sagemaker-hyperpod", instances=("ml.p6e-gb200.36xlarge",), field="efa", says=0, taken=16, why=_GB200
    ),
    InstanceCorrection(
        source="sagemaker-hyperpod",
        instances=("ml.p6e-gb200.36xlarge",),
        field="architecture",
        says=None,
        taken="arm64",
        why=_GRACE,
    ),
)


# --- where the claims come from -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Package:
    """A package to download, the file in it that matters, and how that is read (``None``: the valid types)."""

    package: str
    member: str
    gives: tuple[str, ...]
    read: Callable[[bytes], dict[str, Facts]] | None
    pin: str | None = None
    training_only: bool = False


_EC2_FIELDS = (*DEVICES, "efa", "vcpus", "memory_gib", "architecture")
_MOTO = "moto/ec2/resources/instance_types.json.gz"
# EC2 does not list P2 and P3 any more, SageMaker does: the last release of moto that has all six of them. It is asked
# for nothing else.
_RETIRED = "moto-retired"
PACKAGES: dict[str, _Package] = {
    "botocore": _Package("botocore", "botocore/data/sagemaker/*/service-2.json.gz", ("name",), None),
    "moto": _Package("moto", _MOTO, _EC2_FIELDS, claims_of_moto),
    _RETIRED: _Package("moto", _MOTO, _EC2_FIELDS, claims_of_moto, pin="5.1.0"),
    "sagemaker-core": _Package(
        "sagemaker-core",
        "sagemaker/core/image_uri_config/instance_gpu_info.json",
        ("gpus", "gpu_memory_gib"),
        claims_of_core,
        training_only=True,
    ),
    "sagemaker-hyperpod": _Package(
        "sagemaker-hyperpod",
        "sagemaker/hyperpod/training/constants.py",
        ("gpus", "neuron_devices", "efa", "vcpus", "memory_gib"),
        claims_of_hyperpod,
    ),
    "sagemaker-training": _Package(
        "sagemaker-training",
        "*/src/sagemaker_training/__init__.py",
        ("toolkit_efa", "toolkit_rdma"),
        claims_of_toolkit,
        training_only=True,
    ),
}


def refresh_instances(*, check: bool = False) -> None:
    """Make ``instances.json`` anew from the newest packages.

    Args:
        check: change nothing: download the very versions that the file names, and fail where they, their checksums or
            what is made of them differ from it.

    Raises:
        SourceError: a package cannot be downloaded, or its checksum differs from the one in the file.
        RequestError: the sources contradict each other, or (``check``) the file is stale.
    """
    recorded = read_table(PATH).provenance.sources if check else {}
    text = make_table(recorded)
    current = PATH.read_text() if PATH.is_file() else ""
    if text == current:
        say(f"{PATH.name}: fresh")
    elif check:
        change = list(difflib.unified_diff(current.splitlines(), text.splitlines(), lineterm="", n=0))
        raise RequestError(
            f"{PATH.name} is stale:\n" + "\n".join(change[:20]), remedy="./invoke refresh-instances makes it anew."
        )
    else:
        write_atomically(PATH, text)
        say(f"{PATH.name}: written, {len(text) / 1000:.0f} kB")


def make_table(recorded: Mapping[str, PublishedFile]) -> str:
    """Download and read every package and return the file's content.

    Args:
        recorded: the sources to use again, version and checksum; empty: the newest of each.
    """
    sources: dict[str, PublishedFile] = {}
    claims: dict[str, dict[str, Facts]] = {}
    valid: list[str] = []
    for name, package in PACKAGES.items():
        with tempfile.TemporaryDirectory(prefix="trainwright-") as folder:
            archive = download(package.package, _version(name, package, recorded), Path(folder))
            source, content = _source(package, archive)
        if name in recorded and recorded[name].sha256 != source.sha256:
            raise SourceError(f"{source.file}: the sha256 is {source.sha256}, not {recorded[name].sha256}")
        sources[name] = source
        say(f"{name}: {source.file}")
        try:
            if package.read is None:
                valid = valid_types(content)
            else:
                claims[name] = package.read(content)
        except (ValueError, KeyError, TypeError, AttributeError, RequestError) as strange:
            raise RequestError(f"{source.file}: {source.member} is not as it was: {strange!r}") from strange
    claims[_RETIRED] = {name: facts for name, facts in claims[_RETIRED].items() if name not in claims["moto"]}
    strict = [name for name, package in PACKAGES.items() if package.training_only]
    table = merge(valid, claims, CORRECTIONS, training_only=strict)
    made_by = "devtools/refresh_instances.py"
    text = table_text(table, InstanceProvenance(made_by=made_by, sources=sources, corrections=CORRECTIONS))
    if len(text) >= MAX_BYTES:
        raise RequestError(f"{PATH.name} would have {len(text)} bytes; {MAX_BYTES} is the limit")
    kinds = Counter(each.accelerator or "cpu" for each in table.values())
    say(f"{len(table)} training instance types: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    return text


def _version(name: str, package: _Package, recorded: Mapping[str, PublishedFile]) -> str | None:
    if name in recorded:
        return recorded[name].version
    return package.pin


def download(package: str, version: str | None, folder: Path) -> Path:
    """The wheel (or source archive) of one package, by pip and its configuration, without dependencies.

    pip runs the ``setup.py`` of a source archive for its metadata; that happens for sagemaker-training alone.

    Raises:
        SourceError: pip failed, or left something else than one file.
    """
    wanted = f"{package}=={version}" if version else package
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    done = run([*pip, "--no-deps", "-d", str(folder), wanted], timeout=600)
    files = sorted(folder.iterdir())
    if not done.ok or len(files) != 1:
        raise SourceError(
            f"pip could not download {wanted}:\n{done.tail(5)}",
            remedy="Check the package index of pip's configuration.",
        )
    return files[0]


def _source(package: _Package, archive: Path) -> tuple[PublishedFile, bytes]:
    if archive.suffix == ".whl":
        version = parse_wheel_filename(archive.name)[1]
    else:
        version = parse_sdist_filename(archive.name)[1]
    member, content = read_member(archive, package.member)
    source = PublishedFile(
        package=package.package,
        version=str(version),
        file=archive.name,
        sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
        member=member,
        gives=package.gives,
    )
    return source, content


def read_member(archive: Path, pattern: str) -> tuple[str, bytes]:
    """Name and content of the file in a wheel or ``.tar.gz`` that matches ``pattern``; the last by name of several.

    Raises:
        SourceError: nothing matches.
    """
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            name = _last(wheel.namelist(), pattern, archive)
            return name, wheel.read(name)
    with tarfile.open(archive) as sdist:
        name = _last(sdist.getnames(), pattern, archive)
        file = sdist.extractfile(name)
        assert file is not None
        return name, file.read()


def _last(names: Sequence[str], pattern: str, archive: Path) -> str:
    matching = sorted(name for name in names if fnmatchcase(name, pattern))
    if not matching:
        raise SourceError(f"{archive.name} has no {pattern} any more", remedy="Look where its content went.")
    return matching[-1]
