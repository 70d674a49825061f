# tensorflow 2.18.0, CUDA 12.5, Python 3.10, on ubuntu-22.04: a SageMaker training image.
# Made by Trainwright from plan 65a4646bf3f1; `./invoke render` makes it again.
# Build it in its context: DOCKER_BUILDKIT=1 docker build .
#
# Secrets, all optional: ca (a CA bundle), uv, pip and netrc (an index and its credentials), apt-sources (a mirror),
# artifacts (the base URL of a mirror of archives).
# What a step needs only while it runs lies under /mnt, and what it writes there is thrown away (rw): none of it is in a layer.
#
# Stages, those in one row in parallel:
#
#     base <- ${BASE_IMAGE}   toolchain <- ${BUILD_IMAGE}
#     os <- base   efa-archive <- toolchain   openmpi <- toolchain
#     tools <- os   efa <- toolchain + efa-archive
#     wheels <- toolchain + tools   aws-ofi-nccl <- efa + openmpi
#     final <- os + tools + efa-archive + openmpi + aws-ofi-nccl + wheels

# Build arguments, so that a mirror can stand in for the registry: docker build --build-arg BASE_IMAGE=...
ARG BASE_IMAGE=nvidia/cuda:12.5.1-base-ubuntu22.04
ARG BUILD_IMAGE=nvidia/cuda:12.5.1-devel-ubuntu22.04
FROM ${BASE_IMAGE} AS base

# The distribution's packages of the image itself.
FROM base AS os
ENV LANG=C.UTF-8
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=apt,target=/mnt/apt --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=cache,id=trainwright-apt,target=/mnt/cache,sharing=locked \
    /mnt/apt-install ca-certificates curl hwloc-nox libpython3.10 openssh-client openssh-server python3-distutils python3.10

# uv installs the locked wheels; it stays out of the image.
FROM os AS tools
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=apt,target=/mnt/apt --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=cache,id=trainwright-apt,target=/mnt/cache,sharing=locked \
    /mnt/apt-install python3.10-venv
RUN --mount=type=bind,source=tools/python,target=/mnt,rw --mount=type=cache,id=trainwright-pip,target=/root/.cache/pip --mount=type=secret,id=ca \
    --mount=type=secret,id=pip --mount=type=secret,id=netrc --mount=type=bind,source=requirements/tools.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/tools,target=/mnt/wheels \
    /usr/bin/python3.10 -m venv /opt/tools \
    && /mnt/pip install --quiet --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt
COPY tools/python/ /opt/tools/

# Compilers and headers, for the stages below only.
FROM ${BUILD_IMAGE} AS toolchain
ENV SOURCE_DATE_EPOCH=1700000000
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=apt,target=/mnt/apt --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=cache,id=trainwright-apt,target=/mnt/cache,sharing=locked \
    /mnt/apt-install autoconf automake bzip2 ca-certificates curl g++ gcc hwloc-nox libc6-dev libhwloc-dev libpython3.10 libtool make \
        openssh-client openssh-server perl python3-distutils python3.10 python3.10-dev
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

# efa 1.37.0 (aws)
FROM toolchain AS efa-archive
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/efa,target=/mnt \
    fetch aws-efa-installer-1.37.0.tar.gz 2584fc3c8bb99f29b3285e275747ff09d67c18e162c2a652e36c976b72154bfb \
        'https://efa-installer.amazonaws.com/aws-efa-installer-1.37.0.tar.gz' \
        'https://s3-us-west-2.amazonaws.com/aws-efa-installer/aws-efa-installer-1.37.0.tar.gz'
RUN unpack aws-efa-installer-1.37.0.tar.gz
COPY components/efa/install.sh aws-efa-installer/
# Headers, for what is compiled against libfabric.
FROM toolchain AS efa
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=apt,target=/mnt/apt --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=cache,id=trainwright-apt,target=/mnt/cache,sharing=locked \
    --mount=type=bind,from=efa-archive,source=/src/aws-efa-installer,target=/mnt/efa,rw \
    /mnt/apt-run sh /mnt/efa/install.sh '' -y --skip-kmod --skip-limit-conf --no-verify

# openmpi 4.1.7 (source)
FROM toolchain AS openmpi
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/openmpi,target=/mnt \
    fetch openmpi-4.1.7.tar.bz2 54a33cb7ad81ff0976f15a6cc8003c3922f0f3d8ceed14e1813ef3603f22cd34 \
        'https://download.open-mpi.org/release/open-mpi/v4.1/openmpi-4.1.7.tar.bz2'
# orted is found on the other hosts by the prefix, as sshd sets no PATH. hwloc, libevent and PMIX are those inside.
RUN unpack openmpi-4.1.7.tar.bz2 && cd openmpi \
    && ./configure --prefix=/opt/amazon/openmpi --enable-orterun-prefix-by-default \
        --with-hwloc=internal --with-libevent=internal --with-pmix=internal --without-verbs \
        --disable-static --disable-mpi-fortran --disable-oshmem --disable-man-pages \
    && make -j"$(compile-jobs 1.0)" install \
    && find /opt/amazon/openmpi -name '*.la' -delete && find /opt/amazon/openmpi -type f -name '*.so*' -exec strip --strip-unneeded {} +

# aws-ofi-nccl 1.13.2 (source)
FROM efa AS aws-ofi-nccl
COPY --from=openmpi /opt/amazon/openmpi /opt/amazon/openmpi
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/aws-ofi-nccl,target=/mnt \
    fetch aws-ofi-nccl-1.13.2.tar.gz - 'https://github.com/aws/aws-ofi-nccl/archive/v1.13.2-aws.tar.gz'
# What git holds has no configure yet, an archive of a release may. The programs under bin test the plugin with MPI.
RUN unpack aws-ofi-nccl-1.13.2.tar.gz && cd aws-ofi-nccl \
    && if [ ! -x configure ]; then sh ./autogen.sh; fi \
    && ./configure --prefix=/opt/amazon/ofi-nccl --with-libfabric=/opt/amazon/efa --with-mpi=/opt/amazon/openmpi \
        --with-cuda=/usr/local/cuda --disable-static --enable-platform-aws --disable-tests \
    && make -j"$(compile-jobs 1.0)" install \
    && rm -rf /opt/amazon/ofi-nccl/bin && find /opt/amazon/ofi-nccl -name '*.la' -delete

# The image. What changes least comes first.
FROM os AS final
ENV PATH=/opt/venv/bin:/opt/amazon/efa/bin:/opt/amazon/openmpi/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    VIRTUAL_ENV=/opt/venv PYTHONUNBUFFERED=1 RDMAV_FORK_SAFE=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 CUDA_HOME=/usr/local/cuda \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES="compute,utility" LD_LIBRARY_PATH="" \
    SAGEMAKER_TRAINING_MODULE=sagemaker_tensorflow_container.training:main USE_SMDEBUG=0

# python 3.10 (ubuntu)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw /mnt/uv venv --python /usr/bin/python3.10 /opt/venv
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/python.txt,target=/mnt/requirements.txt --mount=type=bind,source=wheels/python,target=/mnt/wheels \
    --mount=type=secret,id=ca,target=/mnt/ca --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt

# ssh 8.9 (ubuntu)
# sshd without host keys hangs a job in silence, and keys in a layer would be everybody's: the wrapper makes them when
# the server starts. It serves both contracts, as it needs no ENTRYPOINT.
# No key pair of root either: each host makes one when it starts, and sshd lets in the addresses of the job's hosts.
RUN --mount=type=bind,source=components/ssh,target=/mnt,rw sh /mnt/install.sh sagemaker.conf

# efa 1.37.0 (aws)
# The installer brings packages of its own and has apt fetch what these need. What the plan does not name of it goes again
# in the same layer.
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=apt,target=/mnt/apt --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=cache,id=trainwright-apt,target=/mnt/cache,sharing=locked \
    --mount=type=bind,from=efa-archive,source=/src/aws-efa-installer,target=/mnt/efa,rw \
    /mnt/apt-run sh /mnt/efa/install.sh '' -y --skip-kmod --skip-limit-conf --no-verify

# openmpi 4.1.7 (source)
COPY --from=openmpi /opt/amazon/openmpi /opt/amazon/openmpi
# Where ranks go is up to the job; the loader finds the libraries in whichever of the two folders they are.
RUN --mount=type=bind,source=components/openmpi,target=/mnt sh /mnt/mca_params.sh /opt/amazon/openmpi \
    && find /opt/amazon/openmpi -maxdepth 1 \( -name lib -o -name lib64 \) > /etc/ld.so.conf.d/openmpi.conf

# cuda 12.5 (nvidia)
# The base image holds CUDA, and a driver for hosts with an older one, which must not shadow a newer driver of the host.
# When a container starts, cuda-compat decides: as ENTRYPOINT or called by it, or where that is another, in the first
# bash (BASH_ENV).
COPY --chmod=755 components/cuda/cuda-compat /usr/local/bin/cuda-compat
COPY components/cuda/cuda-compat.bash /usr/local/lib/cuda-compat.bash
RUN --mount=type=bind,source=components/cuda,target=/mnt sh /mnt/adopt_base.sh

# nccl 2.23.4 (wheel)
# One NCCL in the image: that of the base goes.
RUN --mount=type=bind,source=components/nccl,target=/mnt sh /mnt/remove_base.sh
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/nccl.txt,target=/mnt/requirements.txt --mount=type=bind,source=wheels/nccl,target=/mnt/wheels \
    --mount=type=secret,id=ca,target=/mnt/ca --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt

# aws-ofi-nccl 1.13.2 (source)
COPY --from=aws-ofi-nccl /opt/amazon/ofi-nccl /opt/amazon/ofi-nccl
# NCCL looks for libnccl-net.so, which newer plugins name after their network.
RUN cd /opt/amazon/ofi-nccl/lib \
    && if [ ! -e libnccl-net.so ]; then ln -s libnccl-net-ofi.so libnccl-net.so; fi \
    && echo "$PWD" > /etc/ld.so.conf.d/aws-ofi-nccl.conf

# tensorflow 2.18.0 (wheel)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/tensorflow.txt,target=/mnt/requirements.txt --mount=type=bind,source=wheels/tensorflow,target=/mnt/wheels \
    --mount=type=secret,id=ca,target=/mnt/ca --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt

# mpi4py 4.1.2 (wheel)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/mpi4py.txt,target=/mnt/requirements.txt --mount=type=bind,source=wheels/mpi4py,target=/mnt/wheels \
    --mount=type=secret,id=ca,target=/mnt/ca --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt

# sagemaker-toolkit 5.1.4 (wheel)
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

# The loader learns of every library directory added above.
RUN ldconfig && rm -f /var/cache/ldconfig/aux-cache
ENV BASH_ENV=/usr/local/lib/cuda-compat.bash

WORKDIR /
ARG SOURCE_REVISION=unknown
LABEL org.opencontainers.image.title=tensorflow-training org.opencontainers.image.version=2.18.0 \
    io.trainwright.plan=65a4646bf3f1101a1d33c007a9937812c2ec191ba949c975d2cb38ec562124d7 io.trainwright.framework=tensorflow \
    io.trainwright.framework-version=2.18.0 io.trainwright.cuda=12.5 io.trainwright.python=3.10 io.trainwright.base=ubuntu-22.04 \
    io.trainwright.component.python="3.10 (ubuntu)" io.trainwright.component.ssh="8.9 (ubuntu)" io.trainwright.component.efa="1.37.0 (aws)" \
    io.trainwright.component.openmpi="4.1.7 (source)" io.trainwright.component.cuda="12.5 (nvidia)" io.trainwright.component.nccl="2.23.4 (wheel)" \
    io.trainwright.component.aws-ofi-nccl="1.13.2 (source)" io.trainwright.component.tensorflow="2.18.0 (wheel)" \
    io.trainwright.component.mpi4py="4.1.2 (wheel)" io.trainwright.component.sagemaker-toolkit="5.1.4 (wheel)" \
    org.opencontainers.image.revision="${SOURCE_REVISION}"
