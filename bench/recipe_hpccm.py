# The stack of `plan --framework pytorch --version 2.6.0 --cuda cu124` in HPC Container Maker's words (bench/cold.py).
# ruff: noqa: F821 - hpccm brings the names
Stage0 += baseimage(image="nvidia/cuda:12.4.1-devel-ubuntu22.04", _as="devel")
Stage0 += python(python2=False)
Stage0 += gnu()
Stage0 += packages(ospackages=["openssh-server", "libmetis-dev"])
Stage0 += ofed()
Stage0 += openmpi(version="4.1.4", cuda=True, infiniband=False, ofi=True)
Stage0 += nccl(cuda="12.4", version="2.21.5-1")
Stage0 += pip(
    pip="pip3",
    packages=["torch==2.6.0", "rmm-cu12==26.10.0", "mpi4py==4.1.2", "sagemaker-pytorch-training"],
)
Stage1 += baseimage(image="nvidia/cuda:12.4.1-runtime-ubuntu22.04")
Stage1 += Stage0.runtime(_from="devel")
