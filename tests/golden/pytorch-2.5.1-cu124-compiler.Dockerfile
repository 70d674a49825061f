# pytorch 2.5.1, CUDA 12.4, Python 3.11, on ubuntu-22.04: a SageMaker training image.
# Made by Trainwright from plan 3e9770e811b6; `./invoke render` makes it again. Build it here with
#
#     DOCKER_BUILDKIT=1 docker build .
#
# Secrets, all optional: ca (a CA bundle), uv, pip and netrc (an index and its credentials), apt-sources (a mirror),
# artifacts (the base URL of a mirror of archives).
#
# Stages, those in one row in parallel:
#
#     base <- ${BASE_IMAGE}   devel <- ${BUILD_IMAGE}
#     os <- base   python <- devel
#     interpreter <- os + python   toolchain <- devel + python
#     tools <- interpreter   efa-archive <- toolchain   gdrcopy <- toolchain   nccl <- toolchain   pytorch <- toolchain   torchvision <- toolchain   torchaudio <- toolchain   smdistributed-dataparallel <- toolchain
#     wheels <- toolchain + tools   efa <- toolchain + efa-archive
#     aws-ofi-nccl <- efa + nccl
#     final <- interpreter + tools + efa-archive + gdrcopy + nccl + aws-ofi-nccl + pytorch + torchvision + torchaudio + wheels + smdistributed-dataparallel

# Build arguments, so that a mirror can stand in for the registry: docker build --build-arg BASE_IMAGE=...
ARG BASE_IMAGE=nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04
ARG BUILD_IMAGE=nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04
FROM ${BASE_IMAGE} AS base

# The distribution's packages of the image itself.
FROM base AS os
ENV LANG=C.UTF-8
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=bind,source=apt,target=/mnt/apt \
    --mount=type=cache,id=trainwright-apt-archives,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=trainwright-apt-lists,target=/var/lib/apt/lists,sharing=locked \
    rm -f /etc/apt/sources.list.d/cuda*.list /etc/apt/sources.list.d/nvidia-ml*.list \
    && if [ -e /mnt/apt-sources ]; then \
        set -- -o Dir::Etc::SourceList=/mnt/apt-sources -o Dir::Etc::SourceParts=/dev/null; fi \
    && if [ -e /mnt/apt/preferences ]; then set -- "$@" -o Dir::Etc::Preferences=/mnt/apt/preferences; fi \
    && apt-get "$@" update \
    && DEBIAN_FRONTEND=noninteractive apt-get "$@" install -y --no-install-recommends \
        ca-certificates \
        g++ \
        hwloc-nox \
        libc6-dev \
        libnuma1 \
        libpython3-stdlib \
        openssh-client \
        openssh-server \
        python3-dev \
    && rm -rf /etc/ssh/ssh_host_* /var/log/*.log /var/log/apt /var/cache/ldconfig/aux-cache \
        /var/cache/debconf/*-old /var/lib/dpkg/*-old

# Where build stages start; what is compiled here may need the distribution's packages of the image as well.
FROM ${BUILD_IMAGE} AS devel

# Python 3.11.10 from python.org. The programs know where their library is; pip is left to the image line.
FROM devel AS python
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=bind,source=apt,target=/mnt/apt \
    --mount=type=cache,id=trainwright-apt-archives,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=trainwright-apt-lists,target=/var/lib/apt/lists,sharing=locked \
    rm -f /etc/apt/sources.list.d/cuda*.list /etc/apt/sources.list.d/nvidia-ml*.list \
    && if [ -e /mnt/apt-sources ]; then \
        set -- -o Dir::Etc::SourceList=/mnt/apt-sources -o Dir::Etc::SourceParts=/dev/null; fi \
    && if [ -e /mnt/apt/preferences ]; then set -- "$@" -o Dir::Etc::Preferences=/mnt/apt/preferences; fi \
    && apt-get "$@" update \
    && DEBIAN_FRONTEND=noninteractive apt-get "$@" install -y --no-install-recommends \
        ca-certificates \
        curl \
        gcc \
        libbz2-dev \
        libc6-dev \
        libffi-dev \
        liblzma-dev \
        libncursesw5-dev \
        libreadline-dev \
        libsqlite3-dev \
        libssl-dev \
        make \
        pkg-config \
        uuid-dev \
        zlib1g-dev \
    && rm -rf /etc/ssh/ssh_host_* /var/log/*.log /var/log/apt /var/cache/ldconfig/aux-cache \
        /var/cache/debconf/*-old /var/lib/dpkg/*-old
WORKDIR /src
# Nobody publishes a checksum of this file: `./invoke lock` records the one of the first download.
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/python,target=/mnt/archives \
    sh /mnt/fetch Python-3.11.10.tgz - \
        'https://www.python.org/ftp/python/3.11.10/Python-3.11.10.tgz'
RUN tar -xf Python-3.11.10.tgz --one-top-level=python --strip-components=1 \
    && cd python \
    && LDFLAGS=-Wl,-rpath,/opt/python/lib ./configure --quiet --prefix=/opt/python --enable-shared --without-ensurepip \
    && make -j"$(nproc)" \
    && make install \
    && cd /opt/python \
    && rm -rf share lib/*.a lib/python3.11/config-*/*.a lib/python3.11/idlelib \
        lib/python3.11/lib2to3/tests lib/python3.11/test lib/python3.11/*/test \
    && find . -name '*.opt-[12].pyc' -delete \
    && strip --strip-unneeded bin/python3.11 lib/*.so.* lib/python3.11/lib-dynload/*.so \
    && bin/python3 -c 'import bz2, ctypes, curses, lzma, readline, sqlite3, ssl, uuid, venv, zlib'

FROM os AS interpreter
COPY --from=python /opt/python /opt/python

# uv installs the locked wheels; it stays out of the image.
FROM interpreter AS tools

RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=pip,target=/mnt/pip.conf --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=requirements/tools.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/tools,target=/mnt/wheels \
    --mount=type=cache,id=trainwright-pip,target=/root/.cache/pip \
    /opt/python/bin/python3.11 -m venv /opt/tools && pip=/opt/tools/bin/pip \
    && export PIP_CONFIG_FILE=/mnt/pip.conf PIP_CERT=/etc/ssl/certs/ca-certificates.crt NETRC=/mnt/netrc \
    && $pip install --quiet --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt
COPY tools/env /opt/tools/env

# Compilers and headers, for the stages below only.
FROM devel AS toolchain
ENV SOURCE_DATE_EPOCH=1700000000
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=bind,source=apt,target=/mnt/apt \
    --mount=type=cache,id=trainwright-apt-archives,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=trainwright-apt-lists,target=/var/lib/apt/lists,sharing=locked \
    rm -f /etc/apt/sources.list.d/cuda*.list /etc/apt/sources.list.d/nvidia-ml*.list \
    && if [ -e /mnt/apt-sources ]; then \
        set -- -o Dir::Etc::SourceList=/mnt/apt-sources -o Dir::Etc::SourceParts=/dev/null; fi \
    && if [ -e /mnt/apt/preferences ]; then set -- "$@" -o Dir::Etc::Preferences=/mnt/apt/preferences; fi \
    && apt-get "$@" update \
    && DEBIAN_FRONTEND=noninteractive apt-get "$@" install -y --no-install-recommends \
        autoconf \
        automake \
        ca-certificates \
        curl \
        g++ \
        gcc \
        hwloc-nox \
        libc6-dev \
        libhwloc-dev \
        libnuma1 \
        libpython3-stdlib \
        libtool \
        make \
        openssh-client \
        openssh-server \
        python3 \
        python3-dev \
    && rm -rf /etc/ssh/ssh_host_* /var/log/*.log /var/log/apt /var/cache/ldconfig/aux-cache \
        /var/cache/debconf/*-old /var/lib/dpkg/*-old
COPY --from=python /opt/python /opt/python
COPY tools/compile-jobs /usr/local/bin/compile-jobs

# Python packages that come as source.
FROM toolchain AS wheels
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=pip,target=/mnt/pip.conf --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \
    --mount=type=bind,source=requirements/sagemaker-toolkit.source.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/sagemaker-toolkit,target=/mnt/wheels \
    --mount=type=cache,id=trainwright-pip,target=/root/.cache/pip \
    PIP_CONFIG_FILE=/mnt/pip.conf PIP_CERT=/etc/ssl/certs/ca-certificates.crt NETRC=/mnt/netrc CFLAGS=-g0 \
    /opt/tools/bin/pip wheel --quiet --no-deps --no-build-isolation --require-hashes --find-links /mnt/wheels \
        -r /mnt/requirements.txt -w /wheels/sagemaker-toolkit

# efa 1.36.0 (aws)
FROM toolchain AS efa-archive
WORKDIR /src
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/efa,target=/mnt/archives \
    sh /mnt/fetch aws-efa-installer-1.36.0.tar.gz de183f333cfb58aeb7908a67bf9106985ba3ccb7f8638b851d2a0d8dbfacaec4 \
        'https://efa-installer.amazonaws.com/aws-efa-installer-1.36.0.tar.gz' \
        'https://s3-us-west-2.amazonaws.com/aws-efa-installer/aws-efa-installer-1.36.0.tar.gz'
RUN tar -xf aws-efa-installer-1.36.0.tar.gz
# Headers, for what is compiled against libfabric.
FROM toolchain AS efa
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=bind,source=apt,target=/mnt/apt \
    --mount=type=cache,id=trainwright-apt-archives,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=trainwright-apt-lists,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=bind,from=efa-archive,source=/src/aws-efa-installer,target=/mnt/efa,rw \
    --mount=type=bind,source=components/efa/install.sh,target=/mnt/install-efa \
    rm -f /etc/apt/sources.list.d/cuda*.list /etc/apt/sources.list.d/nvidia-ml*.list \
    && if [ -e /mnt/apt-sources ]; then \
        set -- -o Dir::Etc::SourceList=/mnt/apt-sources -o Dir::Etc::SourceParts=/dev/null; fi \
    && if [ -e /mnt/apt/preferences ]; then set -- "$@" -o Dir::Etc::Preferences=/mnt/apt/preferences; fi \
    && echo 'APT::Install-Recommends "false";' > /mnt/apt.conf \
    && if [ -e /mnt/apt-sources ]; then \
        printf 'Dir::Etc::%s;\n' 'SourceList "/mnt/apt-sources"' 'SourceParts "/dev/null"' >> /mnt/apt.conf; fi \
    && if [ -e /mnt/apt/pins ]; then echo 'Dir::Etc::Preferences "/mnt/apt/pins";' >> /mnt/apt.conf; fi \
    && apt-get "$@" update \
    && APT_CONFIG=/mnt/apt.conf DEBIAN_FRONTEND=noninteractive \
        sh /mnt/install-efa 'openmpi' -y --skip-kmod --skip-limit-conf --no-verify \
    && rm -rf /etc/ssh/ssh_host_* /var/log/*.log /var/log/apt /var/cache/ldconfig/aux-cache \
        /var/cache/debconf/*-old /var/lib/dpkg/*-old

# gdrcopy 2.4.2 (source)
FROM toolchain AS gdrcopy
WORKDIR /src
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/gdrcopy,target=/mnt/archives \
    sh /mnt/fetch gdrcopy-2.4.2.tar.gz ddea1986289e5cb3bb30185940f806d963f3d1e4839cc66cafc30f2388058c79 \
        'https://github.com/NVIDIA/gdrcopy/archive/v2.4.2.tar.gz'
# The library alone: the driver is the host's, and the tests need one. Releases differ in the case of "prefix", and in
# whether they make the folders and links.
RUN mkdir gdrcopy && tar -xf gdrcopy-2.4.2.tar.gz -C gdrcopy --strip-components=1 \
    && cd gdrcopy && mkdir -p /opt/gdrcopy/lib /opt/gdrcopy/include \
    && make CUDA=/usr/local/cuda prefix=/opt/gdrcopy PREFIX=/opt/gdrcopy lib \
    && make CUDA=/usr/local/cuda prefix=/opt/gdrcopy PREFIX=/opt/gdrcopy lib_install \
    && cd /opt/gdrcopy/lib && ldconfig -n . \
    && if [ ! -e libgdrapi.so ]; then ln -s libgdrapi.so.*.* libgdrapi.so; fi \
    && find . -type f -exec strip --strip-unneeded {} +

# nccl 2.23.4 (source)
FROM toolchain AS nccl
WORKDIR /src
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/nccl,target=/mnt/archives \
    sh /mnt/fetch nccl-2.23.4-1.tar.gz 6b946b70a9d2d01871842cbd15ec56488d358abe9a0f3767e372fddc3e241ba7 \
        'https://github.com/NVIDIA/nccl/archive/v2.23.4-1.tar.gz'
# The architectures are the image line's: all that NCCL knows would take several times as long.
RUN mkdir nccl && tar -xf nccl-2.23.4-1.tar.gz -C nccl --strip-components=1 \
    && cd nccl \
    && make -j"$(compile-jobs 2.0)" src.build BUILDDIR=/src/build CUDA_HOME=/usr/local/cuda \
        NVCC_GENCODE="-gencode=arch=compute_70,code=sm_70 -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90 -gencode=arch=compute_90,code=compute_90" \
    && mkdir -p /opt/nccl/lib \
    && cp -a /src/build/include /opt/nccl/ \
    && cp -a /src/build/lib/libnccl.so* /opt/nccl/lib/ \
    && find /opt/nccl/lib -type f -exec strip --strip-unneeded {} +

# aws-ofi-nccl 1.12.1 (source)
FROM efa AS aws-ofi-nccl
WORKDIR /src
COPY --from=nccl /opt/nccl /opt/nccl
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/aws-ofi-nccl,target=/mnt/archives \
    sh /mnt/fetch aws-ofi-nccl-1.12.1.tar.gz 821f0929c016e5448785bbc6795af5096559ecfc6c9479eb3818cafa61424576 \
        'https://github.com/aws/aws-ofi-nccl/archive/v1.12.1-aws.tar.gz'
# What git holds has no configure yet, an archive of a release may. The programs under bin test the plugin with MPI.
RUN mkdir aws-ofi-nccl && tar -xf aws-ofi-nccl-1.12.1.tar.gz -C aws-ofi-nccl --strip-components=1 \
    && cd aws-ofi-nccl \
    && if [ ! -x configure ]; then sh ./autogen.sh; fi \
    && ./configure --prefix=/opt/amazon/ofi-nccl --with-libfabric=/opt/amazon/efa --with-mpi=/opt/amazon/openmpi \
        --with-cuda=/usr/local/cuda --disable-static --enable-platform-aws --disable-tests \
    && make -j"$(compile-jobs 1.0)" install \
    && rm -rf /opt/amazon/ofi-nccl/bin \
    && find /opt/amazon/ofi-nccl -name '*.la' -delete

# pytorch 2.5.1 (aws)
FROM toolchain AS pytorch
WORKDIR /src
# Nobody publishes a checksum of this file: `./invoke lock` records the one of the first download.
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/pytorch,target=/mnt/archives \
    sh /mnt/fetch torch-2.5.1+cu124-cp311-cp311-linux_x86_64.whl - \
        'https://framework-binaries.s3.us-west-2.amazonaws.com/pytorch/v2.5.1/x86/cu124/torch-2.5.1%2Bcu124-cp311-cp311-linux_x86_64.whl'

# torchvision 0.20.1 (aws)
FROM toolchain AS torchvision
WORKDIR /src
# Nobody publishes a checksum of this file: `./invoke lock` records the one of the first download.
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/torchvision,target=/mnt/archives \
    sh /mnt/fetch torchvision-0.20.1+cu124-cp311-cp311-linux_x86_64.whl - \
        'https://framework-binaries.s3.us-west-2.amazonaws.com/pytorch/v2.5.1/x86/cu124/torchvision-0.20.1%2Bcu124-cp311-cp311-linux_x86_64.whl'

# torchaudio 2.5.1 (aws)
FROM toolchain AS torchaudio
WORKDIR /src
# Nobody publishes a checksum of this file: `./invoke lock` records the one of the first download.
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/torchaudio,target=/mnt/archives \
    sh /mnt/fetch torchaudio-2.5.1+cu124-cp311-cp311-linux_x86_64.whl - \
        'https://framework-binaries.s3.us-west-2.amazonaws.com/pytorch/v2.5.1/x86/cu124/torchaudio-2.5.1%2Bcu124-cp311-cp311-linux_x86_64.whl'

# smdistributed-dataparallel 2.6.0 (aws)
FROM toolchain AS smdistributed-dataparallel
WORKDIR /src
# Nobody publishes a checksum of this file: `./invoke lock` records the one of the first download.
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/smdistributed-dataparallel,target=/mnt/archives \
    sh /mnt/fetch smdistributed_dataparallel-2.6.0-cp311-cp311-linux_x86_64.whl - \
        'https://smdataparallel.s3.us-east-1.amazonaws.com/binary/pytorch/2.5.1/cu124/03-10-25/smdistributed_dataparallel-2.6.0-cp311-cp311-linux_x86_64.whl'

# The image. What changes least comes first.
FROM interpreter AS final
ENV PATH=/opt/venv/bin:/opt/amazon/efa/bin:/opt/amazon/openmpi/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    VIRTUAL_ENV=/opt/venv \
    PYTHONUNBUFFERED=1 \
    RDMAV_FORK_SAFE=1 \
    OMPI_ALLOW_RUN_AS_ROOT=1 \
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    CUDA_HOME=/usr/local/cuda \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES="compute,utility" \
    LD_LIBRARY_PATH="" \
    SAGEMAKER_TRAINING_MODULE=sagemaker_pytorch_container.training:main \
    USE_SMDEBUG=0

# python 3.11.10 (source)
RUN echo /opt/python/lib > /etc/ld.so.conf.d/python.conf
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    . /mnt/tools/env \
    && uv venv --python /opt/python/bin/python3.11 /opt/venv
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,source=requirements/python.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/python,target=/mnt/wheels \
    --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=uv,target=/mnt/uv/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    . /mnt/tools/env \
    && uv pip install --no-deps --require-hashes --find-links /mnt/wheels --requirements /mnt/requirements.txt \
    && rm -f /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json

# ssh 8.9 (ubuntu)
# sshd without host keys hangs a job in silence, and keys in a layer would be everybody's: the wrapper makes them when
# the server starts. It serves both contracts, as it needs no ENTRYPOINT.
COPY components/ssh/sshd /usr/sbin/sshd.wrapper
COPY components/ssh/ssh_config components/ssh/sshd_config /tmp/ssh/
# No key pair of root either: each host makes one when it starts, and sshd lets in the addresses of the job's hosts.
COPY --chmod=755 components/ssh/root-key components/ssh/job-hosts /usr/lib/openssh/
RUN dpkg-divert --local --rename --divert /usr/lib/openssh/sshd --add /usr/sbin/sshd \
    && mv /usr/sbin/sshd.wrapper /usr/sbin/sshd && chmod 755 /usr/sbin/sshd \
    && mv /tmp/ssh/ssh_config /etc/ssh/ssh_config.d/sagemaker.conf \
    && mv /tmp/ssh/sshd_config /etc/ssh/sshd_config.d/sagemaker.conf \
    && rmdir /tmp/ssh && mkdir -p /run/sshd \
    && sed -i 's/^session *required *pam_loginuid/session optional pam_loginuid/' /etc/pam.d/sshd

# efa 1.36.0 (aws)
# The installer brings packages of its own and has apt fetch what these need. What the plan does not name of it goes again
# in the same layer.
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=bind,source=apt,target=/mnt/apt \
    --mount=type=cache,id=trainwright-apt-archives,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=trainwright-apt-lists,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=bind,from=efa-archive,source=/src/aws-efa-installer,target=/mnt/efa,rw \
    --mount=type=bind,source=components/efa/install.sh,target=/mnt/install-efa \
    rm -f /etc/apt/sources.list.d/cuda*.list /etc/apt/sources.list.d/nvidia-ml*.list \
    && if [ -e /mnt/apt-sources ]; then \
        set -- -o Dir::Etc::SourceList=/mnt/apt-sources -o Dir::Etc::SourceParts=/dev/null; fi \
    && if [ -e /mnt/apt/preferences ]; then set -- "$@" -o Dir::Etc::Preferences=/mnt/apt/preferences; fi \
    && echo 'APT::Install-Recommends "false";' > /mnt/apt.conf \
    && if [ -e /mnt/apt-sources ]; then \
        printf 'Dir::Etc::%s;\n' 'SourceList "/mnt/apt-sources"' 'SourceParts "/dev/null"' >> /mnt/apt.conf; fi \
    && if [ -e /mnt/apt/pins ]; then echo 'Dir::Etc::Preferences "/mnt/apt/pins";' >> /mnt/apt.conf; fi \
    && apt-get "$@" update \
    && APT_CONFIG=/mnt/apt.conf DEBIAN_FRONTEND=noninteractive \
        sh /mnt/install-efa 'openmpi' -y --skip-kmod --skip-limit-conf --no-verify \
    && rm -rf /etc/ssh/ssh_host_* /var/log/*.log /var/log/apt /var/cache/ldconfig/aux-cache \
        /var/cache/debconf/*-old /var/lib/dpkg/*-old

# openmpi 4.1.7 (efa)
# Where ranks go is up to the job. In the file once, as a key that the command line has twice ends mpirun.
RUN cd /opt/amazon/openmpi \
    && touch etc/openmpi-mca-params.conf \
    && sed -i -e '/^ *\(hwloc_base_binding\|rmaps_base_mapping\)_policy *=/d' -e "\$a\\" etc/openmpi-mca-params.conf \
    && printf '%s\n' 'hwloc_base_binding_policy = none' 'rmaps_base_mapping_policy = slot' >> etc/openmpi-mca-params.conf \
    && find "$PWD" -maxdepth 1 \( -name lib -o -name lib64 \) > /etc/ld.so.conf.d/openmpi.conf

# compiler 11 (ubuntu)
# g++ is a Debian package of the os stage.

# gdrcopy 2.4.2 (source)
COPY --from=gdrcopy /opt/gdrcopy /opt/gdrcopy
RUN echo /opt/gdrcopy/lib > /etc/ld.so.conf.d/gdrcopy.conf

# cuda 12.4 (nvidia)
# The base image holds CUDA, and a driver for hosts with an older one, which must not shadow a newer driver of the host.
# When a container starts, cuda-compat decides: as ENTRYPOINT or called by it, or where that is another, in the first
# bash (BASH_ENV).
COPY components/cuda/cuda-compat /usr/local/bin/cuda-compat
COPY components/cuda/cuda-compat.bash /usr/local/lib/cuda-compat.bash
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,source=components/cuda/adopt_base.sh,target=/mnt/adopt_base.sh \
    sh /mnt/adopt_base.sh && chmod 755 /usr/local/bin/cuda-compat

# nccl 2.23.4 (source)
# One NCCL in the image: that of the base goes.
RUN { dpkg-query -W -f '${Package}\n' libnccl2 libnccl-dev 2> /dev/null || true; } \
        | xargs -r dpkg --purge --force-depends --force-hold \
    && rm -f /usr/lib/libnccl.so* /usr/lib/*/libnccl.so* /usr/local/cuda/lib64/libnccl.so* \
        /var/log/dpkg.log /var/lib/dpkg/*-old
COPY --from=nccl /opt/nccl /opt/nccl
RUN echo /opt/nccl/lib > /etc/ld.so.conf.d/nccl.conf

# aws-ofi-nccl 1.12.1 (source)
COPY --from=aws-ofi-nccl /opt/amazon/ofi-nccl /opt/amazon/ofi-nccl
# NCCL looks for libnccl-net.so, which newer plugins name after their network.
RUN cd /opt/amazon/ofi-nccl/lib \
    && if [ ! -e libnccl-net.so ]; then ln -s libnccl-net-ofi.so libnccl-net.so; fi \
    && echo "$PWD" > /etc/ld.so.conf.d/aws-ofi-nccl.conf

# pytorch 2.5.1 (aws)
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,source=requirements/pytorch.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/pytorch,target=/mnt/wheels \
    --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=uv,target=/mnt/uv/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    . /mnt/tools/env \
    && uv pip install --no-deps --require-hashes --find-links /mnt/wheels --requirements /mnt/requirements.txt \
    && rm -f /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,from=pytorch,source=/src,target=/mnt/wheels \
    . /mnt/tools/env \
    && uv pip install --no-deps --no-index --no-cache /mnt/wheels/*.whl \
    && rm -f /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json

# torchvision 0.20.1 (aws)
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,source=requirements/torchvision.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/torchvision,target=/mnt/wheels \
    --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=uv,target=/mnt/uv/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    . /mnt/tools/env \
    && uv pip install --no-deps --require-hashes --find-links /mnt/wheels --requirements /mnt/requirements.txt \
    && rm -f /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,from=torchvision,source=/src,target=/mnt/wheels \
    . /mnt/tools/env \
    && uv pip install --no-deps --no-index --no-cache /mnt/wheels/*.whl \
    && rm -f /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json

# torchaudio 2.5.1 (aws)
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,from=torchaudio,source=/src,target=/mnt/wheels \
    . /mnt/tools/env \
    && uv pip install --no-deps --no-index --no-cache /mnt/wheels/*.whl \
    && rm -f /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json

# mpi4py 4.1.2 (wheel)
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,source=requirements/mpi4py.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/mpi4py,target=/mnt/wheels \
    --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=uv,target=/mnt/uv/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    . /mnt/tools/env \
    && uv pip install --no-deps --require-hashes --find-links /mnt/wheels --requirements /mnt/requirements.txt \
    && rm -f /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json

# sagemaker-toolkit 5.1.4 (wheel)
# What the toolkit needs changes seldom, the toolkit itself often: two layers.
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,source=requirements/sagemaker-toolkit.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/sagemaker-toolkit,target=/mnt/wheels \
    --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=uv,target=/mnt/uv/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    . /mnt/tools/env \
    && uv pip install --no-deps --require-hashes --find-links /mnt/wheels --requirements /mnt/requirements.txt \
    && rm -f /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,from=wheels,source=/wheels/sagemaker-toolkit,target=/mnt/wheels \
    . /mnt/tools/env \
    && uv pip install --no-deps --no-index --no-cache /mnt/wheels/*.whl \
    && rm -f /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json
# SIGTERM, by which SageMaker stops a job, reaches the script: `train` as the first process would not hear it; cuda-compat decides before.
COPY --chmod=755 components/sagemaker-toolkit/training-init /usr/local/bin/training-init
ENTRYPOINT ["/usr/local/bin/training-init"]

# smdistributed-dataparallel 2.6.0 (aws)
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,from=smdistributed-dataparallel,source=/src,target=/mnt/wheels \
    . /mnt/tools/env \
    && SMDATAPARALLEL_PT=1 uv pip install --no-deps --no-index --no-cache /mnt/wheels/*.whl \
    && rm -f /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json
RUN python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"] + "/smdistributed/dataparallel/lib")' \
        > /etc/ld.so.conf.d/smdistributed-dataparallel.conf

# The loader learns of every library directory added above.
RUN ldconfig && rm -f /var/cache/ldconfig/aux-cache
ENV BASH_ENV=/usr/local/lib/cuda-compat.bash

WORKDIR /
ARG SOURCE_REVISION=unknown
LABEL org.opencontainers.image.title=pytorch-training \
    org.opencontainers.image.version=2.5.1 \
    io.trainwright.plan=3e9770e811b695334b57ec3bcc82f6dd66e9fec192349434fd8c39bc2308fc20 \
    io.trainwright.framework=pytorch \
    io.trainwright.framework-version=2.5.1 \
    io.trainwright.cuda=12.4 \
    io.trainwright.python=3.11 \
    io.trainwright.base=ubuntu-22.04 \
    io.trainwright.component.python="3.11.10 (source)" \
    io.trainwright.component.ssh="8.9 (ubuntu)" \
    io.trainwright.component.efa="1.36.0 (aws)" \
    io.trainwright.component.openmpi="4.1.7 (efa)" \
    io.trainwright.component.compiler="11 (ubuntu)" \
    io.trainwright.component.gdrcopy="2.4.2 (source)" \
    io.trainwright.component.cuda="12.4 (nvidia)" \
    io.trainwright.component.nccl="2.23.4 (source)" \
    io.trainwright.component.aws-ofi-nccl="1.12.1 (source)" \
    io.trainwright.component.pytorch="2.5.1 (aws)" \
    io.trainwright.component.torchvision="0.20.1 (aws)" \
    io.trainwright.component.torchaudio="2.5.1 (aws)" \
    io.trainwright.component.mpi4py="4.1.2 (wheel)" \
    io.trainwright.component.sagemaker-toolkit="5.1.4 (wheel)" \
    io.trainwright.component.smdistributed-dataparallel="2.6.0 (aws)" \
    org.opencontainers.image.revision="${SOURCE_REVISION}"
