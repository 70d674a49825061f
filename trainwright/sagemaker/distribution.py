"""An estimator's ``distribution``: the hyperparameters that SageMaker SDK 2 makes of it, and the launcher they select.

The SDK turns it into hyperparameters and silently drops what it does not know; here an unknown key is an error. Rules
and names are from sagemaker 2.257.7 (``estimator.py``, ``pytorch/estimator.py``, ``fw_utils.py``), the
order of the launchers in sagemaker-pytorch-training 3.0.0 and sagemaker-tensorflow-training 20.4.1 (``training.py``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trainwright.core.errors import RequestError, did_you_mean
from trainwright.sagemaker.smp_parameters import check_smp

Launcher = Literal["process", "mpi", "torchrun", "smddp", "xla", "parameter-server", "mwms"]

PROCESSES = "sagemaker_mpi_num_of_processes_per_host"
TORCHRUN = "sagemaker_torch_distributed_enabled"
SMDDP = "sagemaker_distributed_dataparallel_enabled"
MPI = "sagemaker_mpi_enabled"
XLA = "sagemaker_pytorch_xla_multi_worker_enabled"
PARAMETER_SERVER = "sagemaker_parameter_server_enabled"
MWMS = "sagemaker_multi_worker_mirrored_strategy_enabled"

# The first enabled one wins. The toolkit without a framework's module supports only MPI.
PRECEDENCE: dict[str, tuple[tuple[str, Launcher], ...]] = {
    "pytorch": (
        (MPI, "mpi"),
        ("sagemaker_pytorch_ddp_enabled", "smddp"),
        (TORCHRUN, "torchrun"),
        (SMDDP, "smddp"),
        (XLA, "xla"),
    ),
    "tensorflow": ((PARAMETER_SERVER, "parameter-server"), (MWMS, "mwms"), (MPI, "mpi"), (SMDDP, "smddp")),
}
# TensorFlow's own strategies: the toolkit sets TF_CONFIG, and the script creates the strategy.
BY_TF_CONFIG: tuple[Launcher, ...] = ("mwms", "parameter-server")
# These always start one process per host.
ONE_PER_HOST: frozenset[Launcher] = frozenset({"process", *BY_TF_CONFIG})


@dataclass(frozen=True)
class Key:
    """A key: the type of its value, also in words, and the frameworks that support it."""

    kind: type
    words: str
    frameworks: tuple[str, ...] = ("pytorch", "tensorflow")

    def takes(self, value: object) -> bool:
        """Return whether a value has this type; a boolean is not a number."""
        right = isinstance(value, Mapping if self.kind is dict else self.kind)
        return right and not (self.kind is int and isinstance(value, bool))


_ENABLED = {"enabled": Key(bool, "true or false")}
_MPI_OPTIONS = {"custom_mpi_options": Key(str, "a string of mpirun options")}
_TABLE = 'a table such as {"enabled": true}'
STRATEGIES = {
    "smdistributed": Key(dict, "a table with dataparallel or modelparallel"),
    "pytorchddp": Key(dict, _TABLE, ("pytorch",)),
    "torch_distributed": Key(dict, _TABLE, ("pytorch",)),
    "mpi": Key(dict, _TABLE),
    "pytorchxla": Key(dict, _TABLE, ("pytorch",)),
    "parameter_server": Key(dict, _TABLE, ("tensorflow",)),
    "multi_worker_mirrored_strategy": Key(dict, _TABLE, ("tensorflow",)),
    "instance_groups": Key(list, "a list of the names of instance groups"),
}
INNER: dict[str, dict[str, Key]] = {
    "smdistributed": {"dataparallel": Key(dict, _TABLE), "modelparallel": Key(dict, _TABLE)},
    "smdistributed.dataparallel": _ENABLED | _MPI_OPTIONS,
    "smdistributed.modelparallel": _ENABLED | {"parameters": Key(dict, "a table of SMP's parameters")},
    "pytorchddp": _ENABLED | _MPI_OPTIONS,
    "mpi": _ENABLED | _MPI_OPTIONS | {"processes_per_host": Key(int, "a whole number")},
    **dict.fromkeys(
        ("torch_distributed", "pytorchxla", "parameter_server", "multi_worker_mirrored_strategy"), _ENABLED
    ),
}
# Names that people use for a key, too different from it for a spelling suggestion.
MEANT = {
    "torchxla": "pytorchxla",
    "torchrun": "torch_distributed",
    "ddp": "torch_distributed",
    "smddp": "smdistributed",
    "dataparallel": "smdistributed",
    "modelparallel": "smdistributed",
    "process_count": "processes_per_host",
    "nproc_per_node": "processes_per_host",
    "mwms": "multi_worker_mirrored_strategy",
    "horovod": "mpi",
}


def compile_distribution(
    distribution: Mapping[str, Any] | None,
    *,
    framework: str,
    instance_type: str,
    processes_per_host: int | None = None,
    entry_point: str | None = None,
    smp_version: str | None = None,
) -> dict[str, str]:
    """Return the hyperparameters of a ``distribution``, as SDK 2's framework estimators write them.

    Args:
        distribution: as for ``PyTorch(distribution=…)``; instance groups by name. None: one process per host.
        framework: ``pytorch`` or ``tensorflow``.
        instance_type: such as ``ml.p4d.24xlarge``.
        processes_per_host: overrides the number; the toolkit uses it for every launcher, although the SDK only writes
            it for MPI.
        entry_point: the script, if known; torchrun only starts ``.py`` files.
        smp_version: version of the model parallel library in the image, if known; decides which parameters are valid.

    Returns:
        Name to JSON-encoded value.

    Raises:
        RequestError: a key is unknown (names the nearest one), a value has the wrong type, or the SDK would reject the
            combination or silently ignore a part of it.
    """
    checked = _checked(distribution or {}, framework, instance_type, entry_point, smp_version)
    values = _hyperparameters(checked, framework, instance_type)
    if processes_per_host is not None:
        _positive("--processes-per-host", processes_per_host)
        values[PROCESSES] = processes_per_host
    return {name: json.dumps(value) for name, value in values.items()}


def launcher_of(distribution: Mapping[str, Any] | None, framework: str = "pytorch", hosts: int = 2) -> Launcher:
    """Return the launcher with which the framework's module starts the script.

    Args:
        distribution: as for :func:`compile_distribution`.
        framework: ``pytorch`` or ``tensorflow``.
        hosts: number of hosts; parameter servers need more than one.

    Raises:
        RequestError: as :func:`compile_distribution`.
    """
    return _first(_checked(distribution or {}, framework, "", None, None), framework, hosts)


def launcher_named(distribution: Mapping[str, Any]) -> Launcher:
    """Return the launcher like :func:`launcher_of` for several hosts, but ignore errors in the ``distribution``.

    A strategy that only one framework supports selects that framework.
    """
    given: dict[str, Any] = {key: value for key, value in distribution.items() if isinstance(value, Mapping)}
    libraries = {key: value for key, value in given.get("smdistributed", {}).items() if isinstance(value, Mapping)}
    if "pytorchddp" in given:
        libraries.setdefault("dataparallel", given["pytorchddp"])
    if "smdistributed" in given or libraries:
        given["smdistributed"] = libraries
    named = [STRATEGIES[key].frameworks for key in given if key in STRATEGIES and _enabled(given, key)]
    return _first(given, "tensorflow" if ("tensorflow",) in named else "pytorch", hosts=2)


def _first(given: Mapping[str, Any], framework: str, hosts: int) -> Launcher:
    """Return the first enabled launcher in the order of the framework's module."""
    values = _hyperparameters(given, framework, "")
    for name, launcher in PRECEDENCE[framework]:
        if values.get(name) is True and not (name == PARAMETER_SERVER and hosts == 1):
            return launcher
    return "process"


def processes_per_host(distribution: Mapping[str, Any] | None) -> int | None:
    """Return the processes per host in a ``distribution``; None: the toolkit decides."""
    mpi = (distribution or {}).get("mpi")
    number = mpi.get("processes_per_host") if isinstance(mpi, Mapping) else None
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else None


def framework_of(distribution: Mapping[str, Any] | None) -> str | None:
    """Return the framework if only one supports a strategy in the ``distribution``, else None."""
    alone = [STRATEGIES[name].frameworks for name in distribution or {} if name in STRATEGIES]
    return next((names[0] for names in alone if len(names) == 1), None)


def ranks_per_host(launcher: Launcher, asked: int | None, devices: int) -> int:
    """Return how many processes a launcher starts on a host.

    Args:
        launcher: the launcher.
        asked: the number in the job; None: one per device.
        devices: number of GPUs or NeuronCores, at least 1.
    """
    return 1 if launcher in ONE_PER_HOST else asked or devices


def needs_framework_module(launcher: Launcher) -> bool:
    """Return whether the launcher needs the framework's module; sagemaker-training alone starts one process instead."""
    return launcher not in ("process", "mpi")


def _hyperparameters(given: Mapping[str, Any], framework: str, instance_type: str) -> dict[str, Any]:
    """The SDK's own mapping (``_pytorch_distribution_configuration``, ``_distribution_configuration``)."""
    torchrun = bool(given.get("torch_distributed", {}).get("enabled", False))
    if framework == "pytorch" and torchrun:
        values = _general(given, instance_type) if "smdistributed" in given else {}
        return values | {TORCHRUN: True, "sagemaker_instance_type": instance_type}
    return _general(given, instance_type)


def _general(given: Mapping[str, Any], instance_type: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if "instance_groups" in given:
        values["sagemaker_distribution_instance_groups"] = given["instance_groups"]
    for key, name in (("pytorchxla", XLA), ("parameter_server", PARAMETER_SERVER)):
        if key in given:
            values[name] = given[key].get("enabled", False)
    if "mpi" in given:
        mpi = given["mpi"]
        values[MPI] = mpi.get("enabled", False)
        if "processes_per_host" in mpi:
            values[PROCESSES] = mpi["processes_per_host"]
        values["sagemaker_mpi_custom_mpi_options"] = mpi.get("custom_mpi_options", "")
    if "smdistributed" in given:
        model, data = (given["smdistributed"].get(key, {}) for key in ("modelparallel", "dataparallel"))
        if model.get("enabled", False) and model.get("parameters"):
            # No sagemaker_ prefix: the script gets it as well, as --mp_parameters.
            values["mp_parameters"] = model["parameters"]
        values[SMDDP] = data.get("enabled", False)
        values["sagemaker_instance_type"] = instance_type
        if data.get("enabled", False):
            values["sagemaker_distributed_dataparallel_custom_mpi_options"] = data.get("custom_mpi_options", "")
    if "multi_worker_mirrored_strategy" in given:
        values[MWMS] = given["multi_worker_mirrored_strategy"].get("enabled", False)
    return values


# --- validation ----------------------------------------------------------------------------------------------------


def _checked(
    given: Mapping[str, Any], framework: str, instance_type: str, entry_point: str | None, smp_version: str | None
) -> dict[str, Any]:
    """Validate the distribution, and return it with ``pytorchddp`` rewritten as the SDK does."""
    if framework not in PRECEDENCE:
        raise RequestError(
            f"unknown framework {framework!r} for a distribution", remedy=did_you_mean(framework, PRECEDENCE)
        )
    if not isinstance(given, Mapping):
        raise RequestError('distribution must be a table, such as {"torch_distributed": {"enabled": true}}')
    _check_keys(given, STRATEGIES, "distribution", framework)
    for name, keys in INNER.items():
        outer, _, inner = name.partition(".")
        part = given.get(outer, {}) if not inner else given.get(outer, {}).get(inner, {})
        _check_keys(part, keys, f"distribution.{name}", framework)
    if "processes_per_host" in given.get("mpi", {}):
        _positive("distribution.mpi.processes_per_host", given["mpi"]["processes_per_host"])
    checked = dict(given)
    if "pytorchddp" in checked:
        if "smdistributed" in checked:
            raise RequestError("distribution has both pytorchddp and smdistributed; keep one of them")
        checked["smdistributed"] = {"dataparallel": checked.pop("pytorchddp")}
    _check_smdistributed(checked, framework, instance_type, smp_version)
    _check_together(checked, instance_type, entry_point)
    return checked


def _check_keys(part: Mapping[str, Any], keys: Mapping[str, Key], where: str, framework: str) -> None:
    known = {name: key for name, key in keys.items() if framework in key.frameworks}
    for name, value in part.items():
        if name not in keys:
            meant = MEANT.get(name)
            hint = f"Did you mean {meant}?" if meant in keys else did_you_mean(name, known)
            raise RequestError(f"{where}: unknown key {name!r}; the SDK would silently drop it", remedy=hint)
        if name not in known:
            raise RequestError(
                f"{where}: {name} is for {' and '.join(keys[name].frameworks)}; a {framework} image ignores it",
                remedy=f"Valid for {framework}: {', '.join(sorted(known))}.",
            )
        if not keys[name].takes(value):
            raise RequestError(f"{where}.{name} must be {keys[name].words}, not {json.dumps(value, default=str)}")


def _positive(where: str, number: int) -> None:
    if number < 1:
        raise RequestError(f"{where} is {number}; it must be at least 1")


def _enabled(given: Mapping[str, Any], *path: str) -> bool:
    part: Any = given
    for name in path:
        part = part.get(name, {})
    return bool(part.get("enabled", False))


def _check_together(given: Mapping[str, Any], instance_type: str, entry_point: str | None) -> None:
    """Reject combinations of which one strategy would silently win, or that the SDK rejects."""
    torchrun, mpi = _enabled(given, "torch_distributed"), _enabled(given, "mpi")
    smddp = _enabled(given, "smdistributed", "dataparallel")
    others = [name for name in given if name != "instance_groups"]
    if re.match(r"ml[._]trn", instance_type) and others not in ([], ["torch_distributed"]):
        raise RequestError(
            f"{instance_type}: Trainium supports only torch_distributed, not {', '.join(others)}",
            remedy='--distribution \'{"torch_distributed": {"enabled": true}}\'',
        )
    for a, b, names, winner in (
        (torchrun, mpi, "torch_distributed and mpi", "the SDK drops mpi"),
        (mpi, smddp, "mpi and smdistributed.dataparallel", "the container takes mpi"),
        (torchrun, smddp, "torch_distributed and smdistributed.dataparallel", "the container takes torchrun"),
    ):
        if a and b:
            raise RequestError(f"distribution has {names}, and {winner} silently", remedy="Keep one of them.")
    if _enabled(given, "multi_worker_mirrored_strategy") and any(
        name in given for name in ("smdistributed", "parameter_server")
    ):
        raise RequestError("multi_worker_mirrored_strategy cannot be combined with smdistributed or parameter_server")
    if torchrun and entry_point is not None and not entry_point.endswith(".py"):
        raise RequestError(f"torch_distributed only starts Python files (*.py), not {entry_point}")
    groups = given.get("instance_groups", [])
    if not all(isinstance(name, str) for name in groups):
        raise RequestError("distribution.instance_groups must be a list of names")
    if groups and not (mpi or smddp):
        raise RequestError("distribution.instance_groups needs mpi or smdistributed.dataparallel")


def _check_smdistributed(given: Mapping[str, Any], framework: str, instance_type: str, smp_version: str | None) -> None:
    if "smdistributed" not in given:
        return
    names = list(given["smdistributed"])
    if len(names) != 1:
        raise RequestError("distribution.smdistributed needs exactly one of dataparallel and modelparallel")
    torchrun = _enabled(given, "torch_distributed")
    if "p5.48xlarge" in instance_type and not torchrun:
        raise RequestError(
            f"the SDK rejects smdistributed on {instance_type} without torch_distributed",
            remedy='Add "torch_distributed": {"enabled": true}.',
        )
    model = given["smdistributed"].get("modelparallel", {})
    if not model.get("enabled", False):
        return
    if not model.get("parameters"):
        raise RequestError(
            "distribution.smdistributed.modelparallel is enabled without parameters, which silently disables it"
        )
    if not (torchrun or _enabled(given, "mpi")):
        raise RequestError(
            "distribution.smdistributed.modelparallel needs a launcher",
            remedy='Add "mpi": {"enabled": true, "processes_per_host": 8} (SMP 1) or '
            '"torch_distributed": {"enabled": true} (SMP 2).',
        )
    if framework == "pytorch" and not torchrun and "processes_per_host" not in given["mpi"]:
        raise RequestError("modelparallel over mpi needs distribution.mpi.processes_per_host (one process per GPU)")
    check_smp(model["parameters"], smp_version)
