# pytorch 2.7.1, CUDA 12.8, Python 3.12, on ubuntu-22.04: a SageMaker training image.
# Made by Trainwright from plan f1154f264744; `./invoke render` makes it again. Build it here with
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
#     tools <- interpreter   efa-archive <- toolchain   gdrcopy <- toolchain   pytorch <- toolchain   torchvision <- toolchain   torchaudio <- toolchain
#     wheels <- toolchain + tools   efa <- toolchain + efa-archive
#     final <- interpreter + tools + efa-archive + gdrcopy + pytorch + torchvision + torchaudio + wheels

# Build arguments, so that a mirror can stand in for the registry: docker build --build-arg BASE_IMAGE=...
ARG BASE_IMAGE=nvidia/cuda:12.8.0-base-ubuntu22.04
ARG BUILD_IMAGE=nvidia/cuda:12.8.0-devel-ubuntu22.04
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
        libc6-dev \
        libpython3-stdlib \
        openssh-client \
        openssh-server \
        python3-dev \
    && rm -rf /etc/ssh/ssh_host_* /var/log/*.log /var/log/apt /var/cache/ldconfig/aux-cache \
        /var/cache/debconf/*-old /var/lib/dpkg/*-old

# Where build stages start; what is compiled here may need the distribution's packages of the image as well.
FROM ${BUILD_IMAGE} AS devel

# Python 3.12.10 from python.org. The programs know where their library is; pip is left to the image line.
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
    sh /mnt/fetch Python-3.12.10.tgz - \
        'https://www.python.org/ftp/python/3.12.10/Python-3.12.10.tgz'
RUN tar -xf Python-3.12.10.tgz --one-top-level=python --strip-components=1 \
    && cd python \
    && LDFLAGS=-Wl,-rpath,/opt/python/lib ./configure --quiet --prefix=/opt/python --enable-shared --without-ensurepip \
    && make -j"$(nproc)" \
    && make install \
    && cd /opt/python \
    && rm -rf share lib/*.a lib/python3.12/config-*/*.a lib/python3.12/idlelib \
        lib/python3.12/lib2to3/tests lib/python3.12/test lib/python3.12/*/test \
    && find . -name '*.opt-[12].pyc' -delete \
    && strip --strip-unneeded bin/python3.12 lib/*.so.* lib/python3.12/lib-dynload/*.so \
    && bin/python3 -c 'import bz2, ctypes, curses, lzma, readline, sqlite3, ssl, uuid, venv, zlib'

FROM os AS interpreter
COPY --from=python /opt/python /opt/python

# uv installs the locked wheels; it stays out of the image.
FROM interpreter AS tools

RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=pip,target=/mnt/pip.conf --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=requirements/tools.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/tools,target=/mnt/wheels \
    --mount=type=cache,id=trainwright-pip,target=/root/.cache/pip \
    /opt/python/bin/python3.12 -m venv /opt/tools && pip=/opt/tools/bin/pip \
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
        ca-certificates \
        curl \
        g++ \
        gcc \
        libc6-dev \
        libpython3-stdlib \
        make \
        openssh-client \
        openssh-server \
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

# efa 1.40.0 (aws)
FROM toolchain AS efa-archive
WORKDIR /src
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/efa,target=/mnt/archives \
    sh /mnt/fetch aws-efa-installer-1.40.0.tar.gz 30491b0fe7c3470d4439594538855c981b05fa69862d74f8c05eb9b97912368a \
        'https://efa-installer.amazonaws.com/aws-efa-installer-1.40.0.tar.gz' \
        'https://s3-us-west-2.amazonaws.com/aws-efa-installer/aws-efa-installer-1.40.0.tar.gz'
RUN tar -xf aws-efa-installer-1.40.0.tar.gz
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
        sh /mnt/install-efa 'openmpi aws-ofi-nccl' -y --skip-kmod --skip-limit-conf --no-verify \
    && rm -rf /etc/ssh/ssh_host_* /var/log/*.log /var/log/apt /var/cache/ldconfig/aux-cache \
        /var/cache/debconf/*-old /var/lib/dpkg/*-old

# gdrcopy 2.5 (source)
FROM toolchain AS gdrcopy
WORKDIR /src
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/gdrcopy,target=/mnt/archives \
    sh /mnt/fetch gdrcopy-2.5.tar.gz 196400877be7e511edcf2a87b21a605cca99522ff217c97429348fd9153b30d7 \
        'https://github.com/NVIDIA/gdrcopy/archive/v2.5.tar.gz'
# The library alone: the driver is the host's, and the tests need one. Releases differ in the case of "prefix", and in
# whether they make the folders and links.
RUN mkdir gdrcopy && tar -xf gdrcopy-2.5.tar.gz -C gdrcopy --strip-components=1 \
    && cd gdrcopy && mkdir -p /opt/gdrcopy/lib /opt/gdrcopy/include \
    && make CUDA=/usr/local/cuda prefix=/opt/gdrcopy PREFIX=/opt/gdrcopy lib \
    && make CUDA=/usr/local/cuda prefix=/opt/gdrcopy PREFIX=/opt/gdrcopy lib_install \
    && cd /opt/gdrcopy/lib && ldconfig -n . \
    && if [ ! -e libgdrapi.so ]; then ln -s libgdrapi.so.*.* libgdrapi.so; fi \
    && find . -type f -exec strip --strip-unneeded {} +

# pytorch 2.7.1 (index)
FROM toolchain AS pytorch
WORKDIR /src
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/pytorch,target=/mnt/archives \
    sh /mnt/fetch torch-2.7.1+cu128-cp312-cp312-manylinux_2_28_x86_64.whl 0b64f7d0a6f2a739ed052ba959f7b67c677028c9566ce51997f9f90fe573ddaa \
        'https://download.pytorch.org/whl/cu128/torch-2.7.1%2Bcu128-cp312-cp312-manylinux_2_28_x86_64.whl'

# torchvision 0.22.1 (index)
FROM toolchain AS torchvision
WORKDIR /src
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/torchvision,target=/mnt/archives \
    sh /mnt/fetch torchvision-0.22.1+cu128-cp312-cp312-manylinux_2_28_x86_64.whl f64ef9bb91d71ab35d8384912a19f7419e35928685bc67544d58f45148334373 \
        'https://download.pytorch.org/whl/cu128/torchvision-0.22.1%2Bcu128-cp312-cp312-manylinux_2_28_x86_64.whl'

# torchaudio 2.7.1 (index)
FROM toolchain AS torchaudio
WORKDIR /src
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/torchaudio,target=/mnt/archives \
    sh /mnt/fetch torchaudio-2.7.1+cu128-cp312-cp312-manylinux_2_28_x86_64.whl 0c1d407f934d44f87935b139991d8872f81f88f8a6be9b7bd25918bf744e2be6 \
        'https://download.pytorch.org/whl/cu128/torchaudio-2.7.1%2Bcu128-cp312-cp312-manylinux_2_28_x86_64.whl'

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

# python 3.12.10 (source)
RUN echo /opt/python/lib > /etc/ld.so.conf.d/python.conf
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    . /mnt/tools/env \
    && uv venv --python /opt/python/bin/python3.12 /opt/venv
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

# efa 1.40.0 (aws)
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
        sh /mnt/install-efa 'openmpi aws-ofi-nccl' -y --skip-kmod --skip-limit-conf --no-verify \
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

# gdrcopy 2.5 (source)
COPY --from=gdrcopy /opt/gdrcopy /opt/gdrcopy
RUN echo /opt/gdrcopy/lib > /etc/ld.so.conf.d/gdrcopy.conf

# cuda 12.8 (nvidia)
# The base image holds CUDA, and a driver for hosts with an older one, which must not shadow a newer driver of the host.
# When a container starts, cuda-compat decides: as ENTRYPOINT or called by it, or where that is another, in the first
# bash (BASH_ENV).
COPY components/cuda/cuda-compat /usr/local/bin/cuda-compat
COPY components/cuda/cuda-compat.bash /usr/local/lib/cuda-compat.bash
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,source=components/cuda/adopt_base.sh,target=/mnt/adopt_base.sh \
    sh /mnt/adopt_base.sh && chmod 755 /usr/local/bin/cuda-compat

# nccl 2.26.2 (wheel)
# One NCCL in the image: that of the base goes.
RUN { dpkg-query -W -f '${Package}\n' libnccl2 libnccl-dev 2> /dev/null || true; } \
        | xargs -r dpkg --purge --force-depends --force-hold \
    && rm -f /usr/lib/libnccl.so* /usr/lib/*/libnccl.so* /usr/local/cuda/lib64/libnccl.so* \
        /var/log/dpkg.log /var/lib/dpkg/*-old
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,source=requirements/nccl.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/nccl,target=/mnt/wheels \
    --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=uv,target=/mnt/uv/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    . /mnt/tools/env \
    && uv pip install --no-deps --require-hashes --find-links /mnt/wheels --requirements /mnt/requirements.txt \
    && rm -f /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json

# aws-ofi-nccl 1.14.2 (efa)
# The EFA installer has put it there.
# NCCL looks for libnccl-net.so, which newer plugins name after their network.
RUN cd /opt/amazon/ofi-nccl/lib/x86_64-linux-gnu \
    && if [ ! -e libnccl-net.so ]; then ln -s libnccl-net-ofi.so libnccl-net.so; fi \
    && echo "$PWD" > /etc/ld.so.conf.d/aws-ofi-nccl.conf

# pytorch 2.7.1 (index)
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

# torchvision 0.22.1 (index)
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

# torchaudio 2.7.1 (index)
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

# The loader learns of every library directory added above.
RUN ldconfig && rm -f /var/cache/ldconfig/aux-cache
ENV BASH_ENV=/usr/local/lib/cuda-compat.bash

WORKDIR /
ARG SOURCE_REVISION=unknown
LABEL org.opencontainers.image.title=pytorch-training \
    org.opencontainers.image.version=2.7.1 \
    io.trainwright.plan=f1154f264744bc142367eb8df820cbf901a3fe6540cc6014f4a652f6f592798a \
    io.trainwright.framework=pytorch \
    io.trainwright.framework-version=2.7.1 \
    io.trainwright.cuda=12.8 \
    io.trainwright.python=3.12 \
    io.trainwright.base=ubuntu-22.04 \
    io.trainwright.component.python="3.12.10 (source)" \
    io.trainwright.component.ssh="8.9 (ubuntu)" \
    io.trainwright.component.efa="1.40.0 (aws)" \
    io.trainwright.component.openmpi="4.1.7 (efa)" \
    io.trainwright.component.compiler="11 (ubuntu)" \
    io.trainwright.component.gdrcopy="2.5 (source)" \
    io.trainwright.component.cuda="12.8 (nvidia)" \
    io.trainwright.component.nccl="2.26.2 (wheel)" \
    io.trainwright.component.aws-ofi-nccl="1.14.2 (efa)" \
    io.trainwright.component.pytorch="2.7.1 (index)" \
    io.trainwright.component.torchvision="0.22.1 (index)" \
    io.trainwright.component.torchaudio="2.7.1 (index)" \
    io.trainwright.component.mpi4py="4.1.2 (wheel)" \
    io.trainwright.component.sagemaker-toolkit="5.1.4 (wheel)" \
    org.opencontainers.image.revision="${SOURCE_REVISION}"
