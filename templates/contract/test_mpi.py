"""MPI as the toolkit starts it: its own options, its hostname shim, mpi4py around the script."""

import pytest

pytestmark = pytest.mark.sagemaker
# sagemaker-training 5.1.4, mpi.py; a repeated MCA key is fatal to mpirun, so a default in the image must not clash.
OPTIONS = (
    "--host algo-1:2 -np 2 --allow-run-as-root --display-map --tag-output "
    "-mca btl_tcp_if_include lo -mca oob_tcp_if_include lo -mca plm_rsh_no_tree_spawn 1 -bind-to none -map-by slot "
    "-mca pml ob1 -mca btl ^openib -mca orte_abort_on_non_zero_status 1 -mca btl_vader_single_copy_mechanism none "
    "-x NCCL_MIN_NRINGS=4 -x NCCL_SOCKET_IFNAME=lo -x NCCL_DEBUG=INFO -x PATH"
)
# Each rank writes its line at once: what print() writes in two pieces mixes with the lines of the others.
RANKS = """
import os
import socket
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.Get_rank() + 1)
os.write(1, f"rank {world.Get_rank()} of {world.Get_size()} on {socket.gethostname()} total {total}\\n".encode())
"""


@pytest.fixture
def shim(python):
    return python("import gethostname; print(gethostname.__file__)")


def test_shim_returns_the_current_host(training_job, host, shim):
    # Without resourceconfig.json the shim ends every process with a segmentation fault; the platform always writes it.
    training_job.prepare({})
    script = "import socket; print(socket.gethostname())"
    assert host.check_output("LD_PRELOAD=%s python3 -c %s", shim, script) == "algo-1"


def test_two_ranks_with_the_options_of_the_toolkit(training_job, within, shim):
    training_job.prepare({"train.py": RANKS})
    command = f"cd /opt/ml/code && mpirun {OPTIONS} -x LD_PRELOAD={shim} python3 -m mpi4py train.py"
    done = within(120, command)
    assert done.rc == 0, (done.stdout + done.stderr)[-3000:]
    for rank in (0, 1):
        assert f"rank {rank} of 2 on algo-1 total 3" in done.stdout


def test_a_failing_rank_ends_the_job(training_job, within, shim):
    failing = RANKS + "import sys\nworld.Get_rank() == 1 and sys.exit(5)\nworld.barrier()\n"
    training_job.prepare({"train.py": failing})
    done = within(120, f"cd /opt/ml/code && mpirun {OPTIONS} -x LD_PRELOAD={shim} python3 -m mpi4py train.py")
    assert done.rc != 0
