# huggingface-pytorch-trcomp 1.11.0, CUDA 11.3, Python 3.8, on ubuntu-20.04: a SageMaker training image.
# Made by Trainwright from plan b9cdd8c70f70; `./invoke render` makes it again.
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
#     tools <- os   toolchain <- os
#     torch-xla <- toolchain
#     final <- os + tools + torch-xla

# Build arguments, so that a mirror can stand in for the registry: docker build --build-arg BASE_IMAGE=...
ARG BASE_IMAGE=763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:1.11.0-gpu-py38-cu113-ubuntu20.04-sagemaker
FROM ${BASE_IMAGE} AS base

# The distribution's packages of the image itself.
FROM base AS os
ENV LANG=C.UTF-8
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=apt,target=/mnt/apt --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=cache,id=trainwright-apt,target=/mnt/cache,sharing=locked \
    /mnt/apt-install libomp5

# uv installs the locked wheels; it stays out of the image.
FROM os AS tools

RUN --mount=type=bind,source=tools/python,target=/mnt,rw --mount=type=cache,id=trainwright-pip,target=/root/.cache/pip --mount=type=secret,id=ca \
    --mount=type=secret,id=pip --mount=type=secret,id=netrc --mount=type=bind,source=requirements/tools.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/tools,target=/mnt/wheels \
    { python3 -m venv --clear /opt/tools > /mnt/said 2>&1 || python3 -m venv --clear --without-pip /opt/tools; } \
    && /mnt/pip install --quiet --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt
COPY tools/python/ /opt/tools/

# Compilers and headers, for the stages below only.
FROM os AS toolchain
ENV SOURCE_DATE_EPOCH=1700000000
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=apt,target=/mnt/apt --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=cache,id=trainwright-apt,target=/mnt/cache,sharing=locked \
    /mnt/apt-install ca-certificates curl
# fetch FILE SHA256 URL...: an archive from the site's folder or mirror, else from the first URL that has these bytes.
# Nobody publishes a checksum of a file that has - in place of one: `./invoke lock` records that of the first download.
# unpack ARCHIVE: into a folder named like it up to its version. compile-jobs GB: as many jobs as there is memory for.
COPY tools/build/ /usr/local/bin/
WORKDIR /src

# torch-xla 1.11.0 (aws)
FROM toolchain AS torch-xla
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/torch-xla,target=/mnt \
    fetch torch_xla-1.11.0-cp38-cp38-linux_x86_64.whl - \
        'https://sm-training-comp-pytorch-binaries.s3.us-west-2.amazonaws.com/bdd09cad-152b-42bd-993c-16e49d7af027/20220819-180620/54da28ad4c33c2f259969f74364149ecc58672e0/torch_xla-1.11.0-cp38-cp38-linux_x86_64.whl' \
    && fetch torch-1.11.0+cu113-cp38-cp38-linux_x86_64.whl - \
        'https://sm-training-comp-pytorch-binaries.s3.us-west-2.amazonaws.com/bdd09cad-152b-42bd-993c-16e49d7af027/20220819-180620/54da28ad4c33c2f259969f74364149ecc58672e0/torch-1.11.0%2Bcu113-cp38-cp38-linux_x86_64.whl' \
    && fetch torchvision-0.12.0a0+9b5a3fe-cp38-cp38-linux_x86_64.whl - \
        'https://sm-training-comp-pytorch-binaries.s3.us-west-2.amazonaws.com/bdd09cad-152b-42bd-993c-16e49d7af027/20220819-180620/54da28ad4c33c2f259969f74364149ecc58672e0/torchvision-0.12.0a0%2B9b5a3fe-cp38-cp38-linux_x86_64.whl' \
    && fetch torchaudio-0.11.0+6297e97-cp38-cp38-linux_x86_64.whl - \
        'https://sm-training-comp-pytorch-binaries.s3.us-west-2.amazonaws.com/bdd09cad-152b-42bd-993c-16e49d7af027/20220819-180620/54da28ad4c33c2f259969f74364149ecc58672e0/torchaudio-0.11.0%2B6297e97-cp38-cp38-linux_x86_64.whl' \
    && fetch transformers-4.21.1-py3-none-any.whl - \
        'https://sm-training-comp-pytorch-binaries.s3.us-west-2.amazonaws.com/3464575b-920a-48e6-b964-4d4c5fe2acae/20220816-021125/7780d990d11d9552e913cae06c7315fa8545648b/transformers-4.21.1-py3-none-any.whl'

# The image. What changes least comes first.
FROM os AS final
ENV USE_SMDEBUG=0

# ssh 8.2 (base)
# The container holds a key pair of root that everybody has who can pull it, and trusts it. The key stays, as the hosts of
# a job log in by it; from now on it opens nothing but to the addresses of the job's own hosts.
COPY --chmod=755 components/ssh/job-hosts /usr/lib/openssh/
RUN --mount=type=bind,source=components/ssh,target=/mnt,rw \
    rm -f /root/.ssh/authorized_keys /root/.ssh/authorized_keys2 \
    && cat /etc/ssh/sshd_config >> /mnt/sshd_config && cat /mnt/sshd_config > /etc/ssh/sshd_config

# torch-xla 1.11.0 (aws)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=bind,from=torch-xla,source=/src,target=/mnt/wheels \
    /mnt/uv pip install --python "$(command -v python3)" --break-system-packages --reinstall --no-deps --no-index --no-cache /mnt/wheels/*.whl
# The compiler asks for MKL by the names of its newer releases.
RUN for library in "$(python3 -c 'import sys; print(sys.prefix)')"/lib/libmkl_*.so; do \
        if [ -e "$library" ] && [ ! -e "$library.1" ]; then ln -s "${library##*/}" "$library.1"; fi; done
# Every Python process says how many GPUs there are, where nobody has said so: local mode does not.
RUN --mount=type=bind,source=components/torch-xla,target=/mnt \
    folder=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])') \
    && install -m 644 /mnt/gpu_num_devices.py "$folder" \
    && echo 'import gpu_num_devices; gpu_num_devices.export()' > "$folder/gpu_num_devices.pth"

# huggingface 4.21.1 (wheel)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/huggingface.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/huggingface,target=/mnt/wheels --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --python "$(command -v python3)" --break-system-packages --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt

# The loader learns of every library directory added above.
RUN ldconfig && rm -f /var/cache/ldconfig/aux-cache
WORKDIR /
ARG SOURCE_REVISION=unknown
LABEL org.opencontainers.image.title=huggingface-pytorch-trcomp-training org.opencontainers.image.version=1.11.0 \
    io.trainwright.plan=b9cdd8c70f7002b86f224316aa581e73044516b6015ab022ef1ea5aada09895a io.trainwright.framework=huggingface-pytorch-trcomp \
    io.trainwright.framework-version=1.11.0 io.trainwright.cuda=11.3 io.trainwright.python=3.8 io.trainwright.base=ubuntu-20.04 \
    io.trainwright.component.python="3.8 (base)" io.trainwright.component.ssh="8.2 (base)" io.trainwright.component.openmpi="4.1.1 (base)" \
    io.trainwright.component.cuda="11.3 (base)" io.trainwright.component.pytorch="1.11.0 (base)" io.trainwright.component.torch-xla="1.11.0 (aws)" \
    io.trainwright.component.mpi4py="3.1.3 (base)" io.trainwright.component.sagemaker-toolkit="4 (base)" \
    io.trainwright.component.huggingface="4.21.1 (wheel)" \
    org.opencontainers.image.revision="${SOURCE_REVISION}"
