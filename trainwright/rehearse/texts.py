"""Failures that are known by what some program says of them: the catalogue that :mod:`causes` looks things up in."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """One such failure.

    Attributes:
        id: of the cause.
        pattern: looked for in the whole text of a host; its named groups fill ``text`` and ``remedy``.
        text: the cause in one line.
        remedy: what to do.
    """

    id: str
    pattern: re.Pattern[str]
    text: str
    remedy: str


def _text(id: str, pattern: str, text: str, remedy: str) -> Text:
    return Text(id, re.compile(pattern, re.MULTILINE), text, remedy)


# The first that fits is taken: what comes first in a job's life comes first here.
TEXTS = (
    _text(
        "train-missing",
        r'exec: \\?"(?P<program>train|/bin/bash)\\?": (?:stat [^:]+: no such|executable file not found|permission)',
        "the image has no program {program} that can be run",
        "train comes with the sagemaker-toolkit component and has to be executable and on PATH; SDK 3 needs bash.",
    ),
    _text(
        "requirement-unreachable",
        r"(?P<why>NewConnectionError|Temporary failure in name resolution|Network is unreachable|No route to host|"
        r"CERTIFICATE_VERIFY_FAILED|ProxyError|ConnectTimeoutError|ReadTimeoutError)[\s\S]*?InstallRequirementsError",
        "requirements.txt cannot be installed: pip reaches no package index from the hosts ({why})",
        "Put the packages into the image (build --with-requirements), or name an index that the hosts reach: "
        "--env PIP_INDEX_URL=URL, --env PIP_CERT=FILE (in the image), or pip's own options in requirements.txt.",
    ),
    _text(
        "requirement-impossible",
        r"ERROR: (?:No matching distribution found for|Could not find a version that satisfies the requirement) "
        r"(?P<what>[^\s(]+)",
        "requirements.txt asks for {what}, and pip finds no such package for the image's Python",
        "Correct requirements.txt, or build the package into the image (build --with-requirements).",
    ),
    _text(
        "requirement-impossible",
        r"InstallRequirementsError",
        "requirements.txt cannot be installed",
        "pip's last lines say why; a package that needs a compiler is better built into the image.",
    ),
    _text(
        "mca-key-repeated",
        r"listed multiple times on the\s+(?:\S+\s+)?command line:[\s\S]*?MCA param:\s+(?P<key>\S+)",
        "mpirun got the MCA parameter {key} twice; the launcher sets it already, and Open MPI refuses a repeated one",
        "Take {key} out of custom_mpi_options. To change its value: -x OMPI_MCA_{key}=VALUE",
    ),
    _text(
        "mpi-option-unknown",
        r"mpirun: (?:Error: unknown option|unrecognized argument|option) \"?(?P<option>-\S+?)\"?$",
        "mpirun does not know the option {option}",
        "Correct custom_mpi_options; mpirun --help in the image lists what it knows.",
    ),
    _text(
        "interface-missing",
        r"None of the TCP networks specified[\s\S]*?Value given:\s+(?P<name>\S+)",
        "the hosts have no network interface {name}, which resourceconfig.json names",
        "On the platform it is eth0. SDK 3's local mode writes ethwe (a bug): run the job with --sdk 3 here instead.",
    ),
    _text(
        "interface-missing",
        r"None of the TCP networks specified",
        "the hosts have no network interface of the name that resourceconfig.json gives",
        "On the platform it is eth0.",
    ),
    _text(
        "open-mpi-5",
        r"\bprte(?:run|d|_)|\bPRTE?\b ERROR|PRRTE",
        "the image has Open MPI 5 (its launcher is prterun); the toolkit waits for a process named orted",
        "Put Open MPI 4 into the image, which has orted: --set openmpi=4.1.4",
    ),
    _text(
        "mpi4py-missing",
        r"No module named '?mpi4py'?",
        "the launcher runs the script by python -m mpi4py, and the image has no mpi4py",
        "Add the component mpi4py to the image, or the package to its requirements.",
    ),
    _text(
        "paramiko-missing",
        r"No module named '?paramiko'?",
        "the launcher tries the other hosts by paramiko, and the image's python3 has no paramiko",
        "SDK 3's MPI driver needs paramiko under the first python3 on PATH; sagemaker-training brings it.",
    ),
    _text(
        "sshd-missing",
        r"SSH daemon not found",
        "the image has no /usr/sbin/sshd, by which the hosts of an MPI job reach one another",
        "Add the component ssh to the image.",
    ),
    _text(
        "entry-point-missing",
        r"can't open file '(?P<file>[^']+)'",
        "there is no file {file} in the container",
        "Name the entry point relative to the source folder, and see that the folder holds it.",
    ),
    _text(
        "entry-point-refused",
        r"The training entry point '(?P<name>[^\n']+)' (?P<why>cannot be used because it contains [^\n]+?(?=\. |$)|"
        r"resolves to a location outside)",
        "the toolkit refuses the entry point {name}: it {why}",
        "Name the entry point relative to the source folder, without .. and with letters, digits, . _ + - / only.",
    ),
    _text(
        "launcher-missing",
        r"No such file or directory: '(?P<program>torchrun|mpirun|smddprun|neuron_parallel_compile)'"
        r"|(?P<other>torchrun|mpirun): (?:command )?not found",
        "the image has no {program}",
        "Put it into the image; ./invoke list --components says which component brings it.",
    ),
    _text(
        "xla-missing",
        r"Unable to find (?:PT-XLA|SageMaker integration code in PT-XLA)",
        "the image has no torch_xla with SageMaker's launcher in it",
        "Only AWS's own containers hold it: build from one (--base dlc).",
    ),
    _text(
        "xla-needs-gpu",
        r"Distributed training through PT-XLA is only supported for GPUs",
        "PyTorch/XLA runs on GPUs only, and the hosts have none",
        "Look at the launch line with --launch-only and --instance-type, or rehearse where the engine has GPUs.",
    ),
    _text(
        "framework-module-missing",
        r"No module named '?(?P<module>sagemaker_\w+_container)'?",
        "SAGEMAKER_TRAINING_MODULE names {module}, and the image has no such module",
        "Install it (sagemaker-pytorch-training, sagemaker-tensorflow-training), or unset the variable.",
    ),
    _text(
        # keras-team/keras issue 20585; seen with Keras 3.15.1 and TensorFlow 2.21.0.
        "keras-3-fit",
        r"Attempt to convert a value \(PerReplica:",
        "Keras 3 cannot train a model with fit under MultiWorkerMirroredStrategy",
        "Train in a loop of your own (examples/tensorflow-multi-worker), or put tf-keras of TensorFlow's version into "
        "the image and start the job with --env TF_USE_LEGACY_KERAS=1.",
    ),
)
