"""Faults for images with CUDA, and the tests of NCCL, its plugin, EFA, RMM and Open MPI that see them.

One set is for an image whose CUDA comes from wheels, the others for the twin, where it is compiled or installed.
"""

from __future__ import annotations

from tests.support.planted import named

# /planted/replace.py FILE OLD NEW: see tests.support.planted.
_REPLACE = "RUN --mount=type=bind,target=/planted python3 /planted/replace.py"

# The first fault makes machine code of NCCL something else (the kind of each part of a fat binary is 9, not 2).
# ncclGetVersion writes 22907 (2.29.7) to where its argument points (c7 07: mov dword [rdi]); here it says 22906. A
# library without symbol versions takes libfabric's place, so programs start and then fail on missing functions.
WHEELS = rf"""
ENV RDMAV_FORK_SAFE=0 LD_LIBRARY_PATH=/opt/other
WORKDIR /opt/venv/lib/python3.13/site-packages
RUN mkdir -p /opt/other/lib && ln -s /opt/metis/lib/libmetis.so /opt/other/libfabric.so.1 \
 && rm /etc/ld.so.conf.d/nccl.conf \
 && sed -i 's/import ProcessGroupNCCL$/import ProcessGroupOfOld/' torch/distributed/distributed_c10d.py \
 && rm -f torch/distributed/__pycache__/distributed_c10d.* \
 && rm -r rmm/pylibrmm librmm/include/rmm/device_buffer.hpp
{_REPLACE} nvidia/nccl/lib/libnccl.so.2 '\x02\0\x01\x01\x40\0\0\0' '\x09\0\x01\x01\x40\0\0\0'
{_REPLACE} nvidia/nccl/lib/libnccl.so.2 '\xc7\x07\x7b\x59\0\0' '\xc7\x07\x7a\x59\0\0'
{_REPLACE} /opt/amazon/ofi-nccl/lib/libnccl-net.so ncclNetPlugin_v ncclOldPlugin_v
{_REPLACE} /opt/amazon/ofi-nccl/lib/libnccl-net.so ncclTunerPlugin_v ncclOlderPlugin_v
{_REPLACE} /opt/amazon/ofi-nccl/lib/libnccl-net.so libhwloc.so.15 libhwloc.so.14
RUN cp nvidia/nccl/lib/libnccl.so.2 /opt/other/lib && mkdir /opt/amazon/ofi-nccl/bin \
 && cp /opt/amazon/ofi-nccl/lib/libnccl-net.so /usr/local/lib/libnccl-net-old.so \
 && rm /usr/lib/x86_64-linux-gnu/libefa.so.1* /usr/lib/x86_64-linux-gnu/libibverbs/libefa-rdmav*.so \
 && rm /usr/local/cuda/lib64/libcudart.so && ldconfig \
 && mkdir -p /opt/openmpi/share/man/man1 && touch /opt/openmpi/share/man/man1/mpirun.1 \
 && echo 'rmaps_base_mapping_policy = node' >> /opt/openmpi/etc/openmpi-mca-params.conf
WORKDIR /
"""
WHEELS_FAIL = (
    named("nccl", "one_copy", "it_is_found_by_name", "torch_and_library_agree", "backend_is_compiled_in")
    | named("nccl", "machine_code_is_for_the_chosen_gpus")
    | named("rmm", "imports", "headers_come_with_a_compiler")
    | named(
        "aws-ofi-nccl",
        "loader_finds_one",
        "nothing_is_missing",
        "libfabric_is_the_one_with_efa",
        "nccl_s_interface_is_in_it",
        "nccl_asks_for_an_interface_that_it_has",
        "nccl_s_tuner_is_in_it",
        "no_cuda_runtime_is_linked",
        "no_test_programs_are_left",
        "runtime_has_the_name_that_it_asks_for",
        "it_loads",
    )
    | named(
        "efa",
        "efa_provider_is_built_in",
        "efa_is_among_the_providers",
        "verbs_know_efa",
        "tcp_provider_answers",
        "gpu_memory_is_known",
        "fork_is_safe",
    )
    | named("openmpi", "no_manual_pages", "parameters_are_in_the_file_once")
)

# Tests for one provider are skipped in images with another; the twin has the providers that the wheels do not cover.
TWIN = rf"""
ENV RDMAV_FORK_SAFE=0
RUN mkdir -p /opt/other/lib /opt/amazon/openmpi5 && touch /opt/efa_installer.sh \
 && cp /opt/nccl/lib/libnccl.so.2 /opt/other/lib/ && rm /etc/ld.so.conf.d/nccl.conf \
 && cp -L /opt/amazon/efa/lib/libfabric.so.1 /opt/other/ && echo /opt/other > /etc/ld.so.conf.d/000.conf \
 && rm -r /opt/rmm/include/rmm && ldconfig
{_REPLACE} /opt/rmm/lib/librmm.so libcuda.so.1 libcudb.so.1
"""
TWIN_FAIL = (
    named("nccl", "one_copy", "it_is_found_by_name")
    | named("rmm", "library_lacks_nothing_but_the_driver", "headers_of_the_library_are_there")
    | named("efa", "fork_is_safe", "installer_s_libfabric_comes_first", "installer_itself_is_not_in_the_image")
    | named("efa", "installer_left_nothing_that_the_plan_does_not_name")
    | named("openmpi", "one_libfabric")
)
# The linker's stub of the driver, left where the loader finds it.
STUB = """
ENV LD_LIBRARY_PATH=/opt/stubs
RUN mkdir /opt/stubs && ln -s /opt/metis/lib/libmetis.so /opt/stubs/libcuda.so.1
"""
STUB_FAIL = named("rmm", "library_is_not_linked_with_a_stub")
COVERED = ("nccl", "rmm", "aws-ofi-nccl", "efa", "openmpi")
# They need a GPU.
NOT_SHOWN = named("nccl", "all_reduce_and_broadcast", "a_large_broadcast_goes_over_the_network") | named("rmm", "pool")
