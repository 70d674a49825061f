# pytorch 1.10.2, CUDA 11.3, Python 3.8, on ubuntu-20.04: a SageMaker training image.
# Made by Trainwright; `./invoke render --output DIR` writes it with its build context. Build it there with
# DOCKER_BUILDKIT=1 docker build .
#
# Secrets, all optional: ca (a CA bundle), uv, pip and netrc (an index and its credentials), apt-sources (a mirror),
# artifacts (the base URL of a mirror of archives).
# What a step needs only while it runs is mounted under /mnt, and what it writes there (rw) is discarded: no layer contains it.
#
# Stages, those in one row in parallel:
#
#     base <- ${BASE_IMAGE}
#     os <- base
#     tools <- os
#     final <- os + tools

# Build arguments, so that a mirror can replace the registry: docker build --build-arg BASE_IMAGE=...
ARG BASE_IMAGE=763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:1.10.2-gpu-py38-cu113-ubuntu20.04-sagemaker
FROM ${BASE_IMAGE} AS base

# The distribution packages of the image itself.
FROM base AS os
ENV LANG=C.UTF-8

# uv installs the locked wheels; it is not part of the image.
FROM os AS tools

RUN --mount=type=bind,source=tools/python,target=/mnt,rw --mount=type=cache,id=trainwright-pip,target=/root/.cache/pip --mount=type=secret,id=ca \
    --mount=type=secret,id=pip --mount=type=secret,id=netrc --mount=type=bind,source=requirements/tools.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/tools,target=/mnt/wheels \
    { python3 -m venv --clear /opt/tools > /mnt/said 2>&1 || python3 -m venv --clear --without-pip /opt/tools; } \
    && /mnt/pip install --quiet --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt
COPY tools/python/ /opt/tools/

# The image. What changes least comes first.
FROM os AS final

# ssh (base)
# The container contains a key pair of root that everybody who can pull it has, and trusts it. The key stays, as the hosts
# of a job log in with it, but from now on only from the addresses of the job's own hosts.
COPY --chmod=755 components/ssh/job-hosts /usr/lib/openssh/
RUN --mount=type=bind,source=components/ssh,target=/mnt,rw --mount=type=bind,source=tools/build/settle-step,target=/mnt/settle-step \
    rm -f /root/.ssh/authorized_keys /root/.ssh/authorized_keys2 \
    && cat /etc/ssh/sshd_config >> /mnt/sshd_config && cat /mnt/sshd_config > /etc/ssh/sshd_config \
    && /mnt/settle-step

# The loader gets to know all library directories added above. What a job installs when it starts may add to the
# packages of the image, but not change them; docs/images.md has the way out.
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=bind,source=tools/build/settle-step,target=/mnt/settle-step \
    ldconfig && rm -f /var/cache/ldconfig/aux-cache && mkdir -p /etc/trainwright \
    && /mnt/uv pip list --python "$(command -v python3)" --format freeze > /mnt/packages \
    && sed -E '/^(pip|setuptools|wheel)==/d' /mnt/packages > /etc/trainwright/constraints.txt \
    && /mnt/settle-step
ENV PIP_CONSTRAINT=/etc/trainwright/constraints.txt \
    UV_CONSTRAINT=/etc/trainwright/constraints.txt

WORKDIR /
ARG SOURCE_REVISION=unknown
LABEL org.opencontainers.image.title=pytorch-training org.opencontainers.image.version=1.10.2 io.trainwright.framework=pytorch \
    io.trainwright.framework-version=1.10.2 io.trainwright.cuda=11.3 io.trainwright.python=3.8 io.trainwright.base=ubuntu-20.04 \
    io.trainwright.component.python="3.8 (base)" io.trainwright.component.cuda="11.3 (base)" io.trainwright.component.pytorch="1.10.2 (base)" \
    org.opencontainers.image.revision="${SOURCE_REVISION}"
