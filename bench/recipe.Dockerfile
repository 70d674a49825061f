# The linear recipe of AWS's guide for a custom training container, with the content of the cpu line.
FROM scratch
ADD base/rootfs.tar /
ENV DEBIAN_FRONTEND=noninteractive PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
RUN apt-get update && apt-get install -y --no-install-recommends \
        build-essential ca-certificates cmake dpkg-dev python3 python3-dev python3-venv xz-utils
RUN apt-get update && apt-get install -y --no-install-recommends \
        ibverbs-providers libfabric-bin libfabric1 libibverbs1 librdmacm1 openmpi-bin libopenmpi3 \
        openssh-client openssh-server
RUN python3 -m venv /opt/venv
ARG METIS_OPTIONS="shared=1"
RUN sed -n 's/^deb /deb-src /p' /etc/apt/sources.list > /etc/apt/sources.list.d/source.list \
    && apt-get update && mkdir /src && cd /src && apt-get source --download-only metis \
    && tar -xf metis_*.orig.tar.xz --one-top-level=metis --strip-components=1 && cd metis \
    && make config $METIS_OPTIONS prefix=/opt/metis && make install && cd / && rm -rf /src && ldconfig
RUN --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=bind,source=wheels/pytorch,target=/mnt/wheels \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt pip install --no-cache-dir --find-links /mnt/wheels torch==2.13.0 numpy
RUN --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=secret,id=pip,target=/etc/pip.conf PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    pip install --no-cache-dir wheel sagemaker-training==5.1.4 sagemaker-pytorch-training==3.0.0 mpi4py==4.1.2
