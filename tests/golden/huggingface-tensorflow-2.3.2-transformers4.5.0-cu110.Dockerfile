# huggingface-tensorflow 2.3.2, CUDA 11.0, Python 3.7, on ubuntu-18.04: a SageMaker training image.
# Made by Trainwright from plan 6f9b29e52f23; `./invoke render` makes it again.
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
ARG BASE_IMAGE=763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.3.2-gpu-py37-cu110-ubuntu18.04
FROM ${BASE_IMAGE} AS base

# The distribution's packages of the image itself.
FROM base AS os
ENV LANG=C.UTF-8

# uv installs the locked wheels; it stays out of the image.
# uv has no Python code of its own and takes this Python, only its metadata asks for a newer one.
FROM os AS tools

RUN --mount=type=bind,source=tools/python,target=/mnt,rw --mount=type=cache,id=trainwright-pip,target=/root/.cache/pip --mount=type=secret,id=ca \
    --mount=type=secret,id=pip --mount=type=secret,id=netrc --mount=type=bind,source=requirements/tools.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/tools,target=/mnt/wheels \
    { python3 -m venv --clear /opt/tools > /mnt/said 2>&1 || python3 -m venv --clear --without-pip /opt/tools; } \
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
LABEL org.opencontainers.image.title=huggingface-tensorflow-training org.opencontainers.image.version=2.3.2 \
    io.trainwright.plan=6f9b29e52f231df9c4070d6dfd372e845f962a397c3d4e0916463e3058e85b3e io.trainwright.framework=huggingface-tensorflow \
    io.trainwright.framework-version=2.3.2 io.trainwright.cuda=11.0 io.trainwright.python=3.7 io.trainwright.base=ubuntu-18.04 \
    io.trainwright.component.python="3.7 (base)" io.trainwright.component.ssh="7.6 (base)" io.trainwright.component.openmpi="4.0.4 (base)" \
    io.trainwright.component.cuda="11.0 (base)" io.trainwright.component.tensorflow="2.3.2 (base)" io.trainwright.component.mpi4py="3.0.3 (base)" \
    io.trainwright.component.sagemaker-toolkit="4 (base)" io.trainwright.component.huggingface="4.5.0 (wheel)" \
    org.opencontainers.image.revision="${SOURCE_REVISION}"
