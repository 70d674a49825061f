# pytorch 2.7.1, CUDA 12.6, Python 3.11, on debian-12: a SageMaker training image.
# Made by Trainwright from plan f3b972f0b638; `./invoke render` makes it again.
# Build it in its context: DOCKER_BUILDKIT=1 docker build .
#
# Secrets, all optional: ca (a CA bundle), uv, pip and netrc (an index and its credentials), apt-sources (a mirror),
# artifacts (the base URL of a mirror of archives).
# What a step needs only while it runs lies under /mnt, and what it writes there is thrown away (rw): none of it is in a layer.
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
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=apt,target=/mnt/apt --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=cache,id=trainwright-apt,target=/mnt/cache,sharing=locked \
    /mnt/apt-install ibverbs-providers libfabric-bin libfabric1 libibverbs1 libopenmpi3 libpython3.11 librdmacm1 openmpi-bin openssh-client \
        openssh-server python3

# uv installs the locked wheels; it stays out of the image.
FROM os AS tools
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=apt,target=/mnt/apt --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=cache,id=trainwright-apt,target=/mnt/cache,sharing=locked \
    /mnt/apt-install python3-venv
RUN --mount=type=bind,source=tools/python,target=/mnt,rw --mount=type=cache,id=trainwright-pip,target=/root/.cache/pip --mount=type=secret,id=ca \
    --mount=type=secret,id=pip --mount=type=secret,id=netrc --mount=type=bind,source=requirements/tools.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/tools,target=/mnt/wheels \
    /usr/bin/python3 -m venv /opt/tools \
    && /mnt/pip install --quiet --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt
COPY tools/python/ /opt/tools/

# Compilers and headers, for the stages below only.
FROM os AS toolchain
ENV SOURCE_DATE_EPOCH=1700000000
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=apt,target=/mnt/apt --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=cache,id=trainwright-apt,target=/mnt/cache,sharing=locked \
    /mnt/apt-install cmake dpkg-dev g++ gcc libc6-dev make python3-dev xz-utils
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

# metis 5.1.0 (debian)
FROM toolchain AS metis
# The archive comes through apt, wherever apt's sources are; its checksum is ours.
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=archives/metis,target=/mnt/archives \
    --mount=type=secret,id=ca,target=/mnt/ca --mount=type=secret,id=apt-sources,target=/mnt/apt-sources \
    /mnt/apt-fetch metis_5.1.0.dfsg.orig.tar.xz c50a88b92b01fa3972c5c92cf50117f126c62589b8f793657c7d865c59c23615 \
        source metis bookworm main
# Either archive has GKlib inside. The programs lie outside the loader path, so they are told where their library is.
RUN unpack metis_5.1.0.dfsg.orig.tar.xz && cd metis \
    && LDFLAGS=-Wl,-rpath,/opt/metis/lib make config shared=1 prefix=/opt/metis \
    && make -j"$(compile-jobs 0.5)" install \
    && strip /opt/metis/bin/* /opt/metis/lib/*.so

# The image. What changes least comes first.
FROM os AS final
ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin VIRTUAL_ENV=/opt/venv PYTHONUNBUFFERED=1 \
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 CUDA_HOME=/usr/local/cuda NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES="compute,utility" SAGEMAKER_TRAINING_MODULE=sagemaker_pytorch_container.training:main USE_SMDEBUG=0

# python 3.11 (debian)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw /mnt/uv venv --python /usr/bin/python3 /opt/venv
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/python.txt,target=/mnt/requirements.txt --mount=type=bind,source=wheels/python,target=/mnt/wheels \
    --mount=type=secret,id=ca,target=/mnt/ca --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt

# ssh 9.2 (debian)
# sshd without host keys hangs a job in silence, and keys in a layer would be everybody's: the wrapper makes them when
# the server starts. It serves both contracts, as it needs no ENTRYPOINT.
# No key pair of root either: each host makes one when it starts, and sshd lets in the addresses of the job's hosts.
RUN --mount=type=bind,source=components/ssh,target=/mnt,rw sh /mnt/install.sh sagemaker.conf

# efa 1.17.0 (debian)
# libfabric, libefa and the verbs providers are Debian packages of the os stage.

# openmpi 4.1.4 (debian)
# mpirun and orted are Debian packages of the os stage.

# cuda 12.6 (wheel)
# The libraries stay where pip puts them; /usr/local/cuda is made of links to them, so CUDA is here once.
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/cuda.txt,target=/mnt/requirements.txt --mount=type=bind,source=wheels/cuda,target=/mnt/wheels \
    --mount=type=secret,id=ca,target=/mnt/ca --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=components/cuda/link_cuda.py,target=/mnt/link_cuda.py \
    /mnt/uv pip install --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt \
    && python3 /mnt/link_cuda.py

# nccl 2.26.2 (wheel)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/nccl.txt,target=/mnt/requirements.txt --mount=type=bind,source=wheels/nccl,target=/mnt/wheels \
    --mount=type=secret,id=ca,target=/mnt/ca --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt

# pytorch 2.7.1 (wheel)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/pytorch.txt,target=/mnt/requirements.txt --mount=type=bind,source=wheels/pytorch,target=/mnt/wheels \
    --mount=type=secret,id=ca,target=/mnt/ca --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt

# rmm 26.10.0 (wheel)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/rmm.txt,target=/mnt/requirements.txt --mount=type=bind,source=wheels/rmm,target=/mnt/wheels \
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
# SIGTERM, by which SageMaker stops a job, reaches the script: `train` as the first process would not hear it.
COPY --chmod=755 components/sagemaker-toolkit/training-init /usr/local/bin/training-init
ENTRYPOINT ["/usr/local/bin/training-init"]

# metis 5.1.0 (debian)
COPY --from=metis /opt/metis /opt/metis
RUN echo /opt/metis/lib > /etc/ld.so.conf.d/metis.conf

# huggingface 5.13.1 (wheel)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/huggingface.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/huggingface,target=/mnt/wheels --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt

# The loader learns of every library directory added above.
RUN ldconfig && rm -f /var/cache/ldconfig/aux-cache
WORKDIR /
ARG SOURCE_REVISION=unknown
LABEL org.opencontainers.image.title=pytorch-training org.opencontainers.image.version=2.7.1 \
    io.trainwright.plan=f3b972f0b63846eccf011fa0b7f7fb37658f040c7c34cc9ea973cb923fc84045 io.trainwright.framework=pytorch \
    io.trainwright.framework-version=2.7.1 io.trainwright.cuda=12.6 io.trainwright.python=3.11 io.trainwright.base=debian-12 \
    io.trainwright.component.python="3.11 (debian)" io.trainwright.component.ssh="9.2 (debian)" io.trainwright.component.efa="1.17.0 (debian)" \
    io.trainwright.component.openmpi="4.1.4 (debian)" io.trainwright.component.cuda="12.6 (wheel)" io.trainwright.component.nccl="2.26.2 (wheel)" \
    io.trainwright.component.pytorch="2.7.1 (wheel)" io.trainwright.component.rmm="26.10.0 (wheel)" io.trainwright.component.mpi4py="4.1.2 (wheel)" \
    io.trainwright.component.sagemaker-toolkit="5.1.4 (wheel)" io.trainwright.component.metis="5.1.0 (debian)" \
    io.trainwright.component.huggingface="5.13.1 (wheel)" \
    org.opencontainers.image.revision="${SOURCE_REVISION}"
