"""Open MPI 4: the launcher, its daemon, ranks."""

import re


def test_version_is_4(host):
    # The toolkit waits 20 minutes for a process named orted, which Open MPI 5 does not have.
    assert re.search(r"Open MPI\) 4\.", host.check_output("mpirun --version"))
    assert host.run("command -v orted").rc == 0


def test_one_installation(host):
    found = {host.check_output("readlink -f %s", path) for path in host.check_output("which -a mpirun").split()}
    assert len(found) == 1, f"two MPI installations: {sorted(found)}"


def test_ranks(within):
    done = within(
        60,
        "mpirun --allow-run-as-root --oversubscribe -np 3 --host localhost:3 "
        "sh -c 'echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE'",
    )
    assert done.rc == 0, done.stderr
    assert sorted(done.stdout.split("\n")[:-1]) == [f"rank {rank} of 3" for rank in range(3)]


def test_exit_status_is_passed_on(within):
    assert within(60, "mpirun --allow-run-as-root --oversubscribe -np 2 sh -c 'exit $OMPI_COMM_WORLD_RANK'").rc != 0


def test_runs_without_flags_for_root(within):
    # SDK 3's driver passes --allow-run-as-root itself; users' own scripts often forget it.
    assert within(60, "mpirun --oversubscribe -np 1 true").rc == 0


def test_mca_defaults_do_not_repeat_the_toolkit(host):
    # A key in the environment is overridden by the command line; the same key twice on the command line is fatal.
    assert not re.findall(r"^OMPI_MCA_btl_vader\w*=.*$", host.check_output("env"), re.MULTILINE)
