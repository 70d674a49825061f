# huggingface-pytorch 1.6.0, CUDA 11.0, Python 3.6, on ubuntu-18.04: a SageMaker training image.
# Made by Trainwright from plan 6a4c47d95912; `./invoke render` makes it again.
# Build it in its context: DOCKER_BUILDKIT=1 docker build .
#
# Secrets, all optional: ca (a CA bundle), uv, pip and netrc (an index and its credentials), apt-sources (a mirror),
# artifacts (the base URL of a mirror of archives).
# What a step needs only while it runs lies under /mnt, and what it writes there is thrown away (rw): none of it is in a layer.
#
# Stages, those in one row in parallel:
#
#     base <- ${BASE_IMAGE}
#     os <- base
#     tools <- os
#     final <- os + tools

# Build arguments, so that a mirror can stand in for the registry: docker build --build-arg BASE_IMAGE=...
ARG BASE_IMAGE=763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:1.6.0-gpu-py36-cu110-ubuntu18.04
FROM ${BASE_IMAGE} AS base

# The distribution's packages of the image itself.
FROM base AS os
ENV LANG=C.UTF-8

# uv installs the locked wheels; it stays out of the image.
# The pip that Python brings knows no wheels of today: pip first.
# uv has no Python code of its own and takes this Python, only its metadata asks for a newer one.
FROM os AS tools

RUN --mount=type=bind,source=tools/python,target=/mnt,rw --mount=type=cache,id=trainwright-pip,target=/root/.cache/pip --mount=type=secret,id=ca \
    --mount=type=secret,id=pip --mount=type=secret,id=netrc --mount=type=bind,source=requirements/tools.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/tools,target=/mnt/wheels \
    { python3 -m venv --clear /opt/tools > /mnt/said 2>&1 || python3 -m venv --clear --without-pip /opt/tools; } \
    && grep '^pip=' /mnt/requirements.txt > /mnt/pip.txt \
    && /mnt/pip install --quiet --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/pip.txt \
    && /mnt/pip install --quiet --no-deps --require-hashes --ignore-requires-python --find-links /mnt/wheels -r /mnt/requirements.txt
COPY tools/python/ /opt/tools/

# The image. What changes least comes first.
FROM os AS final

# ssh 7.6 (base)
# The container holds a key pair of root that everybody has who can pull it, and trusts it. The key stays, as the hosts of
# a job log in by it; from now on it opens nothing but to the addresses of the job's own hosts.
COPY --chmod=755 components/ssh/job-hosts /usr/lib/openssh/
RUN --mount=type=bind,source=components/ssh,target=/mnt,rw \
    rm -f /root/.ssh/authorized_keys /root/.ssh/authorized_keys2 \
    && cat /etc/ssh/sshd_config >> /mnt/sshd_config && cat /mnt/sshd_config > /etc/ssh/sshd_config

# huggingface 4.5.0 (wheel)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/huggingface.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/huggingface,target=/mnt/wheels --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --python "$(command -v python3)" --break-system-packages --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt

# The loader learns of every library directory added above.
RUN ldconfig && rm -f /var/cache/ldconfig/aux-cache
WORKDIR /
ARG SOURCE_REVISION=unknown
LABEL org.opencontainers.image.title=huggingface-pytorch-training org.opencontainers.image.version=1.6.0 \
    io.trainwright.plan=6a4c47d95912b76bddb65426fb27212ff82801eb1263a6692ec3e708265d5ee9 io.trainwright.framework=huggingface-pytorch \
    io.trainwright.framework-version=1.6.0 io.trainwright.cuda=11.0 io.trainwright.python=3.6 io.trainwright.base=ubuntu-18.04 \
    io.trainwright.component.python="3.6 (base)" io.trainwright.component.ssh="7.6 (base)" io.trainwright.component.openmpi="4.0.1 (base)" \
    io.trainwright.component.cuda="11.0 (base)" io.trainwright.component.nccl="2.7.8 (base)" io.trainwright.component.pytorch="1.6.0 (base)" \
    io.trainwright.component.boost="1.73.0 (base)" io.trainwright.component.rmm="0.15.0 (base)" io.trainwright.component.mpi4py="3.0.3 (base)" \
    io.trainwright.component.sagemaker-toolkit="3 (base)" io.trainwright.component.metis="5.1.0 (base)" \
    io.trainwright.component.smdistributed-dataparallel="1.0.0 (base)" io.trainwright.component.smdistributed-modelparallel="1.0.0 (base)" \
    io.trainwright.component.huggingface="4.5.0 (wheel)" \
    org.opencontainers.image.revision="${SOURCE_REVISION}"
