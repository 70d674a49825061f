"""nccl-tests: its programs start, are linked with the image's NCCL, CUDA and MPI, and find no wrong value on a GPU."""

import pytest

PROGRAMS = ["all_gather", "all_reduce", "alltoall", "broadcast", "gather", "hypercube", "reduce", "reduce_scatter"]
PROGRAMS += ["scatter", "sendrecv"]

# The driver is the host's; it is there when a job runs on a GPU.
OF_THE_HOST = "libcuda.so.1"


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_starts_and_says_how_it_is_used(host, name):
    done = host.run(f"{name}_perf --help")
    assert done.rc == 0, done.stderr
    assert f"USAGE: {name}_perf" in done.stdout
    assert "--minbytes" in done.stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_missing(host, name):
    lines = host.check_output(f"ldd /usr/local/bin/{name}_perf").splitlines()
    assert [line.strip() for line in lines if "not found" in line and OF_THE_HOST not in line] == []


def test_it_is_linked_with_the_libraries_of_the_image(host, probe):
    lines = host.check_output("ldd /usr/local/bin/all_reduce_perf").splitlines()
    found = {line.split()[0].split(".so")[0]: line.split("=>")[1].split()[0] for line in lines if "=>" in line}
    real = host.check_output("readlink -f %s", found["libnccl"])
    assert real in {file["real"] for file in probe["libraries"]["libnccl"]}
    assert {"libmpi", "libcudart"} <= found.keys()


def test_mpirun_starts_it(within):
    # Each process parses its arguments itself, before it looks for a GPU.
    done = within(60, "mpirun -np 2 --oversubscribe all_reduce_perf --help")
    assert done.stdout.count("USAGE: all_reduce_perf") == 2, done.stderr


@pytest.mark.usefixtures("requires_gpu")
@pytest.mark.parametrize("name", ["all_reduce", "broadcast", "reduce_scatter"])
def test_no_value_is_wrong(within, name):
    done = within(120, f"mpirun -np 1 {name}_perf -b 8 -e 8M -f 4 -g 1 -n 5")
    assert done.rc == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "# Out of bounds values : 0 OK" in done.stdout
