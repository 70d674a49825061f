# huggingface-pytorch-trcomp 1.11.0, CUDA 11.3, Python 3.8, on ubuntu-20.04: a SageMaker training image.
# Made by Trainwright from plan a18b5af8be96; `./invoke render` makes it again. Build it here with
#
#     DOCKER_BUILDKIT=1 docker build .
#
# Secrets, all optional: ca (a CA bundle), uv, pip and netrc (an index and its credentials), apt-sources (a mirror),
# artifacts (the base URL of a mirror of archives).
#
# Stages, those in one row in parallel:
#
#     base <- ${BASE_IMAGE}
#     os <- base
#     tools <- os   toolchain <- os
#     torch-xla <- toolchain
#     final <- os + tools + torch-xla

# Build arguments, so that a mirror can stand in for the registry: docker build --build-arg BASE_IMAGE=...
ARG BASE_IMAGE=763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:1.11.0-gpu-py38-cu113-ubuntu20.04-sagemaker
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
        libomp5 \
    && rm -rf /etc/ssh/ssh_host_* /var/log/*.log /var/log/apt /var/cache/ldconfig/aux-cache \
        /var/cache/debconf/*-old /var/lib/dpkg/*-old

# uv installs the locked wheels; it stays out of the image.
FROM os AS tools

RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=pip,target=/mnt/pip.conf --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=requirements/tools.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/tools,target=/mnt/wheels \
    --mount=type=cache,id=trainwright-pip,target=/root/.cache/pip \
    if python3 -m venv --clear /opt/tools > /mnt/said 2>&1; then pip=/opt/tools/bin/pip; \
    else python3 -m venv --clear --without-pip /opt/tools && pip="python3 -m pip --python /opt/tools/bin/python3"; fi \
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
    rm -f /etc/apt/sources.list.d/cuda*.list /etc/apt/sources.list.d/nvidia-ml*.list \
    && if [ -e /mnt/apt-sources ]; then \
        set -- -o Dir::Etc::SourceList=/mnt/apt-sources -o Dir::Etc::SourceParts=/dev/null; fi \
    && if [ -e /mnt/apt/preferences ]; then set -- "$@" -o Dir::Etc::Preferences=/mnt/apt/preferences; fi \
    && apt-get "$@" update \
    && DEBIAN_FRONTEND=noninteractive apt-get "$@" install -y --no-install-recommends \
        ca-certificates \
        curl \
    && rm -rf /etc/ssh/ssh_host_* /var/log/*.log /var/log/apt /var/cache/ldconfig/aux-cache \
        /var/cache/debconf/*-old /var/lib/dpkg/*-old
COPY tools/compile-jobs /usr/local/bin/compile-jobs

# torch-xla 1.11.0 (aws)
FROM toolchain AS torch-xla
WORKDIR /src
# Nobody publishes a checksum of this file: `./invoke lock` records the one of the first download.
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/torch-xla,target=/mnt/archives \
    sh /mnt/fetch torch_xla-1.11.0-cp38-cp38-linux_x86_64.whl - \
        'https://sm-training-comp-pytorch-binaries.s3.us-west-2.amazonaws.com/bdd09cad-152b-42bd-993c-16e49d7af027/20220819-180620/54da28ad4c33c2f259969f74364149ecc58672e0/torch_xla-1.11.0-cp38-cp38-linux_x86_64.whl'
# Nobody publishes a checksum of this file: `./invoke lock` records the one of the first download.
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/torch-xla,target=/mnt/archives \
    sh /mnt/fetch torch-1.11.0+cu113-cp38-cp38-linux_x86_64.whl - \
        'https://sm-training-comp-pytorch-binaries.s3.us-west-2.amazonaws.com/bdd09cad-152b-42bd-993c-16e49d7af027/20220819-180620/54da28ad4c33c2f259969f74364149ecc58672e0/torch-1.11.0%2Bcu113-cp38-cp38-linux_x86_64.whl'
# Nobody publishes a checksum of this file: `./invoke lock` records the one of the first download.
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/torch-xla,target=/mnt/archives \
    sh /mnt/fetch torchvision-0.12.0a0+9b5a3fe-cp38-cp38-linux_x86_64.whl - \
        'https://sm-training-comp-pytorch-binaries.s3.us-west-2.amazonaws.com/bdd09cad-152b-42bd-993c-16e49d7af027/20220819-180620/54da28ad4c33c2f259969f74364149ecc58672e0/torchvision-0.12.0a0%2B9b5a3fe-cp38-cp38-linux_x86_64.whl'
# Nobody publishes a checksum of this file: `./invoke lock` records the one of the first download.
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/torch-xla,target=/mnt/archives \
    sh /mnt/fetch torchaudio-0.11.0+6297e97-cp38-cp38-linux_x86_64.whl - \
        'https://sm-training-comp-pytorch-binaries.s3.us-west-2.amazonaws.com/bdd09cad-152b-42bd-993c-16e49d7af027/20220819-180620/54da28ad4c33c2f259969f74364149ecc58672e0/torchaudio-0.11.0%2B6297e97-cp38-cp38-linux_x86_64.whl'
# Nobody publishes a checksum of this file: `./invoke lock` records the one of the first download.
RUN --mount=type=tmpfs,target=/mnt --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=artifacts,target=/mnt/artifacts --mount=type=secret,id=netrc,target=/mnt/netrc \
    --mount=type=bind,source=tools/fetch,target=/mnt/fetch \
    --mount=type=bind,source=archives/torch-xla,target=/mnt/archives \
    sh /mnt/fetch transformers-4.21.1-py3-none-any.whl - \
        'https://sm-training-comp-pytorch-binaries.s3.us-west-2.amazonaws.com/3464575b-920a-48e6-b964-4d4c5fe2acae/20220816-021125/7780d990d11d9552e913cae06c7315fa8545648b/transformers-4.21.1-py3-none-any.whl'

# The image. What changes least comes first.
FROM os AS final
ENV USE_SMDEBUG=0

# ssh 8.2 (base)
# The container holds a key pair of root that everybody has who can pull it, and trusts it. The key stays, as the hosts of
# a job log in by it; from now on it opens nothing but to the addresses of the job's own hosts.
COPY --chmod=755 components/ssh/job-hosts /usr/lib/openssh/
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,source=components/ssh/sshd_config,target=/mnt/sshd_config \
    rm -f /root/.ssh/authorized_keys /root/.ssh/authorized_keys2 && cp /etc/ssh/sshd_config /mnt/before \
    && cat /mnt/sshd_config /mnt/before > /etc/ssh/sshd_config

# torch-xla 1.11.0 (aws)
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,from=torch-xla,source=/src,target=/mnt/wheels \
    . /mnt/tools/env \
    && uv pip install --python "$(command -v python3)" --break-system-packages --reinstall --no-deps --no-index --no-cache /mnt/wheels/*.whl \
    && rm -f /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json
# The compiler asks for MKL by the names of its newer releases.
RUN for library in "$(python3 -c 'import sys; print(sys.prefix)')"/lib/libmkl_*.so; do \
        if [ -e "$library" ] && [ ! -e "$library.1" ]; then ln -s "${library##*/}" "$library.1"; fi; done
# Every Python process says how many GPUs there are, where nobody has said so: local mode does not.
RUN --mount=type=tmpfs,target=/mnt \
    --mount=type=bind,source=components/torch-xla/gpu_num_devices.py,target=/mnt/gpu_num_devices.py \
    folder=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])') \
    && install -m 644 /mnt/gpu_num_devices.py "$folder" \
    && echo 'import gpu_num_devices; gpu_num_devices.export()' > "$folder/gpu_num_devices.pth"

# huggingface 4.21.1 (wheel)
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,from=tools,source=/opt/tools,target=/mnt/tools \
    --mount=type=bind,source=requirements/huggingface.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/huggingface,target=/mnt/wheels \
    --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt --mount=type=secret,id=uv,target=/mnt/uv/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    . /mnt/tools/env \
    && uv pip install --python "$(command -v python3)" --break-system-packages --no-deps --require-hashes --find-links /mnt/wheels --requirements /mnt/requirements.txt \
    && rm -f /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json

# The loader learns of every library directory added above.
RUN ldconfig && rm -f /var/cache/ldconfig/aux-cache
WORKDIR /
ARG SOURCE_REVISION=unknown
LABEL org.opencontainers.image.title=huggingface-pytorch-trcomp-training \
    org.opencontainers.image.version=1.11.0 \
    io.trainwright.plan=a18b5af8be96621065940acc7b3c470736d82c523bb087d89ff43ce1b1e49d71 \
    io.trainwright.framework=huggingface-pytorch-trcomp \
    io.trainwright.framework-version=1.11.0 \
    io.trainwright.cuda=11.3 \
    io.trainwright.python=3.8 \
    io.trainwright.base=ubuntu-20.04 \
    io.trainwright.component.python="3.8 (base)" \
    io.trainwright.component.ssh="8.2 (base)" \
    io.trainwright.component.openmpi="4.1.1 (base)" \
    io.trainwright.component.cuda="11.3 (base)" \
    io.trainwright.component.pytorch="1.11.0 (base)" \
    io.trainwright.component.torch-xla="1.11.0 (aws)" \
    io.trainwright.component.mpi4py="3.1.3 (base)" \
    io.trainwright.component.sagemaker-toolkit="4 (base)" \
    io.trainwright.component.huggingface="4.21.1 (wheel)" \
    org.opencontainers.image.revision="${SOURCE_REVISION}"
