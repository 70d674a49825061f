# tensorflow 2.10.1, CUDA 11.2, Python 3.9, on ubuntu-20.04: a SageMaker training image.
# Made by Trainwright from plan 8a82fdb70488; `./invoke render` makes it again. Build it here with
#
#     DOCKER_BUILDKIT=1 docker build .
#
# Secrets, all optional: ca (a CA bundle), uv, pip and netrc (an index and its credentials), apt-sources (a mirror),
# artifacts (the base URL of a mirror of archives).
#
# Stages, those in one row in parallel:
#
#     base <- ${BASE_IMAGE}   toolchain <- ${BUILD_IMAGE}
#     os <- base   efa-archive <- toolchain   openmpi <- toolchain   nccl <- toolchain
#     tools <- os   efa <- toolchain + efa-archive
#     wheels <- toolchain + tools   aws-ofi-nccl <- efa + openmpi + nccl
#     final <- os + tools + efa-archive + openmpi + nccl + aws-ofi-nccl + wheels

# Build arguments, so that a mirror can stand in for the registry: docker build --build-arg BASE_IMAGE=...
ARG BASE_IMAGE=nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04
ARG BUILD_IMAGE=nvidia/cuda:11.2.2-cudnn8-devel-ubuntu20.04
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
        curl \
        hwloc-nox \
        libpython3.9 \
        openssh-client \
        openssh-server \
        python3-distutils \
        python3.9 \
    && rm -rf /etc/ssh/ssh_host_* /var/log/*.log /var/log/apt /var/cache/ldconfig/aux-cache \
        /var/cache/debconf/*-old /var/lib/dpkg/*-old

# uv installs the locked wheels; it stays out of the image.
FROM os AS tools
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
        python3.9-venv \
    && rm -rf /etc/ssh/ssh_host_* /var/log/*.log /var/log/apt /var/cache/ldconfig/aux-cache \
        /var/cache/debconf/*-old /var/lib/dpkg/*-old
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=pip,target=/mnt/pip.conf --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=requirements/tools.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/tools,target=/mnt/wheels \
    --mount=type=cache,id=trainwright-pip,target=/root/.cache/pip \
    /usr/bin/python3.9 -m venv /opt/tools && pip=/opt/tools/bin/pip \
    && export PIP_CONFIG_FILE=/mnt/pip.conf PIP_CERT=/etc/ssl/certs/ca-certificates.crt NETRC=/mnt/netrc \
    && $pip install --quiet --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt
COPY tools/env /opt/tools/env

# Compilers and headers, for the stages below only.
FROM ${BUILD_IMAGE} AS toolchain
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
        bzip2 \
        ca-certificates \
        curl \
        g++ \
        gcc \
        hwloc-nox \
        libc6-dev \
        libhwloc-dev \
        libpython3.9 \
        libtool \
        make \
        openssh-client \
        openssh-server \
        perl \
        python3 \
        python3-distutils \
        python3.9 \
        python3.9-dev \
    && rm -rf /etc/ssh/ssh_host_* /var/log/*.log /var/log/apt /var/cache/ldconfig/aux-cache \
        /var/cache/debconf/*-old /var/lib/dpkg/*-old
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

# efa 1.17.2 (aws)
FROM toolchain AS efa-archive
WORKDIR /src
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/efa,target=/mnt/archives \
    sh /mnt/fetch aws-efa-installer-1.17.2.tar.gz bca1fdde8b32b00346e175e597ffab32a09a08ee9ab136875fb38283cc4cd099 \
        'https://efa-installer.amazonaws.com/aws-efa-installer-1.17.2.tar.gz' \
        'https://s3-us-west-2.amazonaws.com/aws-efa-installer/aws-efa-installer-1.17.2.tar.gz'
RUN tar -xf aws-efa-installer-1.17.2.tar.gz
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
        sh /mnt/install-efa '' -y --skip-kmod \
    && rm -rf /etc/ssh/ssh_host_* /var/log/*.log /var/log/apt /var/cache/ldconfig/aux-cache \
        /var/cache/debconf/*-old /var/lib/dpkg/*-old

# openmpi 4.1.1 (source)
FROM toolchain AS openmpi
WORKDIR /src
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/openmpi,target=/mnt/archives \
    sh /mnt/fetch openmpi-4.1.1.tar.bz2 e24f7a778bd11a71ad0c14587a7f5b00e68a71aa5623e2157bafee3d44c07cda \
        'https://download.open-mpi.org/release/open-mpi/v4.1/openmpi-4.1.1.tar.bz2'
# orted is found on the other hosts by the prefix, as sshd sets no PATH. hwloc, libevent and PMIX are those inside.
RUN mkdir openmpi && tar -xf openmpi-4.1.1.tar.bz2 -C openmpi --strip-components=1 \
    && cd openmpi \
    && ./configure --prefix=/opt/amazon/openmpi --enable-orterun-prefix-by-default \
        --with-hwloc=internal --with-libevent=internal --with-pmix=internal --without-verbs \
        --disable-static --disable-mpi-fortran --disable-oshmem --disable-man-pages \
    && make -j"$(compile-jobs 1.0)" install \
    && find /opt/amazon/openmpi -name '*.la' -delete \
    && find /opt/amazon/openmpi -type f -name '*.so*' -exec strip --strip-unneeded {} +

# nccl 2.12.10 (source)
FROM toolchain AS nccl
WORKDIR /src
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/nccl,target=/mnt/archives \
    sh /mnt/fetch nccl-2.12.10-1.tar.gz 7f53ed9f1af25bf5290e774d4fbe7a8fc71bcad34ab943602d36e4d0a8d30d16 \
        'https://github.com/NVIDIA/nccl/archive/v2.12.10-1.tar.gz'
# The architectures are the image line's: all that NCCL knows would take several times as long.
RUN mkdir nccl && tar -xf nccl-2.12.10-1.tar.gz -C nccl --strip-components=1 \
    && cd nccl \
    && make -j"$(compile-jobs 2.0)" src.build BUILDDIR=/src/build CUDA_HOME=/usr/local/cuda \
        NVCC_GENCODE="-gencode=arch=compute_70,code=sm_70 -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=compute_80" \
    && mkdir -p /opt/nccl/lib \
    && cp -a /src/build/include /opt/nccl/ \
    && cp -a /src/build/lib/libnccl.so* /opt/nccl/lib/ \
    && find /opt/nccl/lib -type f -exec strip --strip-unneeded {} +

# aws-ofi-nccl 1.4.0 (source)
FROM efa AS aws-ofi-nccl
WORKDIR /src
COPY --from=openmpi /opt/amazon/openmpi /opt/amazon/openmpi
COPY --from=nccl /opt/nccl /opt/nccl
# Nobody publishes a checksum of this file: `./invoke lock` records the one of the first download.
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/aws-ofi-nccl,target=/mnt/archives \
    sh /mnt/fetch aws-ofi-nccl-1.4.0.tar.gz - \
        'https://github.com/aws/aws-ofi-nccl/archive/v1.4.0-aws.tar.gz'
# What git holds has no configure yet, an archive of a release may. The programs under bin test the plugin with MPI.
RUN mkdir aws-ofi-nccl && tar -xf aws-ofi-nccl-1.4.0.tar.gz -C aws-ofi-nccl --strip-components=1 \
    && cd aws-ofi-nccl \
    && if [ ! -x configure ]; then sh ./autogen.sh; fi \
    && ./configure --prefix=/opt/amazon/ofi-nccl --with-libfabric=/opt/amazon/efa --with-mpi=/opt/amazon/openmpi \
        --with-cuda=/usr/local/cuda --disable-static --with-nccl=/opt/nccl \
    && make -j"$(compile-jobs 1.0)" install \
    && rm -rf /opt/amazon/ofi-nccl/bin \
    && find /opt/amazon/ofi-nccl -name '*.la' -delete

# The image. What changes least comes first.
FROM os AS final
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
    SAGEMAKER_TRAINING_MODULE=sagemaker_tensorflow_container.training:main \
    USE_SMDEBUG=0

# python 3.9 (ubuntu)
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    . /mnt/tools/env \
    && uv venv --python /usr/bin/python3.9 /opt/venv
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,source=requirements/python.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/python,target=/mnt/wheels \
    --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=uv,target=/mnt/uv/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    . /mnt/tools/env \
    && uv pip install --no-deps --require-hashes --find-links /mnt/wheels --requirements /mnt/requirements.txt \
    && rm -f /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json

# ssh 8.2 (ubuntu)
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

# efa 1.17.2 (aws)
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
        sh /mnt/install-efa '' -y --skip-kmod \
    && rm -rf /etc/ssh/ssh_host_* /var/log/*.log /var/log/apt /var/cache/ldconfig/aux-cache \
        /var/cache/debconf/*-old /var/lib/dpkg/*-old

# openmpi 4.1.1 (source)
COPY --from=openmpi /opt/amazon/openmpi /opt/amazon/openmpi
# Where ranks go is up to the job. In the file once, as a key that the command line has twice ends mpirun.
RUN cd /opt/amazon/openmpi \
    && touch etc/openmpi-mca-params.conf \
    && sed -i -e '/^ *\(hwloc_base_binding\|rmaps_base_mapping\)_policy *=/d' -e "\$a\\" etc/openmpi-mca-params.conf \
    && printf '%s\n' 'hwloc_base_binding_policy = none' 'rmaps_base_mapping_policy = slot' >> etc/openmpi-mca-params.conf \
    && find "$PWD" -maxdepth 1 \( -name lib -o -name lib64 \) > /etc/ld.so.conf.d/openmpi.conf

# cuda 11.2 (nvidia)
# The base image holds CUDA, and a driver for hosts with an older one, which must not shadow a newer driver of the host.
# When a container starts, cuda-compat decides: as ENTRYPOINT or called by it, or where that is another, in the first
# bash (BASH_ENV).
COPY components/cuda/cuda-compat /usr/local/bin/cuda-compat
COPY components/cuda/cuda-compat.bash /usr/local/lib/cuda-compat.bash
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,source=components/cuda/adopt_base.sh,target=/mnt/adopt_base.sh \
    sh /mnt/adopt_base.sh && chmod 755 /usr/local/bin/cuda-compat

# nccl 2.12.10 (source)
# One NCCL in the image: that of the base goes.
RUN { dpkg-query -W -f '${Package}\n' libnccl2 libnccl-dev 2> /dev/null || true; } \
        | xargs -r dpkg --purge --force-depends --force-hold \
    && rm -f /usr/lib/libnccl.so* /usr/lib/*/libnccl.so* /usr/local/cuda/lib64/libnccl.so* \
        /var/log/dpkg.log /var/lib/dpkg/*-old
COPY --from=nccl /opt/nccl /opt/nccl
RUN echo /opt/nccl/lib > /etc/ld.so.conf.d/nccl.conf

# aws-ofi-nccl 1.4.0 (source)
COPY --from=aws-ofi-nccl /opt/amazon/ofi-nccl /opt/amazon/ofi-nccl
# NCCL looks for libnccl-net.so, which newer plugins name after their network.
RUN cd /opt/amazon/ofi-nccl/lib \
    && if [ ! -e libnccl-net.so ]; then ln -s libnccl-net-ofi.so libnccl-net.so; fi \
    && echo "$PWD" > /etc/ld.so.conf.d/aws-ofi-nccl.conf

# tensorflow 2.10.1 (wheel)
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,source=requirements/tensorflow.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/tensorflow,target=/mnt/wheels \
    --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=uv,target=/mnt/uv/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    . /mnt/tools/env \
    && uv pip install --no-deps --require-hashes --find-links /mnt/wheels --requirements /mnt/requirements.txt \
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

# sagemaker-toolkit 4.9.0 (wheel)
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
LABEL org.opencontainers.image.title=tensorflow-training \
    org.opencontainers.image.version=2.10.1 \
    io.trainwright.plan=8a82fdb7048820a3a351af11938f061c10e393235cc257b7632455d606226aa3 \
    io.trainwright.framework=tensorflow \
    io.trainwright.framework-version=2.10.1 \
    io.trainwright.cuda=11.2 \
    io.trainwright.python=3.9 \
    io.trainwright.base=ubuntu-20.04 \
    io.trainwright.component.python="3.9 (ubuntu)" \
    io.trainwright.component.ssh="8.2 (ubuntu)" \
    io.trainwright.component.efa="1.17.2 (aws)" \
    io.trainwright.component.openmpi="4.1.1 (source)" \
    io.trainwright.component.cuda="11.2 (nvidia)" \
    io.trainwright.component.nccl="2.12.10 (source)" \
    io.trainwright.component.aws-ofi-nccl="1.4.0 (source)" \
    io.trainwright.component.tensorflow="2.10.1 (wheel)" \
    io.trainwright.component.mpi4py="4.1.2 (wheel)" \
    io.trainwright.component.sagemaker-toolkit="4.9.0 (wheel)" \
    org.opencontainers.image.revision="${SOURCE_REVISION}"
