"""How SageMaker SDK 3 starts a container: the channels ``code`` and ``sm_drivers``, and the command.

``ModelTrainer`` does not call ``train``. It uploads its own programs (the drivers) and a shell script made from
templates as a channel, and replaces the container's entry point with that script. Drivers and templates are extracted
from the SDK's wheels, pinned by sha256, into the cache. This module follows ``model_trainer.py`` of sagemaker-train
1.27.0 (``create_training_job``, ``_prepare_train_script``).
"""

from __future__ import annotations

import ast
import hashlib
import json
import shlex
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal, Protocol

from trainwright.core.errors import RequestError, SourceError, did_you_mean
from trainwright.core.paths import cache_dir, locked
from trainwright.core.runner import run
from trainwright.core.say import Say

# The two wheels of SDK 3.27.0 with the files for a container: package, version, file, sha256.
WHEELS = (
    (
        "sagemaker-train",
        "1.27.0",
        "sagemaker_train-1.27.0-py3-none-any.whl",
        "b5974e537b6436ebac906de81dd3dd7bc49097d9aed8791649bb631a586682de",
    ),
    (
        "sagemaker-core",
        "2.27.0",
        "sagemaker_core-2.27.0-py3-none-any.whl",
        "62e5b4e2296dd26c042f28d26b9292501cdcf0c83a02656e280d61f132114312",
    ),
)
_DRIVERS = "sagemaker/train/container_drivers/"
_TEMPLATES = "sagemaker/train/templates.py"
_INSTALLER = "sagemaker/core/utils/install_requirements.py"

CHANNELS = ("code", "sm_drivers")
_SCRIPT = "/opt/ml/input/data/sm_drivers/sm_train.sh"
ENTRY_POINT = "/bin/bash"
ARGUMENTS = ("-c", f"chmod +x {_SCRIPT} && {_SCRIPT}")
# Default of SourceCode.ignore_patterns.
IGNORED = (".env", ".git", "__pycache__", ".DS_Store", ".cache", ".ipynb_checkpoints")

DriverKind = Literal["MPI", "Torchrun"]
SMP_FIELDS = (
    "hybrid_shard_degree",
    "sm_activation_offloading",
    "activation_loading_horizon",
    "fsdp_cache_flush_warnings",
    "allow_empty_shards",
    "tensor_parallel_degree",
    "context_parallel_degree",
    "expert_parallel_degree",
    "random_seed",
)
_FIELDS: dict[DriverKind, tuple[str, ...]] = {
    "MPI": ("process_count_per_node", "mpi_additional_options"),
    "Torchrun": ("process_count_per_node", "smp"),
}
_SCRIPTS: dict[DriverKind, str] = {"MPI": "mpi_driver.py", "Torchrun": "torchrun_driver.py"}


@dataclass(frozen=True)
class Driver:
    """``ModelTrainer(distributed=…)``: the name of the class (None: one process per host) and its fields."""

    kind: DriverKind | None = None
    fields: Mapping[str, Any] | None = None

    @property
    def launcher(self) -> Literal["process", "mpi", "torchrun"]:
        """The launcher that starts the processes."""
        return "process" if self.kind is None else "mpi" if self.kind == "MPI" else "torchrun"

    @property
    def processes_per_host(self) -> int | None:
        """The number in the driver's fields; None: one per GPU, else per NeuronCore, else one."""
        count = (self.fields or {}).get("process_count_per_node")
        return count if isinstance(count, int) else None

    @property
    def ranks_asked(self) -> int | None:
        """The last ``-np`` (or ``-n``) in the user's mpirun options, which overrides the driver's; None if missing."""
        options: Sequence[str] = (self.fields or {}).get("mpi_additional_options") or ()
        counts = [options[n + 1] for n, word in enumerate(options[:-1]) if word in ("-np", "--np", "-n", "--n")]
        return int(counts[-1]) if counts and counts[-1].isdigit() else None


def driver_of(distribution: Mapping[str, Any] | None, processes_per_host: int | None = None) -> Driver:
    """Return the driver for a ``distribution`` in the form of SDK 3 or SDK 2.

    Args:
        distribution: ``{"Torchrun": {…}}`` or ``{"MPI": {…}}`` with the fields of SDK 3's classes (case is ignored), or
            SDK 2's ``torch_distributed`` and ``mpi``.
        processes_per_host: overrides the number in it.

    Raises:
        RequestError: SDK 3 has no driver for it, or a field is unknown.
    """
    given = {name: part for name, part in (distribution or {}).items() if _wanted(part)}
    model = _model(given.pop("smdistributed", {})) if "torch_distributed" in given else {}
    if not given:
        return Driver()
    names: dict[str, DriverKind] = {"mpi": "MPI", "torchrun": "Torchrun", "torch_distributed": "Torchrun"}
    for name in given:
        if name.lower() not in names:
            raise RequestError(
                f"distribution: SDK 3 has no driver for {name}; it supports Torchrun and MPI",
                remedy=did_you_mean(name, ["MPI", "Torchrun"]) + " Use --sdk 2 for the distributions of SDK 2.",
            )
    if len(given) > 1:
        raise RequestError(f"distribution: SDK 3 accepts one driver, not {' and '.join(given)}")
    (name, part), kind = next(iter(given.items())), names[next(iter(given)).lower()]
    fields = dict.fromkeys(_FIELDS[kind]) | _translated(kind, part)
    if model.get("enabled"):
        fields["smp"] = dict.fromkeys(SMP_FIELDS) | dict(model.get("parameters", {}))
    for field in fields:
        if field not in _FIELDS[kind]:
            raise RequestError(f"distribution.{name}: unknown key {field!r}", remedy=did_you_mean(field, _FIELDS[kind]))
    for field in fields.get("smp") or {}:
        if field not in SMP_FIELDS:
            raise RequestError(
                f"distribution.{name}.smp: unknown key {field!r}", remedy=did_you_mean(field, SMP_FIELDS)
            )
    if processes_per_host is not None:
        fields["process_count_per_node"] = processes_per_host
    count = fields["process_count_per_node"]
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
        raise RequestError(
            f"distribution.{name}: the number of processes must be a whole number, at least 1, not {count!r}"
        )
    options = fields.get("mpi_additional_options")
    if options is not None and not (isinstance(options, list) and all(isinstance(word, str) for word in options)):
        raise RequestError(
            f'distribution.{name}.mpi_additional_options must be a list of strings, such as ["-np", "4"]'
        )
    return Driver(kind, fields)


def hyperparameters(values: Mapping[str, Any], driver: Driver | None = None) -> dict[str, str]:
    """Return hyperparameters as SDK 3 sends them: strings unchanged, all else as JSON (its ``safe_serialize``)."""
    smp = ((driver.fields or {}).get("smp") if driver else None) or {}
    model = {"mp_parameters": {name: value for name, value in smp.items() if value is not None}} if smp else {}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in {**values, **model}.items()}


class Submitted(Protocol):
    """The part of a job that the SDK writes into its channels."""

    @property
    def distribution(self) -> Mapping[str, Any] | None: ...
    @property
    def processes_per_host(self) -> int | None: ...
    @property
    def requirements(self) -> Path | None: ...
    @property
    def source_dir(self) -> Path | None: ...


def write_channels(
    job: Submitted, data: Path, entry_point: str, files: Mapping[str, Path], *, say: Say | None = None
) -> list[str]:
    """Fill the two channels that the SDK adds to a job.

    Args:
        job: the job; its distribution, processes per host and requirements are used.
        data: the host's ``input/data``.
        entry_point: relative to the source folder.
        files: the code: name in the source folder → local file.
        say: progress callback.

    Returns:
        The names of the channels.

    Raises:
        RequestError: SDK 3 rejects the entry point or the distribution.
        SourceError: the drivers cannot be downloaded.
    """
    if not entry_point.endswith((".py", ".sh")):
        raise RequestError(f"SDK 3 only starts .py and .sh files, not {entry_point}")
    driver = driver_of(job.distribution, job.processes_per_host)
    code, drivers = (data / name for name in CHANNELS)
    code.mkdir(parents=True, exist_ok=True)
    for name, path in sorted(files.items()):
        if any(fnmatch(part, pattern) for part in Path(name).parts for pattern in IGNORED):
            continue
        target = code / name
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
    requirements = "requirements.txt" if job.requirements is not None else None
    kit = fetch_drivers(say)
    shutil.copytree(kit / "drivers", drivers, dirs_exist_ok=True)
    source = {
        "source_dir": str(job.source_dir) if job.source_dir else ".",
        "requirements": requirements,
        "entry_script": entry_point,
        "command": None,
        "args": None,
        "ignore_patterns": list(IGNORED),
    }
    (drivers / "sourcecode.json").write_text(json.dumps(source))
    (drivers / "distributed.json").write_text(json.dumps(dict(driver.fields or {})))
    (drivers / "sm_train.sh").write_text(train_script(kit, driver, requirements))
    return list(CHANNELS)


def train_script(kit: Path, driver: Driver, requirements: str | None) -> str:
    """Return the shell script that replaces ``train``, from the SDK's templates."""
    templates: dict[str, str] = json.loads((kit / "templates.json").read_text())
    install = templates["INSTALL_REQUIREMENTS"].format(requirements_file=requirements) if requirements else ""
    if driver.kind is None:
        execute = templates["EXECUTE_BASIC_SCRIPT_DRIVER"]
    else:
        # The misspelt name is the SDK's.
        execute = templates["EXEUCTE_DISTRIBUTED_DRIVER"].format(
            driver_name=driver.kind, driver_script=_SCRIPTS[driver.kind]
        )
    return templates["TRAIN_SCRIPT_TEMPLATE"].format(
        working_dir="cd /opt/ml/input/data/code \n", install_requirements=install, execute_driver=execute
    )


# --- the SDK's own files --------------------------------------------------------------------------------------------


def fetch_drivers(say: Say | None = None) -> Path:
    """Return the folder with the SDK's drivers (``drivers/``) and templates (``templates.json``); download it once.

    Raises:
        SourceError: the wheels cannot be downloaded, or have an unexpected sha256.
    """
    folder = cache_dir() / "sdk3" / f"{WHEELS[0][1]}-{WHEELS[0][3][:8]}"
    with locked(folder):
        if folder.is_dir():
            return folder
        if say is not None:
            say("fetching the drivers of SageMaker SDK 3 (2 MB, once)")
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as work:
            wheels = _download(Path(work))
            made = Path(work, "made")
            _unpack(wheels, made)
            made.rename(folder)
    return folder


def _download(work: Path) -> list[Path]:
    """Download the wheels with pip, which knows this machine's index, and check their sha256 again."""
    (work / "pins.txt").write_text(
        "".join(f"{name}=={version} --hash=sha256:{sha}\n" for name, version, _, sha in WHEELS)
    )
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    argv += ["--only-binary=:all:", "--require-hashes", "--dest", str(work), "-r", str(work / "pins.txt")]
    done = run(argv, timeout=600)
    names = ", ".join(f"{name} {version}" for name, version, _, _ in WHEELS)
    if not done.ok:
        raise SourceError(
            f"the drivers of SageMaker SDK 3 ({names}) could not be downloaded: {done.tail(3)}",
            remedy="Check the index that pip uses (pip config list). --sdk 2 needs no download.",
        )
    found = [work / file for _, _, file, _ in WHEELS]
    for path, (*_, expected) in zip(found, WHEELS, strict=True):
        if (digest := hashlib.sha256(path.read_bytes()).hexdigest()) != expected:
            raise SourceError(f"{path.name} has the sha256 {digest}, expected {expected}", remedy="Check the index.")
    return found


def _unpack(wheels: Sequence[Path], folder: Path) -> None:
    """Extract the drivers, the requirements installer (from sagemaker-core) and the templates from the wheels."""
    train, core = wheels
    drivers = folder / "drivers"
    with zipfile.ZipFile(train) as archive:
        for name in archive.namelist():
            if name.startswith(_DRIVERS) and not name.endswith("/"):
                target = drivers / name.removeprefix(_DRIVERS)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(name))
        templates = _texts(archive.read(_TEMPLATES).decode())
    with zipfile.ZipFile(core) as archive:
        (drivers / "scripts" / Path(_INSTALLER).name).write_bytes(archive.read(_INSTALLER))
    (folder / "templates.json").write_text(json.dumps(templates, indent=1))


def _texts(module: str) -> dict[str, str]:
    """Return the string constants of a module, which is parsed, not run."""
    found = {}
    for statement in ast.parse(module).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            value = ast.literal_eval(statement.value)
            if isinstance(value, str):
                found[statement.targets[0].id] = value
    return found


def _wanted(part: Any) -> bool:
    """Return whether a strategy is enabled; SDK 2 disables it with ``enabled: false``."""
    if not isinstance(part, Mapping):
        raise RequestError(
            'distribution must be a table of tables, such as {"Torchrun": {"process_count_per_node": 2}}'
        )
    return part.get("enabled") is not False


def _model(libraries: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return SDK 2's table of the model parallel library."""
    model = libraries.get("modelparallel", {})
    if not isinstance(model, Mapping) or not isinstance(model.get("parameters", {}), Mapping):
        raise RequestError("distribution.smdistributed.modelparallel and its parameters must be tables")
    return model


def _translated(kind: DriverKind, part: Mapping[str, Any]) -> dict[str, Any]:
    """Translate SDK 2's fields to SDK 3's."""
    fields = {name: value for name, value in part.items() if name != "enabled"}
    if "processes_per_host" in fields:
        fields["process_count_per_node"] = fields.pop("processes_per_host")
    if kind == "MPI" and "custom_mpi_options" in fields:
        text = fields.pop("custom_mpi_options")
        try:
            fields["mpi_additional_options"] = shlex.split(text) or None
        except (ValueError, AttributeError) as wrong:
            raise RequestError(f"distribution.mpi.custom_mpi_options must be a string of options: {wrong}") from None
    return fields
