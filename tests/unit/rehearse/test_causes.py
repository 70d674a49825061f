"""From what was seen of a failed job to its cause. The texts are those that the programs wrote when each failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.rehearse.causes import before_start, explain, failed, module_of
from trainwright.rehearse.observed import HostFacts, JobFacts, Process
from trainwright.rehearse.rehearsed_job import RehearsedJob
from trainwright.sagemaker.causes import load_book

INVOKED = "2026-11-21 12:11:55,664 sagemaker-training-toolkit INFO     Invoking script with the following command:"
IMPORTED = "sagemaker-training-toolkit INFO     Imported framework sagemaker_pytorch_container.training"
MCA = """\
A requested component was not found
---------------------------------------------------------------------------
The following MCA parameter has been listed multiple times on the
command line:

  MCA param:   btl_vader_single_copy_mechanism

MCA parameters can only be listed once on a command line to ensure there
is no ambiguity as to its value.  Please correct the situation and
try again."""
PIP = """\
WARNING: Retrying (Retry(total=0)) after connection broken by 'SSLError(SSLCertVerificationError(1, '[SSL: \
CERTIFICATE_VERIFY_FAILED] certificate verify failed'))': /simple/x/
ERROR: Could not find a version that satisfies the requirement x==1.0 (from versions: none)
ERROR: No matching distribution found for x==1.0
sagemaker-training-toolkit ERROR    InstallRequirementsError:"""
# pip 26.3 with PIP_CONSTRAINT, for `torch>=2.14`.
CONSTRAINT = """\
ERROR: Cannot install torch>=2.14 because these package versions have conflicting dependencies.

The conflict is caused by:
    The user requested torch>=2.14
    The user requested (constraint) torch==2.13.0+cpu

Additionally, some packages in these conflicts have no matching distributions available for your environment:
    torch

To fix this you could try to:
1. loosen the range of package versions you've specified
2. remove package versions to allow pip to attempt to solve the dependency conflict

ERROR: ResolutionImpossible: for help visit \
https://pip.pypa.io/en/latest/topics/dependency-resolution/#dealing-with-dependency-conflicts
sagemaker-training-toolkit ERROR    InstallRequirementsError:"""
INTERFACE = """\
WARNING: An invalid value was given for oob_tcp_if_include.
  Local host:  ip-10-77-0-1
  Value:       ethwe
None of the TCP networks specified to be included for out-of-band communications
could be found:

  Value given: ethwe
"""


def host(name: str = "algo-1", text: str = "", **more: Any) -> HostFacts:
    values = {"exit_code": 1, "failure": "ExecuteUserScriptError", "ended_at": 10.0, **more}
    return HostFacts(name, log=tuple(text.splitlines()), **values)


def good(name: str = "algo-1", text: str = "", **more: Any) -> HostFacts:
    return host(name, text, **{"exit_code": 0, "failure": None, "success": True, **more})


def facts(*hosts: HostFacts, launcher: Any = "process", count: int = 1, **more: Any) -> JobFacts:
    about = {name: more.pop(name) for name in ("timed_out", "stopped") if name in more}
    job = RehearsedJob("image", "src/train.py", hosts=len(hosts), **more)
    return JobFacts(job, launcher, count, hosts, **about)


def rank(number: int, size: int, **more: Any) -> Process:
    environment = {"OMPI_COMM_WORLD_RANK": str(number), "OMPI_COMM_WORLD_SIZE": str(size)}
    return Process(100 + number, 1, ("python3", "-m", "mpi4py", "train.py"), environment=environment, **more)


@pytest.mark.parametrize(
    ("text", "id", "says", "cure"),
    [
        (MCA, "mca-key-repeated", "btl_vader_single_copy_mechanism twice", "-x OMPI_MCA_btl_vader_single_copy"),
        (INTERFACE, "interface-missing", "no network interface ethwe", "eth0"),
        (PIP, "requirement-unreachable", "CERTIFICATE_VERIFY_FAILED", "PIP_INDEX_URL"),
        (PIP.partition("\n")[2], "requirement-impossible", "no package for x==1.0", "requirements.txt"),
        (CONSTRAINT, "requirement-constrained", "another version than torch==2.13.0+cpu", 'PIP_CONSTRAINT": ""'),
        ("InstallRequirementsError:", "requirement-impossible", "cannot be installed", "last lines of pip"),
        ("/opt/venv/bin/python: No module named mpi4py", "mpi4py-missing", "no mpi4py", "mpi4py"),
        (
            "ModuleNotFoundError: No module named 'paramiko'",
            "paramiko-missing",
            "paramiko, which",
            "sagemaker-training",
        ),
        ("RuntimeError: cannot load MPI library", "mpi-library", "no MPI library", "Open MPI 4"),
        ("prterun was unable to find the specified executable file", "open-mpi-5", "Open MPI 5", "openmpi=4.1.4"),
        ("RuntimeError: SSH daemon not found.", "sshd-missing", "no /usr/sbin/sshd", "component ssh"),
        (
            "/opt/venv/bin/python: can't open file '/opt/ml/code/x.py': [Errno 2] No such file or directory",
            "entry-point-missing",
            "file /opt/ml/code/x.py is not in",
            "relative to the source folder",
        ),
        (
            "ERROR    The training entry point 'my train.py' cannot be used because it contains the character(s) ' '. "
            "Rename the script so its name contains only letters, digits",
            "entry-point-refused",
            "entry point my train.py: it cannot be used because it contains the character(s) ' '",
            "without ..",
        ),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: 'torchrun'",
            "launcher-missing",
            "no torchrun",
            "list --components",
        ),
        ("sh: 1: mpirun: not found", "launcher-missing", "no mpirun", "list --components"),
        (
            "ModuleNotFoundError: No module named 'sagemaker_pytorch_container'",
            "framework-module-missing",
            "sagemaker_pytorch_container",
            "sagemaker-pytorch-training",
        ),
        ("Unable to find PT-XLA in the execution environment.", "xla-missing", "no torch_xla", "--base dlc"),
        (
            'starting container process caused: exec: "train": executable file not found in $PATH: unknown',
            "train-missing",
            "no executable program train",
            "sagemaker-toolkit",
        ),
    ],
)
def test_a_failure_is_known_by_what_is_said_of_it(text, id, says, cure):
    cause = explain(facts(host(text=text)))
    assert cause is not None
    assert (cause.id, cause.host) == (id, "algo-1")
    assert says in cause.text
    assert cure in cause.remedy
    # What a job says and lives through is no cause of anything.
    assert explain(facts(good(text=text))) is None


def test_the_line_of_a_rank_tells_which_one_it_is():
    lines = "[1,0]<stdout>:fine\n[1,3]<stderr>:/usr/bin/python3: No module named mpi4py\n"
    cause = explain(facts(host(text=lines), host("algo-2", end="taken down"), launcher="mpi", count=2))
    assert cause is not None
    assert cause.rank == 3


def test_the_host_that_failed_first_is_asked_first():
    late = host("algo-1", "prterun: x", end="taken down", ended_at=3.0)
    first = host("algo-2", "prterun: x", ended_at=5.0)
    cause = explain(facts(late, first))
    assert cause is not None
    assert cause.host == "algo-2"


@given(
    st.lists(st.sampled_from([cause.pattern for cause in load_book().rehearsal] + [MCA, PIP, INTERFACE]), max_size=4),
    st.text(),
)
def test_any_text_gives_whole_sentences(parts, more):
    cause = explain(facts(host(text="\n".join([*parts, more]))))
    for words in (cause.text, cause.remedy) if cause else ():
        assert words
        assert "\n" not in words


def test_a_well_job_has_no_cause():
    ranks = tuple(rank(number, 4) for number in range(4))
    hosts = (good(processes=ranks[:2], text=IMPORTED + INVOKED), good("algo-2", processes=ranks[2:]))
    assert explain(facts(*hosts, launcher="mpi", count=2)) is None
    assert explain(facts(*hosts, launcher="mpi", count=2, sdk=3)) is None


def test_parameter_servers_need_the_framework_s_module_on_several_hosts():
    """The module starts servers beside the script where there are hosts to serve, and else the script alone, as
    ``_should_run_parameter_server`` of sagemaker-tensorflow-training (training.py) has it: more than one host.
    """
    text = f"{INVOKED}\n/usr/local/bin/python3 train.py"
    two = facts(good(text=text), good("algo-2", text=text), launcher="parameter-server", framework="tensorflow")
    cause = explain(two)
    assert cause is not None
    assert (cause.id, cause.host) == ("plain-toolkit", "algo-1")
    assert "sagemaker-tensorflow-training" in cause.remedy
    assert explain(facts(good(text=text), launcher="parameter-server", framework="tensorflow")) is None


def test_train_that_does_nothing():
    cause = explain(facts(good(success=False)))
    assert cause is not None
    assert cause.id == "train-silent"
    # SDK 3's drivers write no success file.
    assert explain(facts(good(success=False), sdk=3)) is None
    assert failed(facts(good(success=False)))
    assert not failed(facts(good(success=False), sdk=3))


@pytest.mark.parametrize("launcher", ["torchrun", "smddp", "xla"])
def test_one_process_where_a_launcher_was_asked_for(launcher):
    cause = explain(facts(good(text=INVOKED), good("algo-2", text=INVOKED), launcher=launcher, count=2))
    assert cause is not None
    assert cause.id == "plain-toolkit"
    assert "sagemaker-pytorch-training" in cause.remedy
    assert explain(facts(good(text=f"{IMPORTED}\n{INVOKED}"), launcher=launcher, count=2)) is None
    assert explain(facts(good(text=INVOKED), launcher="mpi", count=2)) is None
    ranks = (rank(0, 2), rank(1, 2))
    assert explain(facts(good(text=INVOKED, processes=ranks), launcher=launcher, count=2)) is None
    alone = explain(facts(good(text=INVOKED), launcher=launcher, count=2))
    assert alone is not None
    assert alone.id == "plain-toolkit"


@pytest.mark.parametrize(
    ("launcher", "framework", "module"),
    [
        ("torchrun", "pytorch", "sagemaker-pytorch-training"),
        ("mpi", "tensorflow", "sagemaker-tensorflow-training"),
        ("mwms", "", "sagemaker-tensorflow-training"),
        ("parameter-server", "", "sagemaker-tensorflow-training"),
    ],
)
def test_the_module_that_knows_a_launcher(launcher: Any, framework: str, module: str) -> None:
    assert module in module_of(launcher, framework)


def test_tensorflow_without_its_module():
    asked = {"launcher": "mwms", "framework": "tensorflow"}
    cause = explain(facts(good(text=INVOKED), good("algo-2", text=INVOKED), **asked))
    assert cause is not None
    assert "sagemaker-tensorflow-training" in cause.remedy
    with_config = Process(7, 1, ("python3", "train.py"), environment={"TF_CONFIG": "{}"})
    assert explain(facts(good(text=INVOKED, processes=(with_config,)), **asked)) is None


def test_the_ranks_of_one_host():
    hosts = (good(processes=(rank(0, 2), rank(1, 2)), success=False), good("algo-2", success=False))
    cause = explain(facts(*hosts, launcher="mpi", count=2, sdk=3))
    assert cause is not None
    assert cause.id == "sdk3-one-hosts-ranks"
    assert '"mpi_additional_options": ["-np", "4"]' in cause.remedy
    assert explain(facts(*(replace(one, success=True) for one in hosts), launcher="mpi", count=2)) is None


def test_code_in_the_image_is_a_failure_of_a_job_that_succeeds():
    text = "Provided path: /opt/ml/code is not empty, abandoning unzipping sourcedir.tar.gz"
    cause = explain(facts(good(text=text)))
    assert cause is not None
    assert cause.id == "code-in-image"
    assert explain(facts(good(text=text), baked=True)) is None


@pytest.mark.parametrize(
    ("seen", "id"),
    [
        ({"out_of_memory": True, "exit_code": 1}, "out-of-memory"),
        ({"exit_code": 137}, "killed"),
        ({"text": 'ExitCode 137\nExtraInfo "OutOfMemory: Process killed by SIGKILL (signal 9)"'}, "killed"),
        ({"text": "mpirun noticed that process rank 1 exited on signal 9 (Killed)."}, "killed"),
    ],
)
def test_a_process_that_was_killed(seen, id):
    # A data loader's worker is a fork with the environment of its rank, and ends without a word.
    fork = Process(99, 100, ("(fork)",), environment=rank(0, 2).environment)
    processes = (rank(0, 2, ended=True), fork, rank(1, 2))
    cause = explain(facts(host(**seen, processes=processes), launcher="mpi", count=2, memory="1g"))
    assert cause is not None
    assert (cause.id, cause.rank) == (id, 1)
    assert "memory" in cause.remedy


def test_hosts_that_were_taken_down_were_not_out_of_memory():
    assert explain(facts(good(), host("algo-2", exit_code=137, failure=None, end="taken down"))) is None


def test_a_host_without_a_server():
    others = ("/opt/venv/bin/python /opt/venv/bin/train", "[sshd] <defunct>")
    hanging = {"failure": None, "exit_code": 137, "end": "timeout"}
    hosts = (host(others=(*others[:1], "/usr/sbin/sshd -D"), **hanging), host("algo-2", others=others, **hanging))
    cause = explain(facts(*hosts, launcher="mpi", count=2, timed_out=True))
    assert cause is not None
    assert (cause.id, cause.host) == ("sshd-not-running", "algo-2")
    assert explain(facts(*hosts, launcher="torchrun", count=2, timed_out=True)) is None
    # What OpenSSH writes where it finds no key (sshd.c), whatever else runs there.
    said = host("algo-2", text="sshd: no hostkeys available -- exiting.", **hanging)
    cause = explain(facts(hosts[0], said, launcher="mpi", count=2, timed_out=True))
    assert cause is not None
    assert (cause.id, cause.host) == ("sshd-not-running", "algo-2")
    assert "it has no host keys" in cause.text


def test_other_ranks_waited_only_where_there_are_any():
    for size, waited in ((1, False), (2, True)):
        failed = rank(0, size, error="Traceback\nValueError: bad row\n", error_at=5.0)
        ranks = (failed, *(rank(number, size) for number in range(1, size)))
        cause = explain(facts(host(processes=ranks), launcher="mpi", count=size))
        assert cause is not None and cause.id == "script-raised"
        assert ("other ranks" in cause.remedy) is waited


def test_the_first_rank_that_raised():
    first = rank(2, 4, error="Traceback\n  File 'x'\nValueError: bad row\n", error_at=5.0)
    second = rank(0, 4, error="Traceback\nRuntimeError: peer is gone", error_at=6.0)
    hosts = (host(processes=(second, rank(1, 4))), host("algo-2", processes=(first, rank(3, 4))))
    cause = explain(facts(*hosts, launcher="mpi", count=2))
    assert cause is not None
    assert (cause.id, cause.host, cause.rank) == ("script-raised", "algo-2", 2)
    assert cause.text == "rank 2 raised ValueError: bad row"
    assert cause.last_lines[-1] == "ValueError: bad row"


def test_of_a_long_traceback_the_end_is_shown():
    long = "Traceback\n" + "".join(f"  line {number}\n" for number in range(40)) + "ValueError: bad row\n"
    cause = explain(facts(host(processes=(rank(0, 1, error=long, error_at=5.0),)), launcher="mpi"))
    assert cause is not None
    assert cause.last_lines == (*(f"  line {number}" for number in range(21, 40)), "ValueError: bad row")


def test_a_module_that_a_script_lacks():
    missing = "ModuleNotFoundError: No module named 'pandas'"
    script = Process(9, 1, ("python3", "--", "src/train.py"), error=missing, error_at=2.0)
    toolkit = Process(8, 1, ("python3", "train"), error="ExecuteUserScriptError", error_at=1.0)
    cause = explain(facts(host(processes=(toolkit, script))))
    assert cause is not None
    assert cause.id == "module-missing"
    assert "pandas" in cause.text


@pytest.mark.parametrize(("heard", "id"), [(0.0, "stop-not-heard"), (11.0, "stop-too-slow")])
def test_a_stop_that_ends_in_sigkill(heard, id):
    script = Process(9, 1, ("python3", "train.py"), signal=heard)
    stopped = facts(host(exit_code=137, failure=None, end="stopped", processes=(script,)), stopped=10.0)
    cause = explain(stopped)
    assert cause is not None
    assert cause.id == id
    assert "120 s" in cause.text
    assert explain(facts(good(processes=(script,)), stopped=10.0)) is None


def test_what_only_the_causes_of_diagnose_know():
    full = host("algo-2", "[1,3]<stderr>:OSError: [Errno 28] No space left on device", ended_at=9.0)
    told = facts(host("algo-1", "mpirun noticed that process rank 3 exited"), full, launcher="mpi", count=2)
    cause = explain(told)
    assert cause is not None
    assert (cause.id, cause.host, cause.rank) == ("disk-full", "algo-2", 3)
    # Of a hang the stacks say more, and a job that is well is well whatever stands in its log.
    assert explain(replace(told, timed_out=True)) is None
    assert explain(facts(good(text="retried: No space left on device"))) is None


def test_a_report_of_a_failure_is_no_cause():
    assert explain(facts(host(text="ExecuteUserScriptError"))) is None


def test_a_stop_that_had_nothing_to_stop():
    script = Process(9, 1, ("python3", "train.py"), ended=True)
    cause = explain(facts(good(processes=(script,)), stop_after=5.0))
    assert cause is not None
    assert cause.id == "stop-not-sent"
    assert "5 s" in cause.text
    # What failed by itself failed for another reason.
    assert explain(facts(host(text=MCA), stop_after=5.0)).id == "mca-key-repeated"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("instance_type", "count", "device"),
    [("ml.p4d.24xlarge", 9, 8), ("ml.g5.xlarge", 2, 1), ("ml.trn1.2xlarge", 3, 2), ("ml.p4d.24xlarge", 8, None),
     ("ml.m5.xlarge", 64, None)],
)  # fmt: skip
def test_more_processes_than_devices(instance_type, count, device):
    cause = before_start(RehearsedJob("image", "train.py", instance_type=instance_type), count)
    assert (cause.rank if cause else None) == device
    assert cause is None or cause.id == "too-many-processes"
