"""Image tests can fail: faults planted in thin images on top of the CPU image, and which tests see them.

Faults that would hide each other are in images of their own. Tests that fail beside the one that a fault is meant for
are named as well, so that the sets are exact.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import cuda_faults, image_tests
from tests.support.planted import failing, named, planted
from trainwright.prove.differences import differences

# What the image holds and how it is described; jobs still run.
CONTENTS = """\
RUN ssh-keygen -A && mkdir -p /root/.ssh && ssh-keygen -q -N '' -t ed25519 -f /root/.ssh/id_ed25519 \\
 && cat /root/.ssh/id_ed25519.pub >> /root/.ssh/authorized_keys && echo 'StrictHostKeyChecking yes' > /root/.ssh/config
RUN touch /root/.netrc && mkdir -p /root/.aws /mnt/left && echo '[default]' > /root/.aws/credentials
RUN mkdir -p /opt/ml/code && echo x > /opt/ml/code/x.py && chmod 755 /tmp && : > /licenses/components.txt
RUN cp /usr/bin/true /usr/local/bin/as-root && chmod 4755 /usr/local/bin/as-root && echo x > /var/log/build.log \\
 && cp /usr/bin/true /usr/local/bin/gcc
RUN cp /lib/x86_64-linux-gnu/libibverbs.so.1 /usr/local/lib/libcuda.so.1 \\
 && cp /lib/x86_64-linux-gnu/libmpi.so.40 /usr/local/lib/libmpi.so.40 && ldconfig
RUN rm /opt/metis/lib/libmetis.so* /opt/metis/bin/graphchk && find / -xdev -name metis.h -delete && ldconfig
RUN find /opt/venv/lib/python3*/site-packages/sagemaker_training -name '*.pyc' -delete
RUN cp /lib/x86_64-linux-gnu/libfabric.so.1 /opt/libfabric.so.1.99 \\
 && ln -sf /nowhere/environment /etc/environment
ENV FI_PROVIDER=efa API_TOKEN=x PROXY=http://me:secret@proxy PMIX_INSTALL_PREFIX=/usr OMPI_ALLOW_RUN_AS_ROOT=0
"""

# How jobs run: each of these ends some of them.
JOBS = """\
RUN chmod -x /opt/venv/bin/train /usr/sbin/sshd && rm /opt/venv/bin/pip3 /opt/venv/bin/torchrun \\
 && printf '#!/bin/sh\\nexit 1\\n' > /usr/local/bin/pip3 && chmod +x /usr/local/bin/pip3
RUN printf '#!/bin/sh\\necho no' > /opt/metis/bin/gpmetis \\
 && echo text > $(python3 -c 'import gethostname; print(gethostname.__file__)') \\
 && rm -rf /opt/venv/lib/python3*/site-packages/inotify_simple* /opt/venv/lib/python3*/site-packages/mpi4py \\
 && rm /opt/venv/lib/python3*/site-packages/torch/version.py
RUN sed -i 's/getfullargspec/getargspec/g' /opt/venv/lib/python3*/site-packages/sagemaker_training/functions.py \\
 && rm -r /opt/venv/lib/python3*/site-packages/scipy/sparse/linalg
RUN printf '#!/bin/sh\\nexec /usr/bin/mpirun --allow-run-as-root "$@"\\n' > /usr/local/bin/mpirun \\
 && chmod +x /usr/local/bin/mpirun
ENV OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_ALLOW_RUN_AS_ROOT=0
ENTRYPOINT train
"""

# Programs that lie about how they ended, and what sshd and the platform need.
LAUNCHERS = """\
RUN mv /usr/bin/orted /usr/bin/orted.gone && rm /usr/lib/openssh/root-key && rm -r /opt/ml \\
 && printf '#!/bin/sh\\n/usr/bin/mpirun "$@" >/dev/null 2>&1\\nexit 0\\n' > /usr/local/bin/mpirun \\
 && printf '#!/bin/sh\\n"$@"\\nexit 0\\n' > /usr/local/bin/training-init && chmod +x /usr/local/bin/mpirun
"""

# What the platform takes for granted about an image and its programs.
CONFIGURATION = """\
RUN ln -sf /usr/bin/python3 /opt/venv/bin/python3 && rm /opt/venv/bin/python \\
 && printf '#!/bin/sh\\nexec /usr/bin/python3 "$@"\\n' > /opt/venv/bin/python && chmod +x /opt/venv/bin/python \\
 && mv /bin/bash /usr/local/bin/bash && rm /bin/chmod
VOLUME /opt/ml/output
USER 1000
"""


JOBS_FAIL = (
    named(
        "contract",
        "a_failing_job_says_so",
        "a_failing_rank_ends_the_job",
        "a_job_cannot_replace_the_image_s_packages",
        "a_job_succeeds",
        "a_package_can_be_installed_at_start",
        "dependencies_fit_each_other",
        "entrypoint_becomes_the_command",
        "entrypoint_hands_the_command_on",
        "environment_is_the_plan_s",
        "pip3_installs_for_that_interpreter",
        "python3_has_what_a_job_imports",
        "python3_imports_the_framework",
        "shim_returns_the_current_host",
        "torchrun_is_launched",
        "train_is_on_path_and_executable",
        "train_uses_that_interpreter",
        "two_ranks_with_the_options_of_the_toolkit",
    )
    | named("metis", "loader_finds_it", "program_partitions_a_graph")
    | named(
        "ssh",
        "configuration_is_valid",
        "environment_reaches_the_ranks",
        "every_job_gets_host_keys_of_its_own",
        "only_the_hosts_of_the_job_are_let_in",
        "server_starts_without_host_keys_and_lets_root_in",
    )
    | named("openmpi", "mca_defaults_do_not_repeat_the_toolkit", "one_installation", "program_is_not_wrapped")
    | named(
        "sagemaker-toolkit",
        "a_stop_reaches_the_script",
        "arguments_of_a_function_are_matched",
        "bytecode_is_in_the_image",
        "entry_module_is_importable",
        "files_of_a_job_can_be_watched",
        "hostname_shim_is_a_library",
        "launcher_of_the_framework_is_on_path",
        "server_is_where_the_toolkit_calls_it",
        "what_the_toolkit_brings_works_without_its_tests",
    )
    | named("mpi4py", "all_reduce_of_arrays", "library_is_the_image_s")
)
CONTENTS_FAIL = (
    named(
        "contract",
        "code_is_baked_only_where_the_plan_says_so",
        "environment_is_the_plan_s",
        "licences_of_components_are_in_the_image",
        "no_credentials_in_the_configuration",
        "no_driver_libraries",
        "no_files_that_look_like_credentials",
        "no_host_keys",
        "no_library_twice_on_the_loader_path",
        "no_secret_variables",
        "no_secrets_left_behind",
        "no_settings_of_a_site",
        "programs_with_other_rights_are_the_distribution_s",
        "provider_of_libfabric_is_left_to_the_platform",
        "temporary_folder_can_be_written",
    )
    | named(
        "metis",
        "header_is_that_of_the_library",
        "library_partitions_a_graph",
        "loader_finds_it",
        "program_partitions_a_graph",
        "programs_are_on_path",
    )
    | named(
        "ssh",
        "environment_reaches_the_ranks",
        "hosts_of_a_job_are_not_asked_about",
        "no_host_keys_in_the_image",
        "no_key_of_root_in_the_image",
        "nobody_is_trusted_by_his_key_alone",
        "only_the_hosts_of_the_job_are_let_in",
    )
    | named(
        "openmpi",
        "one_libfabric",
        "one_library",
        "ranks_find_the_installation_where_it_was_compiled_for",
        "runs_without_flags_for_root",
    )
    | named("sagemaker-toolkit", "bytecode_is_in_the_image", "environment_file_can_be_written")
)
LAUNCHERS_FAIL = (
    named(
        "contract",
        "a_failing_rank_ends_the_job",
        "entrypoint_becomes_the_command",
        "two_ranks_with_the_options_of_the_toolkit",
    )
    | named(
        "ssh",
        "each_start_makes_a_key_of_its_own",
        "environment_reaches_the_ranks",
        "only_the_hosts_of_the_job_are_let_in",
        "server_starts_without_host_keys_and_lets_root_in",
    )
    | named(
        "openmpi",
        "exit_status_is_passed_on",
        "one_installation",
        "ranks",
        "ranks_find_the_installation_where_it_was_compiled_for",
        "version_is_4",
    )
    | named(
        "sagemaker-toolkit",
        "a_stop_reaches_the_script",
        "exit_code_of_train_is_the_container_s",
        "launchers_are_on_path",
        "the_folder_of_the_platform_is_there",
    )
    | named("mpi4py", "all_reduce_of_arrays", "library_is_the_image_s")
)
# A base of another architecture would not start here.
NOT_SHOWN = named("contract", "architecture")
CONFIGURATION_FAIL = (
    named(
        "contract",
        "a_failing_job_says_so",
        "a_failing_rank_ends_the_job",
        "a_job_cannot_replace_the_image_s_packages",
        "a_job_succeeds",
        "a_package_can_be_installed_at_start",
        "bash_is_where_sdk_3_calls_it",
        "no_volumes",
        "on_path",
        "pip3_installs_for_that_interpreter",
        "python_and_python3_are_one",
        "shim_returns_the_current_host",
        "torchrun_is_launched",
        "train_uses_that_interpreter",
        "two_ranks_with_the_options_of_the_toolkit",
        "user_is_root",
    )
    | named("metis", "loader_finds_it")
    | named(
        "ssh",
        "configuration_is_valid",
        "each_start_makes_a_key_of_its_own",
        "environment_reaches_the_ranks",
        "every_job_gets_host_keys_of_its_own",
        "hosts_of_a_job_are_not_asked_about",
        "only_the_hosts_of_the_job_are_let_in",
        "server_starts_without_host_keys_and_lets_root_in",
    )
    | named(
        "sagemaker-toolkit",
        "a_stop_reaches_the_script",
        "bytecode_is_in_the_image",
        "entry_module_is_importable",
        "environment_file_can_be_written",
        "exit_code_of_train_is_the_container_s",
    )
)
IMAGES = {
    "contents": (CONTENTS, CONTENTS_FAIL),
    "jobs": (JOBS, JOBS_FAIL),
    "launchers": (LAUNCHERS, LAUNCHERS_FAIL),
    "configuration": (CONFIGURATION, CONFIGURATION_FAIL),
}
# Tests of an image's components are held to exact sets here; of others, what a fault does to them is their own matter.
COVERED = ("contract", "metis", "ssh", "openmpi", "sagemaker-toolkit", "mpi4py")


@pytest.fixture(scope="module")
def plan(proven: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads((Path(proven["build"]["record"]).parent / "plan.json").read_text()))


@pytest.mark.parametrize("faults", IMAGES)
def test_planted_faults_are_found(faults: str, cpu_image: str, plan: dict[str, Any], tmp_path: Path) -> None:
    lines, expected = IMAGES[faults]
    with planted(cpu_image, lines, f"trainwright-test/planted:{faults}", tmp_path) as image:
        found, failed = failing(image, plan, tmp_path, COVERED)
    if faults == "contents":
        facts = {difference.fact for difference in differences(plan, found)}
        files = {"libmpi", "/usr/local/lib/libcuda.so.1", "gcc", "logs", "ssh host keys", "ssh keys of root"}
        assert {"FI_PROVIDER", *files} <= facts
    assert failed == expected


def test_every_image_test_has_a_fault_or_is_named() -> None:
    """Faults for components that only CUDA images have are in ``tests/support/cuda_faults.py``."""
    tests = names(COVERED[1:]) | names(cuda_faults.COVERED)
    shown = CONTENTS_FAIL | JOBS_FAIL | LAUNCHERS_FAIL | CONFIGURATION_FAIL
    shown |= cuda_faults.WHEELS_FAIL | cuda_faults.TWIN_FAIL | cuda_faults.STUB_FAIL
    assert shown - tests == set()
    assert tests - shown == NOT_SHOWN | cuda_faults.NOT_SHOWN


def names(components: tuple[str, ...]) -> set[str]:
    return {f"{component}::{name}" for component, name in image_tests.expected(components)}
