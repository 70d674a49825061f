"""MPI for Python finds the image's Open MPI, and arrays go through it."""

# Each rank writes its line at once: what print() writes in two pieces mixes with the lines of the others.
SCRIPT = """
import os
import numpy
from mpi4py import MPI
world = MPI.COMM_WORLD
mine = numpy.full(1000, world.Get_rank() + 1, dtype="d")
total = numpy.empty_like(mine)
world.Allreduce(mine, total)
os.write(1, f"rank {world.Get_rank()} of {world.Get_size()} total {total.sum():g}\\n".encode())
"""


def test_library_is_the_image_s(python):
    # The wheel installs without any MPI and fails only here.
    assert python("from mpi4py import MPI; print(MPI.Get_library_version())").startswith("Open MPI v4.")


def test_all_reduce_of_arrays(host, within):
    host.check_output("printf %%s %s > /tmp/smoke_mpi4py.py", SCRIPT)
    launch = "mpirun --allow-run-as-root --oversubscribe -np 2 python3 -m mpi4py /tmp/smoke_mpi4py.py"
    done = within(90, f"{launch}; c=$?; rm -f /tmp/smoke_mpi4py.py; exit $c")
    assert done.rc == 0, (done.stdout + done.stderr)[-2000:]
    assert sorted(done.stdout.splitlines()) == ["rank 0 of 2 total 3000", "rank 1 of 2 total 3000"]
