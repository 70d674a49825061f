# pytorch 2.15.0, CUDA 13.2, Python 3.11, on debian-12: a SageMaker training image.
# Made by Trainwright from plan 23742b98c78e; `./invoke render` makes it again. Build it here with
#
#     DOCKER_BUILDKIT=1 docker build .
#
# Secrets, all optional: ca (a CA bundle), uv, pip and netrc (an index and its credentials), apt-sources (a mirror),
# artifacts (the base URL of a mirror of archives).
#
# Stages, those in one row in parallel:
#
#     base
#     os <- base
#     tools <- os   toolchain <- os
#     wheels <- toolchain + tools   metis <- toolchain
#     final <- os + tools + wheels + metis

# A Debian root file system without device nodes, made by mmdebstrap from packages alone.
FROM scratch AS base
ADD base/rootfs.tar /

# The distribution's packages of the image itself.
FROM base AS os
ENV LANG=C.UTF-8
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=bind,source=apt,target=/mnt/apt \
    --mount=type=cache,id=trainwright-apt-archives,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=trainwright-apt-lists,target=/var/lib/apt/lists,sharing=locked \
    if [ -e /mnt/apt-sources ]; then \
        set -- -o Dir::Etc::SourceList=/mnt/apt-sources -o Dir::Etc::SourceParts=/dev/null; fi \
    && if [ -e /mnt/apt/preferences ]; then set -- "$@" -o Dir::Etc::Preferences=/mnt/apt/preferences; fi \
    && apt-get "$@" update \
    && DEBIAN_FRONTEND=noninteractive apt-get "$@" install -y --no-install-recommends \
        ibverbs-providers \
        libfabric-bin \
        libfabric1 \
        libibverbs1 \
        libopenmpi3 \
        libpython3.11 \
        librdmacm1 \
        openmpi-bin \
        openssh-client \
        openssh-server \
        python3 \
    && rm -rf /etc/ssh/ssh_host_* /var/log/*.log /var/log/apt /var/cache/ldconfig/aux-cache \
        /var/cache/debconf/*-old /var/lib/dpkg/*-old

# uv installs the locked wheels; it stays out of the image.
FROM os AS tools
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=bind,source=apt,target=/mnt/apt \
    --mount=type=cache,id=trainwright-apt-archives,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=trainwright-apt-lists,target=/var/lib/apt/lists,sharing=locked \
    if [ -e /mnt/apt-sources ]; then \
        set -- -o Dir::Etc::SourceList=/mnt/apt-sources -o Dir::Etc::SourceParts=/dev/null; fi \
    && if [ -e /mnt/apt/preferences ]; then set -- "$@" -o Dir::Etc::Preferences=/mnt/apt/preferences; fi \
    && apt-get "$@" update \
    && DEBIAN_FRONTEND=noninteractive apt-get "$@" install -y --no-install-recommends \
        python3-venv \
    && rm -rf /etc/ssh/ssh_host_* /var/log/*.log /var/log/apt /var/cache/ldconfig/aux-cache \
        /var/cache/debconf/*-old /var/lib/dpkg/*-old
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=pip,target=/mnt/pip.conf --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=requirements/tools.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/tools,target=/mnt/wheels \
    --mount=type=cache,id=trainwright-pip,target=/root/.cache/pip \
    /usr/bin/python3 -m venv /opt/tools && pip=/opt/tools/bin/pip \
    && export PIP_CONFIG_FILE=/mnt/pip.conf PIP_CERT=/etc/ssl/certs/ca-certificates.crt NETRC=/mnt/netrc \
    && $pip install --quiet --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt
COPY tools/env /opt/tools/env

# Compilers and headers, for the stages below only.
FROM os AS toolchain
ENV SOURCE_DATE_EPOCH=1700000000
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=bind,source=apt,target=/mnt/apt \
    --mount=type=cache,id=trainwright-apt-archives,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=trainwright-apt-lists,target=/var/lib/apt/lists,sharing=locked \
    if [ -e /mnt/apt-sources ]; then \
        set -- -o Dir::Etc::SourceList=/mnt/apt-sources -o Dir::Etc::SourceParts=/dev/null; fi \
    && if [ -e /mnt/apt/preferences ]; then set -- "$@" -o Dir::Etc::Preferences=/mnt/apt/preferences; fi \
    && apt-get "$@" update \
    && DEBIAN_FRONTEND=noninteractive apt-get "$@" install -y --no-install-recommends \
        cmake \
        dpkg-dev \
        g++ \
        gcc \
        libc6-dev \
        make \
        python3-dev \
        xz-utils \
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

# metis 5.1.0 (debian)
FROM toolchain AS metis
WORKDIR /src
# The archive comes through apt, wherever apt's sources are; its checksum is ours.
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=apt-sources,target=/mnt/apt-sources \
    --mount=type=bind,source=archives/metis,target=/mnt/archives \
    if [ -f /mnt/archives/metis_5.1.0.dfsg.orig.tar.xz ]; then cp /mnt/archives/metis_5.1.0.dfsg.orig.tar.xz .; else \
    archive=$(cat /mnt/apt-sources /etc/apt/sources.list /etc/apt/sources.list.d/*.sources 2>/dev/null \
        | sed -n -e 's/^deb \(\[.*\] *\)\{0,1\}\([^ ]*\) .*/\2/p' -e 's/^URIs: *\([^ ]*\).*/\1/p' | head -n 1) \
    && mkdir -p /mnt/lists/partial \
    && echo "deb-src $archive bookworm main" > /mnt/source.list \
    && set -- -o Dir::Etc::SourceList=/mnt/source.list -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists=/mnt/lists -o APT::Sandbox::User=root \
    && apt-get "$@" update \
    && apt-get "$@" source --download-only metis; fi \
    && echo "c50a88b92b01fa3972c5c92cf50117f126c62589b8f793657c7d865c59c23615  metis_5.1.0.dfsg.orig.tar.xz" | sha256sum -c -
# Either archive has GKlib inside. The programs lie outside the loader path, so they are told where their library is.
RUN tar -xf metis_5.1.0.dfsg.orig.tar.xz --one-top-level=metis --strip-components=1 \
    && cd metis \
    && LDFLAGS=-Wl,-rpath,/opt/metis/lib make config shared=1 prefix=/opt/metis \
    && make -j"$(compile-jobs 0.5)" install \
    && strip /opt/metis/bin/* /opt/metis/lib/*.so

# The image. What changes least comes first.
FROM os AS final
ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    VIRTUAL_ENV=/opt/venv \
    PYTHONUNBUFFERED=1 \
    OMPI_ALLOW_RUN_AS_ROOT=1 \
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    CUDA_HOME=/usr/local/cuda \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES="compute,utility" \
    SAGEMAKER_TRAINING_MODULE=sagemaker_pytorch_container.training:main \
    USE_SMDEBUG=0

# python 3.11 (debian)
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    . /mnt/tools/env \
    && uv venv --python /usr/bin/python3 /opt/venv
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,source=requirements/python.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/python,target=/mnt/wheels \
    --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=uv,target=/mnt/uv/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    . /mnt/tools/env \
    && uv pip install --no-deps --require-hashes --find-links /mnt/wheels --requirements /mnt/requirements.txt \
    && rm -f /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json

# ssh 9.2 (debian)
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

# efa 1.17.0 (debian)
# libfabric, libefa and the verbs providers are Debian packages of the os stage.

# openmpi 4.1.4 (debian)
# mpirun and orted are Debian packages of the os stage.

# cuda 13.2 (wheel)
# The libraries stay where pip puts them; /usr/local/cuda is made of links to them, so CUDA is here once.
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,source=requirements/cuda.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/cuda,target=/mnt/wheels \
    --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=uv,target=/mnt/uv/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=components/cuda/link_cuda.py,target=/mnt/link_cuda.py \
    . /mnt/tools/env \
    && uv pip install --no-deps --require-hashes --find-links /mnt/wheels --requirements /mnt/requirements.txt \
    && rm -f /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json \
    && python3 /mnt/link_cuda.py

# nccl 2.30.7 (wheel)
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,source=requirements/nccl.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/nccl,target=/mnt/wheels \
    --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=uv,target=/mnt/uv/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    . /mnt/tools/env \
    && uv pip install --no-deps --require-hashes --find-links /mnt/wheels --requirements /mnt/requirements.txt \
    && rm -f /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json

# pytorch 2.15.0 (wheel)
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,source=requirements/pytorch.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/pytorch,target=/mnt/wheels \
    --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=uv,target=/mnt/uv/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    . /mnt/tools/env \
    && uv pip install --no-deps --require-hashes --find-links /mnt/wheels --requirements /mnt/requirements.txt \
    && rm -f /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json

# torchvision 0.29.2 (wheel)
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,source=requirements/torchvision.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/torchvision,target=/mnt/wheels \
    --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=uv,target=/mnt/uv/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    . /mnt/tools/env \
    && uv pip install --no-deps --require-hashes --find-links /mnt/wheels --requirements /mnt/requirements.txt \
    && rm -f /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json

# rmm 26.10.0 (wheel)
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,source=requirements/rmm.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/rmm,target=/mnt/wheels \
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
# SIGTERM, by which SageMaker stops a job, reaches the script: `train` as the first process would not hear it.
COPY --chmod=755 components/sagemaker-toolkit/training-init /usr/local/bin/training-init
ENTRYPOINT ["/usr/local/bin/training-init"]

# metis 5.1.0 (debian)
COPY --from=metis /opt/metis /opt/metis
RUN echo /opt/metis/lib > /etc/ld.so.conf.d/metis.conf

# The loader learns of every library directory added above.
RUN ldconfig && rm -f /var/cache/ldconfig/aux-cache
WORKDIR /
ARG SOURCE_REVISION=unknown
LABEL org.opencontainers.image.title=pytorch-training \
    org.opencontainers.image.version=2.15.0 \
    io.trainwright.plan=23742b98c78e55ee42afd0e9532ddb52a5129ce59b37f5e4718d887df767686a \
    io.trainwright.framework=pytorch \
    io.trainwright.framework-version=2.15.0 \
    io.trainwright.cuda=13.2 \
    io.trainwright.python=3.11 \
    io.trainwright.base=debian-12 \
    io.trainwright.component.python="3.11 (debian)" \
    io.trainwright.component.ssh="9.2 (debian)" \
    io.trainwright.component.efa="1.17.0 (debian)" \
    io.trainwright.component.openmpi="4.1.4 (debian)" \
    io.trainwright.component.cuda="13.2 (wheel)" \
    io.trainwright.component.nccl="2.30.7 (wheel)" \
    io.trainwright.component.pytorch="2.15.0 (wheel)" \
    io.trainwright.component.torchvision="0.29.2 (wheel)" \
    io.trainwright.component.rmm="26.10.0 (wheel)" \
    io.trainwright.component.mpi4py="4.1.2 (wheel)" \
    io.trainwright.component.sagemaker-toolkit="5.1.4 (wheel)" \
    io.trainwright.component.metis="5.1.0 (debian)" \
    org.opencontainers.image.revision="${SOURCE_REVISION}"
