"""Makes ``trainwright/instances.json`` from published packages; they are downloaded and read, never installed.

Several packages know a part of what SageMaker's instance types hold. Each is read into claims (instance type → field →
value). If two claim different values for one fact, the refresh stops and lists them, until a person has looked and added
a :class:`~trainwright.sagemaker.instances.InstanceCorrection` here; the corrections go into the provenance of the file.
"""

from __future__ import annotations

import ast
import difflib
import gzip
import hashlib
import json
import re
import sys
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from packaging.utils import parse_sdist_filename, parse_wheel_filename

from trainwright.cli.program import say
from trainwright.core.errors import RequestError, SourceError
from trainwright.core.owned import write_atomically
from trainwright.core.records import parse_record
from trainwright.core.runner import run
from trainwright.sagemaker.instances import (
    PATH,
    SCHEMA,
    Instance,
    InstanceCorrection,
    InstanceProvenance,
    PublishedFile,
    read_table,
)

Fact = int | float | str | bool
Facts = dict[str, Fact]
Claims = Mapping[str, Mapping[str, Facts]]  # source → instance type → facts

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


# --- what each package says -----------------------------------------------------------------------------------------


def valid_types(service_model: bytes) -> list[str]:
    """The training instance types that SageMaker's API accepts, from botocore's ``service-2.json.gz``."""
    names: list[str] = json.loads(gzip.decompress(service_model))["shapes"]["TrainingInstanceType"]["enum"]
    return names


def claims_of_core(table: bytes) -> dict[str, Facts]:
    """GPU count and memory from sagemaker-core's ``instance_gpu_info.json``.

    Raises:
        RequestError: two regions of the table differ about one type.
    """
    claims: dict[str, Facts] = {}
    for region, types in json.loads(table).items():
        for name, said in types.items():
            count = said["Count"]
            facts: Facts = {"gpus": count, "gpu_memory_gib": _gib(said["TotalGpuMemoryInMiB"] / count)}
            if claims.setdefault(name, facts) != facts:
                raise RequestError(f"sagemaker-core: {name} differs between regions: {facts} in {region}")
    return claims


def claims_of_hyperpod(module: bytes) -> dict[str, Facts]:
    """Counts, vCPUs and memory from the constant ``INSTANCE_RESOURCES`` of sagemaker-hyperpod."""
    return {
        name: {
            "gpus": said["gpu"],
            "neuron_devices": said["trainium"],
            "efa": said["efa"],
            "vcpus": said["cpu"],
            "memory_gib": said["memory"],
        }
        for name, said in constant(module, "INSTANCE_RESOURCES").items()
    }


def claims_of_moto(table: bytes) -> dict[str, Facts]:
    """Everything that EC2's DescribeInstanceTypes answered when moto took its ``instance_types.json.gz``."""
    return {f"ml.{name}": _from_ec2(said) for name, said in json.loads(gzip.decompress(table)).items()}


def claims_of_toolkit(module: bytes) -> dict[str, Facts]:
    """Which types get EFA variables from sagemaker-training by itself (the two lists in its ``__init__.py``)."""
    rdma = set(constant(module, "SM_EFA_RDMA_INSTANCES"))
    efa = set(constant(module, "SM_EFA_NCCL_INSTANCES"))
    return {name: {"toolkit_efa": name in efa, "toolkit_rdma": name in rdma} for name in sorted(efa | rdma)}


def constant(module: bytes, name: str) -> Any:
    """The literal that a Python module assigns to ``name``; the module is parsed, not run.

    Raises:
        RequestError: there is no such assignment, or not of a literal.
    """
    for statement in ast.parse(module).body:
        if isinstance(statement, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in statement.targets
        ):
            try:
                return ast.literal_eval(statement.value)
            except ValueError:
                raise RequestError(f"{name} is no literal any more") from None
    raise RequestError(f"there is no constant {name}")


def _from_ec2(said: Mapping[str, Any]) -> Facts:
    network = said["NetworkInfo"]
    facts: Facts = {
        "gpus": 0,
        "neuron_devices": 0,
        "neuron_cores": 0,
        "efa": network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        "vcpus": said["VCpuInfo"]["DefaultVCpus"],
        "memory_gib": _gib(said["MemoryInfo"]["SizeInMiB"]),
        "architecture": said["ProcessorInfo"]["SupportedArchitectures"][-1],  # i386 comes before x86_64
    }
    if "GpuInfo" in said:
        gpus = said["GpuInfo"]["Gpus"]
        facts["gpus"] = sum(each["Count"] for each in gpus)
        facts["gpu"] = gpus[0]["Name"]
        facts["gpu_memory_gib"] = _gib(gpus[0]["MemoryInfo"]["SizeInMiB"])
    if "NeuronInfo" in said:
        devices = said["NeuronInfo"]["NeuronDevices"]
        facts["neuron_devices"] = sum(each["Count"] for each in devices)
        facts["neuron_cores"] = sum(each["Count"] * each["CoreInfo"]["Count"] for each in devices)
    return facts


def _gib(mib: float) -> int | float:
    gib = round(mib / 1024, 2)
    return int(gib) if gib == int(gib) else gib


# --- from claims to the table ---------------------------------------------------------------------------------------


def merge(
    valid: Sequence[str],
    claims: Claims,
    corrections: Sequence[InstanceCorrection] = (),
    *,
    training_only: Sequence[str] = (),
) -> dict[str, Instance]:
    """One record per valid training instance type, in the order of names (numbers by value).

    Args:
        valid: the types that SageMaker accepts.
        claims: source → instance type → facts; types that are not valid are passed over.
        corrections: applied to the claims first.
        training_only: sources that name training types alone: another name in them is an error (a typing error there).

    Raises:
        RequestError: sources contradict each other, a type's facts are incomplete, or a correction does not apply any
            more; every such case is listed, also in ``details["faults"]``.
    """
    faults: list[str] = []
    corrected = _corrected(claims, corrections, faults)
    for source in training_only:
        strangers = sorted(set(corrected.get(source, {})) - set(valid))
        faults += [f"{source} names {name}, which is no training instance type" for name in strangers]
    table: dict[str, Instance] = {}
    for name in sorted(valid, key=_natural):
        said = {source: types[name] for source, types in corrected.items() if name in types}
        facts: Facts = {"neuron_devices": 0, "toolkit_efa": False, "toolkit_rdma": False}
        complete = len(faults)
        for field in Instance.model_fields:
            values = {source: each[field] for source, each in said.items() if field in each}
            if len(set(values.values())) > 1:
                listed = ", ".join(f"{value!r} ({source})" for source, value in values.items())
                faults.append(f"{name}: {field} is {listed}")
            if values:
                facts[field] = next(iter(values.values()))
        faults += [f"{name}: {fault}" for fault in _implausible(facts)]
        if len(faults) == complete:
            table[name] = parse_record(
                Instance,
                {"gpu": None, "gpu_memory_gib": None, "neuron_cores": 0, **facts, "name": name, "sources": tuple(said)},
                name,
            )
    if faults:
        raise RequestError(
            "the sources do not make a table:\n  " + "\n  ".join(faults),
            remedy="Find out which is right, and say so in CORRECTIONS (devtools/refresh_instances.py).",
            faults=faults,
        )
    return table


def _corrected(
    claims: Claims, corrections: Sequence[InstanceCorrection], faults: list[str]
) -> dict[str, dict[str, Facts]]:
    """A copy of the claims with the corrections made; one whose wrong value is gone is a fault."""
    copy = {source: {name: dict(facts) for name, facts in types.items()} for source, types in claims.items()}
    for each in corrections:
        types = copy.get(each.source, {})
        for name in each.instances:
            facts = types.get(name)
            if facts is None or (each.field != "name" and facts.get(each.field) != each.says):
                now = "it is not there" if facts is None else f"it says {facts.get(each.field)!r}"
                faults.append(f"a correction has nothing to correct: {each.source}, {name}, {each.field}: {now}")
            elif each.field != "name":
                facts[each.field] = each.taken
            elif each.taken in types:
                faults.append(f"a correction must go: {each.source} has {each.taken} besides {name}")
            else:
                types[str(each.taken)] = types.pop(name)
    return copy


def _implausible(facts: Facts) -> Iterator[str]:
    """What is missing or cannot be true of one type."""
    for field in ("gpus", "efa", "vcpus", "memory_gib", "architecture"):
        if field not in facts:
            yield f"no source says {field}"
    if facts["neuron_devices"] and not facts.get("neuron_cores"):
        yield "no source says neuron_cores"
    if facts["toolkit_efa"] and facts.get("efa") == 0:
        yield "efa is 0, but sagemaker-training treats it as an EFA type"
    if facts["toolkit_rdma"] and not facts["toolkit_efa"]:
        yield "sagemaker-training sets RDMA for it, but not EFA"


def _natural(name: str) -> tuple[str | int, ...]:
    parts = re.split(r"(\d+)", name)
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts))


def table_text(table: Mapping[str, Instance], provenance: InstanceProvenance) -> str:
    """The content of ``instances.json``: a line per record, so that a change reads well in a review."""
    known = provenance.model_dump(mode="json")
    sources = [f"{json.dumps(name)}: {json.dumps(source)}" for name, source in known["sources"].items()]
    corrections = [json.dumps(each) for each in known["corrections"]]
    rows = [f"{json.dumps(name)}: {json.dumps(_row(each))}" for name, each in table.items()]
    return "\n".join(
        [
            "{",
            f'"schema": {json.dumps(SCHEMA)},',
            f'"provenance": {{"made_by": {json.dumps(known["made_by"])}, "sources": {{',
            ",\n".join(sources),
            '}, "corrections": [',
            ",\n".join(corrections),
            "]},",
            '"instances": {',
            ",\n".join(rows),
            "}",
            "}\n",
        ]
    )


def _row(each: Instance) -> dict[str, Any]:
    row = each.model_dump(mode="json", exclude={"name"})
    return {key: int(value) if isinstance(value, float) and value.is_integer() else value for key, value in row.items()}


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
