"""The launch lines of a job, for any instance type, without owning one: nothing of the user's code is run.

Small programs come first on the hosts' PATH, mounted read-only. Those in place of ``nvidia-smi`` and ``neuron-ls`` show
the devices of the instance type; those in place of the launchers write down how they were called and end. Where the
script is started without a launcher, a stand-in lies in the code archive under the name of the entry point. The toolkit
(or SDK 3's drivers) of the image does the rest as always, so the lines are its own.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.rehearse.observed import Cause
from trainwright.rehearse.rehearsed_job import RehearsedJob
from trainwright.sagemaker.distribution import BY_TF_CONFIG, Launcher
from trainwright.sagemaker.instances import Instance

LAUNCHERS = ("mpirun", "torchrun", "neuron_parallel_compile")
_CONTROL = "/opt/trainwright-rehearsal"
_FACTS = f"{_CONTROL}/facts"
_NAME = "launch"  # files of a launch: launch.<pid>.{cmdline,environ,cwd,image}

# How a stand-in writes down its call. /proc has the words and the variables as they were given, whatever they hold.
# Last comes the file that says whether the image has the real program, so it also says that all is written.
_RECORD = f"""\
at={_FACTS}/{_NAME}.$$
cat /proc/$$/cmdline > $at.cmdline
cat /proc/$$/environ > $at.environ
pwd > $at.cwd
"""
_LAUNCHER = f"""\
#!/bin/sh
# Stands in for a launcher while launch lines are looked at: writes down its call, starts nothing.
{_RECORD}
name=${{0##*/}}
PATH=$(printf %s "$PATH" | sed "s#{_CONTROL}/bin:##g")
command -v "$name" > $at.part || true
mv $at.part $at.image
echo "launch only: $name was called, and starts nothing"
"""
_SHELL_SCRIPT = f"""\
#!/bin/sh
# Stands in for the entry point while launch lines are looked at.
{_RECORD}
echo "$0" > $at.image
"""
# The launcher of PyTorch/XLA is a module, which only AWS's own builds of torch_xla hold; whether the image has it is
# asked of the folders behind the stand-in's.
_PYTHON_SCRIPT = f"""\
# Stands in for the entry point, or for a launcher that is a module, while launch lines are looked at.
import importlib.machinery
import os
import sys

at = "{_FACTS}/{_NAME}.%d" % os.getpid()
for name in ("cmdline", "environ"):
    with open("/proc/self/" + name, "rb") as source, open(at + "." + name, "wb") as target:
        target.write(source.read())
with open(at + ".cwd", "w") as target:
    target.write(os.getcwd())
image = __file__
if "torch_xla" in __file__:
    rest = [folder for folder in sys.path if not folder.startswith("{_CONTROL}")]
    found = importlib.machinery.PathFinder.find_spec("torch_xla", rest)
    image = found.origin or "" if found else ""
with open(at + ".part", "w") as target:
    target.write(image)
os.rename(at + ".part", at + ".image")
"""


def stand_ins(job: RehearsedJob) -> dict[str, str]:
    """The launchers that start nothing, by name, for every host's PATH."""
    return dict.fromkeys(LAUNCHERS, _LAUNCHER) if job.launch_only else {}


def devices(machine: Instance) -> dict[str, str]:
    """``nvidia-smi`` or ``neuron-ls`` as the toolkit and SDK 3's drivers ask them, for an instance type."""
    programs = {}
    if machine.gpus:
        name = f"NVIDIA {machine.gpu or 'GPU'}"
        rows = "\n".join(
            f"GPU {n}: {name} (UUID: GPU-{n:08x}-0000-0000-0000-000000000000)" for n in range(machine.gpus)
        )
        programs["nvidia-smi"] = _only("--list-gpus|-L", rows, "nvidia-smi")
    if machine.neuron_devices:
        cores = machine.neuron_cores // machine.neuron_devices
        listed = [{"neuron_device": n, "nc_count": cores} for n in range(machine.neuron_devices)]
        programs["neuron-ls"] = _only("-j|--json-output", json.dumps(listed), "neuron-ls")
    return programs


def packages(job: RehearsedJob, launcher: Launcher) -> dict[str, str]:
    """Modules that stand in for launchers: file name, below a folder that comes first on PYTHONPATH, to text.

    There are some for PyTorch/XLA alone; elsewhere a second ``torch_xla`` could mislead the image's own packages.
    """
    if not job.launch_only or launcher != "xla":
        return {}
    return {
        "torch_xla/__init__.py": "",
        "torch_xla/distributed/__init__.py": "",
        # Imported to see whether it is there, and run as the program: only the latter writes.
        "torch_xla/distributed/xla_spawn.py": "if __name__ == '__main__':\n" + _indented(_PYTHON_SCRIPT),
    }


def entry_point(name: str) -> str:
    """What lies in the code archive in place of the entry point."""
    return _PYTHON_SCRIPT if name.endswith(".py") else _SHELL_SCRIPT


@dataclass(frozen=True)
class LaunchLine:
    """One call of a launcher (or of the entry point where there is none).

    Attributes:
        host: ``algo-1``.
        argv: the words of the line.
        cwd: the folder that it was called in.
        environment: every variable that it was given.
        in_image: where the image has the real program; empty: it has none, and the job would end here.
    """

    host: str
    argv: tuple[str, ...]
    cwd: str
    environment: Mapping[str, str]
    in_image: str

    @property
    def line(self) -> str:
        """The words as a shell would take them."""
        return shlex.join(self.argv)

    @property
    def program(self) -> str:
        """The name of what was called."""
        if "torch_xla.distributed.xla_spawn" in self.argv:
            return "torch_xla.distributed.xla_spawn"
        return self.argv[0].rpartition("/")[2]

    def shown(self, image: Mapping[str, str]) -> dict[str, str]:
        """The variables that decide how the ranks find one another, without those that the image sets alike."""
        return {
            name: value
            for name, value in sorted(self.environment.items())
            if _TELLING.match(name) and image.get(name) != value
        }

    def as_json(self) -> dict[str, Any]:
        """For the document of a rehearsal."""
        return {
            "host": self.host,
            "argv": list(self.argv),
            "cwd": self.cwd,
            "environment": dict(sorted(self.environment.items())),
            "in_image": self.in_image,
        }


_TELLING = re.compile(
    r"(NCCL|FI|OFI|RDMAV|MASTER|GPU_NUM|XRT|PJRT|NEURON|SMDATAPARALLEL|OMPI|TF_CONFIG|SM_DLC|LD_PRELOAD|RANK|WORLD)"
    r"|SM_(CURRENT_HOST|CURRENT_INSTANCE_TYPE|HOSTS|NUM_GPUS|NUM_NEURONS|NETWORK_INTERFACE_NAME|HP_MP_PARAMETERS)$"
)


def read(folder: Path, host: str) -> tuple[LaunchLine, ...]:
    """The calls that a host's stand-ins wrote down, in their order.

    Args:
        folder: the host's ``facts``.
        host: its name.
    """
    found = []
    for done in sorted(folder.glob(f"{_NAME}.*.image"), key=lambda path: path.stat().st_mtime_ns):
        base = done.name.removesuffix(".image")
        argv, environ = (_words(folder / f"{base}.{part}") for part in ("cmdline", "environ"))
        pairs = (word.partition("=") for word in environ)
        found.append(
            LaunchLine(
                host=host,
                argv=_own(argv),
                cwd=_text(folder / f"{base}.cwd").strip(),
                environment={name: value for name, _, value in pairs},
                in_image=done.read_text(errors="replace").strip(),
            )
        )
    return tuple(found)


def launching_hosts(launcher: Launcher, hosts: tuple[str, ...]) -> tuple[str, ...]:
    """The hosts that call a launcher: with MPI the first one starts the ranks of all."""
    return hosts[:1] if launcher in ("mpi", "smddp") else hosts


def awaited(launcher: Launcher, job: RehearsedJob) -> set[str]:
    """The hosts of which a line is wanted: those that call the launcher, and those that run the script without it."""
    alone = set(job.host_names) - set(job.rank_hosts)
    return alone | set(launching_hosts(launcher, job.rank_hosts))


def complete(hosts: Iterable[str], folders: Mapping[str, Path]) -> bool:
    """Whether every host that launches has done so; the rest of the job (30 s of sleep with MPI) tells nothing more.

    Args:
        hosts: of which a line is wanted.
        folders: the ``facts`` of each host, by name.
    """
    return all(any(folders[host].glob(f"{_NAME}.*.image")) for host in hosts)


def find_cause(launcher: Launcher, launches: tuple[LaunchLine, ...], hosts: tuple[str, ...]) -> Cause | None:
    """Why the job could not be launched so, if it could not: something that the launch line needs is not in the image.

    Args:
        launcher: that was asked for.
        launches: of the hosts that have ranks.
        hosts: their names.
    """
    for launch in launches:
        if not launch.in_image:
            return Cause(
                "launcher-missing",
                f"{launch.program} is called, and the image has none",
                f"Put {launch.program} into the image; the component that brings it: ./invoke list --components.",
                host=launch.host,
            )
    programs = {launch.host: launch.program for launch in launches}
    wanted = {"mpi": "mpirun", "smddp": "mpirun", "torchrun": "torchrun", "xla": "torch_xla.distributed.xla_spawn"}
    right = wanted.get(launcher)
    for host in launching_hosts(launcher, hosts):
        if right and host in programs and programs[host] not in (right, "neuron_parallel_compile"):
            return Cause(
                "plain-toolkit",
                f"{launcher} was asked for, but {programs[host]} starts one process: the image has the plain toolkit",
                "Add the framework's module: sagemaker-pytorch-training, and "
                "SAGEMAKER_TRAINING_MODULE=sagemaker_pytorch_container.training:main.",
                host=host,
            )
    for launch in launches:
        if launcher in BY_TF_CONFIG and "TF_CONFIG" not in launch.environment:
            return Cause(
                "plain-toolkit",
                f"{launcher} was asked for, but nothing sets TF_CONFIG: the image has the plain toolkit",
                "Add the framework's module: sagemaker-tensorflow-training, and "
                "SAGEMAKER_TRAINING_MODULE=sagemaker_tensorflow_container.training:main.",
                host=launch.host,
            )
        if launcher == "smddp" and "smddprun" not in launch.argv:
            return Cause(
                "smddprun-missing",
                "SMDDP was asked for, and the image has no smddprun: mpirun starts the script without the library",
                "Put the smdistributed-dataparallel wheel for this PyTorch into the image, or use torch_distributed.",
                host=launch.host,
            )
    return None


def _own(argv: list[str]) -> tuple[str, ...]:
    """The line as it was called: a stand-in that is a script has its interpreter in front, and its folder."""
    if argv[:1] == ["/bin/sh"] and len(argv) > 1 and argv[1].startswith(f"{_CONTROL}/bin/"):
        return (argv[1].rpartition("/")[2], *argv[2:])
    return tuple(argv)


def _words(path: Path) -> list[str]:
    return _text(path).split("\0")[:-1]


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _only(option: str, text: str, name: str) -> str:
    """A program that answers one question."""
    return (
        f"#!/bin/sh\n# Stands in for {name}: shows the devices of an instance type.\n"
        f"case ${{1-}} in\n{option})\ncat <<'END'\n{text}\nEND\n;;\n"
        f'*) echo "{name}: a stand-in; it knows {option} alone" >&2; exit 1 ;;\nesac\n'
    )


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())
