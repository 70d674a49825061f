# huggingface-pytorch 2.5.1, CUDA 12.4, Python 3.11, on ubuntu-22.04: a SageMaker training image.
# Made by Trainwright from plan 95dc1d0b9aa8; `./invoke render` makes it again. Build it here with
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
#     tools <- os
#     final <- os + tools

# Build arguments, so that a mirror can stand in for the registry: docker build --build-arg BASE_IMAGE=...
ARG BASE_IMAGE=763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:2.5.1-gpu-py311-cu124-ubuntu22.04-sagemaker
FROM ${BASE_IMAGE} AS base

# The distribution's packages of the image itself.
FROM base AS os
ENV LANG=C.UTF-8

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

# The image. What changes least comes first.
FROM os AS final

# ssh 8.9 (base)
# The container holds a key pair of root that everybody has who can pull it, and trusts it. The key stays, as the hosts of
# a job log in by it; from now on it opens nothing but to the addresses of the job's own hosts.
COPY --chmod=755 components/ssh/job-hosts /usr/lib/openssh/
RUN --mount=type=tmpfs,target=/mnt --mount=type=bind,source=components/ssh/sshd_config,target=/mnt/sshd_config \
    rm -f /root/.ssh/authorized_keys /root/.ssh/authorized_keys2 && cp /etc/ssh/sshd_config /mnt/before \
    && cat /mnt/sshd_config /mnt/before > /etc/ssh/sshd_config

# huggingface 4.49.0 (wheel)
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
LABEL org.opencontainers.image.title=huggingface-pytorch-training \
    org.opencontainers.image.version=2.5.1 \
    io.trainwright.plan=95dc1d0b9aa86c4a2bd09cab6a9c4a83f6cd41ede57aabe8248337d8dddc97f1 \
    io.trainwright.framework=huggingface-pytorch \
    io.trainwright.framework-version=2.5.1 \
    io.trainwright.cuda=12.4 \
    io.trainwright.python=3.11 \
    io.trainwright.base=ubuntu-22.04 \
    io.trainwright.component.python="3.11 (base)" \
    io.trainwright.component.ssh="8.9 (base)" \
    io.trainwright.component.efa="1.36.0 (base)" \
    io.trainwright.component.openmpi="4.1.7 (base)" \
    io.trainwright.component.gdrcopy="2.4.2 (base)" \
    io.trainwright.component.cuda="12.4 (base)" \
    io.trainwright.component.nccl="2.23.4 (base)" \
    io.trainwright.component.aws-ofi-nccl="1.12.1 (base)" \
    io.trainwright.component.pytorch="2.5.1 (base)" \
    io.trainwright.component.mpi4py="4 (base)" \
    io.trainwright.component.sagemaker-toolkit="5 (base)" \
    io.trainwright.component.smdistributed-dataparallel="2.6.0 (base)" \
    io.trainwright.component.huggingface="4.49.0 (wheel)" \
    org.opencontainers.image.revision="${SOURCE_REVISION}"
