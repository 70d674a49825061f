# pytorch 2.1.0, CUDA 12.1, Python 3.10, on ubuntu-20.04: a SageMaker training image.
# Made by Trainwright from plan 85524f25890f; `./invoke render` makes it again.
# Build it in its context: DOCKER_BUILDKIT=1 docker build .
#
# Secrets, all optional: ca (a CA bundle), uv, pip and netrc (an index and its credentials), apt-sources (a mirror),
# artifacts (the base URL of a mirror of archives).
# What a step needs only while it runs lies under /mnt, and what it writes there is thrown away (rw): none of it is in a layer.
#
# Stages, those in one row in parallel:
#
#     base <- ${BASE_IMAGE}   devel <- ${BUILD_IMAGE}
#     os <- base   python <- devel
#     interpreter <- os + python   toolchain <- devel + python
#     tools <- interpreter   efa-archive <- toolchain   gdrcopy <- toolchain   smdistributed-dataparallel <- toolchain
#     wheels <- toolchain + tools   efa <- toolchain + efa-archive
#     aws-ofi-nccl <- efa
#     final <- interpreter + tools + efa-archive + gdrcopy + aws-ofi-nccl + wheels + smdistributed-dataparallel

# Build arguments, so that a mirror can stand in for the registry: docker build --build-arg BASE_IMAGE=...
ARG BASE_IMAGE=nvidia/cuda:12.1.0-base-ubuntu20.04
ARG BUILD_IMAGE=nvidia/cuda:12.1.0-devel-ubuntu20.04
FROM ${BASE_IMAGE} AS base

# The distribution's packages of the image itself.
FROM base AS os
ENV LANG=C.UTF-8
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=apt,target=/mnt/apt --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=cache,id=trainwright-apt,target=/mnt/cache,sharing=locked \
    /mnt/apt-install ca-certificates hwloc-nox libnuma1 libpython3-stdlib openssh-client openssh-server

# Where build stages start; what is compiled here may need the distribution's packages of the image as well.
FROM ${BUILD_IMAGE} AS devel

# Python 3.10.12 from python.org. The programs know where their library is; pip is left to the image line.
FROM devel AS python
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=apt,target=/mnt/apt --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=cache,id=trainwright-apt,target=/mnt/cache,sharing=locked \
    /mnt/apt-install ca-certificates curl gcc libbz2-dev libc6-dev libffi-dev liblzma-dev libncursesw5-dev libreadline-dev libsqlite3-dev \
        libssl-dev make pkg-config uuid-dev zlib1g-dev
COPY tools/build/ /usr/local/bin/
WORKDIR /src
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/python,target=/mnt \
    fetch Python-3.10.12.tgz a43cd383f3999a6f4a7db2062b2fc9594fefa73e175b3aedafa295a51a7bb65c \
        'https://www.python.org/ftp/python/3.10.12/Python-3.10.12.tgz'
RUN unpack Python-3.10.12.tgz && cd Python \
    && LDFLAGS=-Wl,-rpath,/opt/python/lib ./configure --quiet --prefix=/opt/python --enable-shared --without-ensurepip \
    && make -j"$(nproc)" && make install \
    && cd /opt/python \
    && rm -rf share lib/*.a lib/python3.10/config-*/*.a lib/python3.10/idlelib \
        lib/python3.10/lib2to3/tests lib/python3.10/test lib/python3.10/*/test \
    && find . -name '*.opt-[12].pyc' -delete \
    && strip --strip-unneeded bin/python3.10 lib/*.so.* lib/python3.10/lib-dynload/*.so \
    && bin/python3 -c 'import bz2, ctypes, curses, lzma, readline, sqlite3, ssl, uuid, venv, zlib'

FROM os AS interpreter
COPY --from=python /opt/python /opt/python

# uv installs the locked wheels; it stays out of the image.
FROM interpreter AS tools

RUN --mount=type=bind,source=tools/python,target=/mnt,rw --mount=type=cache,id=trainwright-pip,target=/root/.cache/pip --mount=type=secret,id=ca \
    --mount=type=secret,id=pip --mount=type=secret,id=netrc --mount=type=bind,source=requirements/tools.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/tools,target=/mnt/wheels \
    /opt/python/bin/python3.10 -m venv /opt/tools \
    && /mnt/pip install --quiet --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt
COPY tools/python/ /opt/tools/

# Compilers and headers, for the stages below only.
FROM devel AS toolchain
ENV SOURCE_DATE_EPOCH=1700000000
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=apt,target=/mnt/apt --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=cache,id=trainwright-apt,target=/mnt/cache,sharing=locked \
    /mnt/apt-install autoconf automake ca-certificates curl g++ gcc hwloc-nox libc6-dev libhwloc-dev libnuma1 libpython3-stdlib libtool make \
        openssh-client openssh-server
COPY --from=python /opt/python /opt/python
# fetch FILE SHA256 URL...: an archive from the site's folder or mirror, else from the first URL that has these bytes.
# Nobody publishes a checksum of a file that has - in place of one: `./invoke lock` records that of the first download.
# unpack ARCHIVE: into a folder named like it up to its version. compile-jobs GB: as many jobs as there is memory for.
COPY tools/build/ /usr/local/bin/
WORKDIR /src

# Python packages that come as source.
FROM toolchain AS wheels
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools --mount=type=cache,id=trainwright-pip,target=/root/.cache/pip \
    --mount=type=secret,id=ca --mount=type=secret,id=pip --mount=type=secret,id=netrc \
    --mount=type=bind,source=requirements/sagemaker-toolkit.source.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/sagemaker-toolkit,target=/mnt/wheels \
    CFLAGS=-g0 /opt/tools/pip wheel --quiet --no-deps --no-build-isolation --require-hashes \
        --find-links /mnt/wheels -r /mnt/requirements.txt -w /wheels/sagemaker-toolkit

# efa 1.27.0 (aws)
FROM toolchain AS efa-archive
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/efa,target=/mnt \
    fetch aws-efa-installer-1.27.0.tar.gz 1d49a97b0bf8d964d91652a79ac851f2550e33a5bf9d0cf86ec9357ff6579aa3 \
        'https://efa-installer.amazonaws.com/aws-efa-installer-1.27.0.tar.gz' \
        'https://s3-us-west-2.amazonaws.com/aws-efa-installer/aws-efa-installer-1.27.0.tar.gz'
RUN unpack aws-efa-installer-1.27.0.tar.gz
COPY components/efa/install.sh aws-efa-installer/
# Headers, for what is compiled against libfabric.
FROM toolchain AS efa
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=apt,target=/mnt/apt --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=cache,id=trainwright-apt,target=/mnt/cache,sharing=locked \
    --mount=type=bind,from=efa-archive,source=/src/aws-efa-installer,target=/mnt/efa,rw \
    /mnt/apt-run sh /mnt/efa/install.sh 'openmpi' -y --skip-kmod --skip-limit-conf --no-verify

# gdrcopy 2.3.1 (source)
FROM toolchain AS gdrcopy
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/gdrcopy,target=/mnt \
    fetch gdrcopy-2.3.1.tar.gz - 'https://github.com/NVIDIA/gdrcopy/archive/v2.3.1.tar.gz'
# The library alone: the driver is the host's, and the tests need one. Releases differ in the case of "prefix", and in
# whether they make the folders and links.
RUN unpack gdrcopy-2.3.1.tar.gz && cd gdrcopy \
    && mkdir -p /opt/gdrcopy/lib /opt/gdrcopy/include \
    && make CUDA=/usr/local/cuda prefix=/opt/gdrcopy PREFIX=/opt/gdrcopy lib \
    && make CUDA=/usr/local/cuda prefix=/opt/gdrcopy PREFIX=/opt/gdrcopy lib_install \
    && cd /opt/gdrcopy/lib && ldconfig -n . \
    && if [ ! -e libgdrapi.so ]; then ln -s libgdrapi.so.*.* libgdrapi.so; fi \
    && find . -type f -exec strip --strip-unneeded {} +

# aws-ofi-nccl 1.7.4 (source)
FROM efa AS aws-ofi-nccl
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/aws-ofi-nccl,target=/mnt \
    fetch aws-ofi-nccl-1.7.4.tar.gz 472bbc977ce37d0cf9239b8e366f4f247226a984eb8c487aadd884af53f00e13 \
        'https://github.com/aws/aws-ofi-nccl/archive/v1.7.4-aws.tar.gz'
# What git holds has no configure yet, an archive of a release may. The programs under bin test the plugin with MPI.
RUN unpack aws-ofi-nccl-1.7.4.tar.gz && cd aws-ofi-nccl \
    && if [ ! -x configure ]; then sh ./autogen.sh; fi \
    && ./configure --prefix=/opt/amazon/ofi-nccl --with-libfabric=/opt/amazon/efa --with-mpi=/opt/amazon/openmpi \
        --with-cuda=/usr/local/cuda --disable-static --enable-platform-aws --disable-tests \
    && make -j"$(compile-jobs 1.0)" install \
    && rm -rf /opt/amazon/ofi-nccl/bin && find /opt/amazon/ofi-nccl -name '*.la' -delete

# smdistributed-dataparallel 2.1.0 (aws)
FROM toolchain AS smdistributed-dataparallel
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/smdistributed-dataparallel,target=/mnt \
    fetch smdistributed_dataparallel-2.1.0-cp310-cp310-linux_x86_64.whl - \
        'https://smdataparallel.s3.amazonaws.com/binary/pytorch/2.1.0/cu121/2024-02-04/smdistributed_dataparallel-2.1.0-cp310-cp310-linux_x86_64.whl'

# The image. What changes least comes first.
FROM interpreter AS final
ENV PATH=/opt/venv/bin:/opt/amazon/efa/bin:/opt/amazon/openmpi/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    VIRTUAL_ENV=/opt/venv PYTHONUNBUFFERED=1 RDMAV_FORK_SAFE=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 CUDA_HOME=/usr/local/cuda \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES="compute,utility" LD_LIBRARY_PATH="" \
    SAGEMAKER_TRAINING_MODULE=sagemaker_pytorch_container.training:main USE_SMDEBUG=0

# python 3.10.12 (source)
RUN echo /opt/python/lib > /etc/ld.so.conf.d/python.conf
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw /mnt/uv venv --python /opt/python/bin/python3.10 /opt/venv
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/python.txt,target=/mnt/requirements.txt --mount=type=bind,source=wheels/python,target=/mnt/wheels \
    --mount=type=secret,id=ca,target=/mnt/ca --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt

# ssh 8.2 (ubuntu)
# sshd without host keys hangs a job in silence, and keys in a layer would be everybody's: the wrapper makes them when
# the server starts. It serves both contracts, as it needs no ENTRYPOINT.
# No key pair of root either: each host makes one when it starts, and sshd lets in the addresses of the job's hosts.
RUN --mount=type=bind,source=components/ssh,target=/mnt,rw sh /mnt/install.sh sagemaker.conf

# efa 1.27.0 (aws)
# The installer brings packages of its own and has apt fetch what these need. What the plan does not name of it goes again
# in the same layer.
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=apt,target=/mnt/apt --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=cache,id=trainwright-apt,target=/mnt/cache,sharing=locked \
    --mount=type=bind,from=efa-archive,source=/src/aws-efa-installer,target=/mnt/efa,rw \
    /mnt/apt-run sh /mnt/efa/install.sh 'openmpi' -y --skip-kmod --skip-limit-conf --no-verify

# openmpi 4.1.5 (efa)
# Where ranks go is up to the job; the loader finds the libraries in whichever of the two folders they are.
RUN --mount=type=bind,source=components/openmpi,target=/mnt sh /mnt/mca_params.sh /opt/amazon/openmpi \
    && find /opt/amazon/openmpi -maxdepth 1 \( -name lib -o -name lib64 \) > /etc/ld.so.conf.d/openmpi.conf

# gdrcopy 2.3.1 (source)
COPY --from=gdrcopy /opt/gdrcopy /opt/gdrcopy
RUN echo /opt/gdrcopy/lib > /etc/ld.so.conf.d/gdrcopy.conf

# cuda 12.1 (nvidia)
# The base image holds CUDA, and a driver for hosts with an older one, which must not shadow a newer driver of the host.
# When a container starts, cuda-compat decides: as ENTRYPOINT or called by it, or where that is another, in the first
# bash (BASH_ENV).
COPY --chmod=755 components/cuda/cuda-compat /usr/local/bin/cuda-compat
COPY components/cuda/cuda-compat.bash /usr/local/lib/cuda-compat.bash
RUN --mount=type=bind,source=components/cuda,target=/mnt sh /mnt/adopt_base.sh

# nccl 2.18.1 (wheel)
# One NCCL in the image: that of the base goes.
RUN --mount=type=bind,source=components/nccl,target=/mnt sh /mnt/remove_base.sh
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/nccl.txt,target=/mnt/requirements.txt --mount=type=bind,source=wheels/nccl,target=/mnt/wheels \
    --mount=type=secret,id=ca,target=/mnt/ca --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt

# aws-ofi-nccl 1.7.4 (source)
COPY --from=aws-ofi-nccl /opt/amazon/ofi-nccl /opt/amazon/ofi-nccl
# NCCL looks for libnccl-net.so, which newer plugins name after their network.
RUN cd /opt/amazon/ofi-nccl/lib \
    && if [ ! -e libnccl-net.so ]; then ln -s libnccl-net-ofi.so libnccl-net.so; fi \
    && echo "$PWD" > /etc/ld.so.conf.d/aws-ofi-nccl.conf

# pytorch 2.1.0 (wheel)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/pytorch.txt,target=/mnt/requirements.txt --mount=type=bind,source=wheels/pytorch,target=/mnt/wheels \
    --mount=type=secret,id=ca,target=/mnt/ca --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt

# torchvision 0.16.0 (wheel)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/torchvision.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/torchvision,target=/mnt/wheels --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt

# torchaudio 2.1.0 (wheel)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/torchaudio.txt,target=/mnt/requirements.txt --mount=type=bind,source=wheels/torchaudio,target=/mnt/wheels \
    --mount=type=secret,id=ca,target=/mnt/ca --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt

# mpi4py 4.1.2 (wheel)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/mpi4py.txt,target=/mnt/requirements.txt --mount=type=bind,source=wheels/mpi4py,target=/mnt/wheels \
    --mount=type=secret,id=ca,target=/mnt/ca --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt

# sagemaker-toolkit 4.8.3 (wheel)
# What the toolkit needs changes seldom, the toolkit itself often: two layers.
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/sagemaker-toolkit.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/sagemaker-toolkit,target=/mnt/wheels --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=bind,from=wheels,source=/wheels/sagemaker-toolkit,target=/mnt/wheels \
    /mnt/uv pip install --no-deps --no-index --no-cache /mnt/wheels/*.whl
# SIGTERM, by which SageMaker stops a job, reaches the script: `train` as the first process would not hear it; cuda-compat decides before.
COPY --chmod=755 components/sagemaker-toolkit/training-init /usr/local/bin/training-init
ENTRYPOINT ["/usr/local/bin/training-init"]

# smdistributed-dataparallel 2.1.0 (aws)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=bind,from=smdistributed-dataparallel,source=/src,target=/mnt/wheels \
    SMDATAPARALLEL_PT=1 /mnt/uv pip install --no-deps --no-index --no-cache /mnt/wheels/*.whl
RUN python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"] + "/smdistributed/dataparallel/lib")' \
        > /etc/ld.so.conf.d/smdistributed-dataparallel.conf

# The loader learns of every library directory added above.
RUN ldconfig && rm -f /var/cache/ldconfig/aux-cache
ENV BASH_ENV=/usr/local/lib/cuda-compat.bash

WORKDIR /
ARG SOURCE_REVISION=unknown
LABEL org.opencontainers.image.title=pytorch-training org.opencontainers.image.version=2.1.0 \
    io.trainwright.plan=85524f25890f64a53e67ac54276f759c867280a64831ee95e6a060c5e1092c68 io.trainwright.framework=pytorch \
    io.trainwright.framework-version=2.1.0 io.trainwright.cuda=12.1 io.trainwright.python=3.10 io.trainwright.base=ubuntu-20.04 \
    io.trainwright.component.python="3.10.12 (source)" io.trainwright.component.ssh="8.2 (ubuntu)" io.trainwright.component.efa="1.27.0 (aws)" \
    io.trainwright.component.openmpi="4.1.5 (efa)" io.trainwright.component.gdrcopy="2.3.1 (source)" io.trainwright.component.cuda="12.1 (nvidia)" \
    io.trainwright.component.nccl="2.18.1 (wheel)" io.trainwright.component.aws-ofi-nccl="1.7.4 (source)" \
    io.trainwright.component.pytorch="2.1.0 (wheel)" io.trainwright.component.torchvision="0.16.0 (wheel)" \
    io.trainwright.component.torchaudio="2.1.0 (wheel)" io.trainwright.component.mpi4py="4.1.2 (wheel)" \
    io.trainwright.component.sagemaker-toolkit="4.8.3 (wheel)" io.trainwright.component.smdistributed-dataparallel="2.1.0 (aws)" \
    org.opencontainers.image.revision="${SOURCE_REVISION}"
