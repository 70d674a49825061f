# pytorch 1.12.1, CUDA 11.3, Python 3.8, on ubuntu-20.04: a SageMaker training image.
# Made by Trainwright from plan b607600dc6d4; `./invoke render` makes it again.
# Build it in its context: DOCKER_BUILDKIT=1 docker build .
#
# Secrets, all optional: ca (a CA bundle), uv, pip and netrc (an index and its credentials), apt-sources (a mirror),
# artifacts (the base URL of a mirror of archives).
# What a step needs only while it runs lies under /mnt, and what it writes there is thrown away (rw): none of it is in a layer.
#
# Stages, those in one row in parallel:
#
#     base <- ${BASE_IMAGE}   toolchain <- ${BUILD_IMAGE}
#     os <- base   efa-archive <- toolchain   openmpi <- toolchain   nccl <- toolchain   pytorch <- toolchain   torchvision <- toolchain   torchaudio <- toolchain   boost <- toolchain   metis <- toolchain   smdistributed-dataparallel <- toolchain   smdistributed-modelparallel <- toolchain
#     tools <- os   efa <- toolchain + efa-archive
#     wheels <- toolchain + tools   aws-ofi-nccl <- efa + openmpi + nccl   rmm <- toolchain + tools
#     final <- os + tools + efa-archive + openmpi + nccl + aws-ofi-nccl + pytorch + torchvision + torchaudio + boost + rmm + wheels + metis + smdistributed-dataparallel + smdistributed-modelparallel

# Build arguments, so that a mirror can stand in for the registry: docker build --build-arg BASE_IMAGE=...
ARG BASE_IMAGE=nvidia/cuda:11.3.1-cudnn8-runtime-ubuntu20.04
ARG BUILD_IMAGE=nvidia/cuda:11.3.1-cudnn8-devel-ubuntu20.04
FROM ${BASE_IMAGE} AS base

# The distribution's packages of the image itself.
FROM base AS os
ENV LANG=C.UTF-8
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=apt,target=/mnt/apt --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=cache,id=trainwright-apt,target=/mnt/cache,sharing=locked \
    /mnt/apt-install ca-certificates hwloc-nox libnuma1 libpython3.8 openssh-client openssh-server python3-distutils python3.8

# uv installs the locked wheels; it stays out of the image.
FROM os AS tools
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=apt,target=/mnt/apt --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=cache,id=trainwright-apt,target=/mnt/cache,sharing=locked \
    /mnt/apt-install python3.8-venv
RUN --mount=type=bind,source=tools/python,target=/mnt,rw --mount=type=cache,id=trainwright-pip,target=/root/.cache/pip --mount=type=secret,id=ca \
    --mount=type=secret,id=pip --mount=type=secret,id=netrc --mount=type=bind,source=requirements/tools.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/tools,target=/mnt/wheels \
    /usr/bin/python3.8 -m venv /opt/tools \
    && /mnt/pip install --quiet --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt
COPY tools/python/ /opt/tools/

# Compilers and headers, for the stages below only.
FROM ${BUILD_IMAGE} AS toolchain
ENV SOURCE_DATE_EPOCH=1700000000
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=apt,target=/mnt/apt --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=cache,id=trainwright-apt,target=/mnt/cache,sharing=locked \
    /mnt/apt-install autoconf automake bzip2 ca-certificates cmake curl g++ gcc hwloc-nox libc6-dev libhwloc-dev libnuma1 libpython3.8 libtool \
        make openssh-client openssh-server perl python3 python3-distutils python3.8 python3.8-dev
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

# efa 1.15.1 (aws)
FROM toolchain AS efa-archive
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/efa,target=/mnt \
    fetch aws-efa-installer-1.15.1.tar.gz be871781a1b9a15fca342a9d169219260069942a8bda7a8ad06d4baeb5e2efd7 \
        'https://efa-installer.amazonaws.com/aws-efa-installer-1.15.1.tar.gz' \
        'https://s3-us-west-2.amazonaws.com/aws-efa-installer/aws-efa-installer-1.15.1.tar.gz'
RUN unpack aws-efa-installer-1.15.1.tar.gz
COPY components/efa/install.sh aws-efa-installer/
# Headers, for what is compiled against libfabric.
FROM toolchain AS efa
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=apt,target=/mnt/apt --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=cache,id=trainwright-apt,target=/mnt/cache,sharing=locked \
    --mount=type=bind,from=efa-archive,source=/src/aws-efa-installer,target=/mnt/efa,rw \
    /mnt/apt-run sh /mnt/efa/install.sh '' -y --skip-kmod

# openmpi 4.1.1 (source)
FROM toolchain AS openmpi
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/openmpi,target=/mnt \
    fetch openmpi-4.1.1.tar.bz2 e24f7a778bd11a71ad0c14587a7f5b00e68a71aa5623e2157bafee3d44c07cda \
        'https://download.open-mpi.org/release/open-mpi/v4.1/openmpi-4.1.1.tar.bz2'
# orted is found on the other hosts by the prefix, as sshd sets no PATH. hwloc, libevent and PMIX are those inside.
RUN unpack openmpi-4.1.1.tar.bz2 && cd openmpi \
    && ./configure --prefix=/opt/amazon/openmpi --enable-orterun-prefix-by-default \
        --with-hwloc=internal --with-libevent=internal --with-pmix=internal --without-verbs \
        --disable-static --disable-mpi-fortran --disable-oshmem --disable-man-pages --with-cuda=/usr/local/cuda \
    && make -j"$(compile-jobs 1.0)" install \
    && find /opt/amazon/openmpi -name '*.la' -delete && find /opt/amazon/openmpi -type f -name '*.so*' -exec strip --strip-unneeded {} +

# nccl 2.10.3 (source)
FROM toolchain AS nccl
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/nccl,target=/mnt \
    fetch nccl-2.10.3-1.tar.gz 55de166eb7dcab9ecef2629cdb5fb0c5ebec4fae03589c469ebe5dcb5716b3c5 \
        'https://github.com/NVIDIA/nccl/archive/v2.10.3-1.tar.gz'
# The architectures are the image line's: all that NCCL knows would take several times as long.
RUN unpack nccl-2.10.3-1.tar.gz && cd nccl \
    && make -j"$(compile-jobs 2.0)" src.build BUILDDIR=/src/build CUDA_HOME=/usr/local/cuda \
        NVCC_GENCODE="-gencode=arch=compute_70,code=sm_70 -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=compute_80" \
    && mkdir -p /opt/nccl/lib && cp -a /src/build/include /opt/nccl/ && cp -a /src/build/lib/libnccl.so* /opt/nccl/lib/ \
    && find /opt/nccl/lib -type f -exec strip --strip-unneeded {} +

# aws-ofi-nccl 1.3.0 (source)
FROM efa AS aws-ofi-nccl
COPY --from=openmpi /opt/amazon/openmpi /opt/amazon/openmpi
COPY --from=nccl /opt/nccl /opt/nccl
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/aws-ofi-nccl,target=/mnt \
    fetch aws-ofi-nccl-1.3.0.tar.gz - 'https://github.com/aws/aws-ofi-nccl/archive/v1.3.0-aws.tar.gz'
# What git holds has no configure yet, an archive of a release may. The programs under bin test the plugin with MPI.
RUN unpack aws-ofi-nccl-1.3.0.tar.gz && cd aws-ofi-nccl \
    && if [ ! -x configure ]; then sh ./autogen.sh; fi \
    && ./configure --prefix=/opt/amazon/ofi-nccl --with-libfabric=/opt/amazon/efa --with-mpi=/opt/amazon/openmpi \
        --with-cuda=/usr/local/cuda --disable-static --with-nccl=/opt/nccl \
    && make -j"$(compile-jobs 1.0)" install \
    && rm -rf /opt/amazon/ofi-nccl/bin && find /opt/amazon/ofi-nccl -name '*.la' -delete

# pytorch 1.12.1 (aws)
FROM toolchain AS pytorch
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/pytorch,target=/mnt \
    fetch torch-1.12.1+cu113-cp38-cp38-linux_x86_64.whl - \
        'https://aws-pytorch-unified-cicd-binaries.s3.us-west-2.amazonaws.com/r1.12.1_sm/20230106-042344/626f1a6ec58817e524705e0917dbab97c81b440e/torch-1.12.1%2Bcu113-cp38-cp38-linux_x86_64.whl'

# torchvision 0.13.1 (index)
FROM toolchain AS torchvision
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/torchvision,target=/mnt \
    fetch torchvision-0.13.1+cu113-cp38-cp38-linux_x86_64.whl 899cac298d2a7cf6a8ca62d3ede2a7d3f50b86027f8be2d15639baf74da5d8f0 \
        'https://download.pytorch.org/whl/cu113/torchvision-0.13.1%2Bcu113-cp38-cp38-linux_x86_64.whl'

# torchaudio 0.12.1 (index)
FROM toolchain AS torchaudio
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/torchaudio,target=/mnt \
    fetch torchaudio-0.12.1+cu113-cp38-cp38-linux_x86_64.whl - \
        'https://download.pytorch.org/whl/cu113/torchaudio-0.12.1%2Bcu113-cp38-cp38-linux_x86_64.whl'

# boost 1.73.0 (source)
FROM toolchain AS boost
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/boost,target=/mnt \
    fetch boost_1_73_0.tar.gz 9995e192e68528793755692917f9eb6422f3052a53c5e13ba278a228af6c7acf \
        'https://archives.boost.io/release/1.73.0/source/boost_1_73_0.tar.gz' \
        'https://sourceforge.net/projects/boost/files/boost/1.73.0/boost_1_73_0.tar.gz/download'
# b2 ends with an error where one library fails, and so does the build.
RUN unpack boost_1_73_0.tar.gz && cd boost \
    && { ./bootstrap.sh --prefix=/opt/boost --with-libraries=atomic,chrono,context,coroutine,date_time,filesystem,program_options,regex,system,thread \
        || { tail -n 30 bootstrap.log; exit 1; }; } \
    && ./b2 -d1 -j"$(compile-jobs 1.0)" variant=release link=shared runtime-link=shared threading=multi install \
    && strip --strip-unneeded /opt/boost/lib/*.so.*

# rmm 0.15.0 (source)
FROM toolchain AS rmm
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/rmm,target=/mnt \
    fetch rmm-0.15.0.tar.gz 599f97b95d169a90d11296814763f7e151a8a1e060ba10bc6c8f4684a5cd7972 \
        'https://github.com/rapidsai/rmm/archive/v0.15.0.tar.gz' \
    && fetch cnmem-37896cc9.tar.gz - 'https://github.com/NVIDIA/cnmem/archive/37896cc9bfc6536a8c878a1e675835c22d827821.tar.gz' \
    && fetch spdlog-1.6.0.tar.gz 0421667c9f2fc78e6548d44f7bc5921be0f03e612df384294c16cedb93d967f8 \
        'https://github.com/gabime/spdlog/archive/v1.6.0.tar.gz' \
    && fetch thrust-1.9.10.tar.gz - 'https://github.com/NVIDIA/thrust/archive/1.9.10.tar.gz' \
        'https://github.com/thrust/thrust/archive/1.9.10.tar.gz' \
    && fetch cub-1.9.10.tar.gz - 'https://github.com/NVIDIA/cub/archive/1.9.10.tar.gz'
# Ubuntu 18.04 has CMake 3.10, which is too old: there the locked tools hold one, and it comes first. All inputs are
# here, so CMake is told where they are and to fetch nothing; newer compilers warn of what these were fine with. The
# driver's library is a stub of the toolkit, for the linker alone.
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools unpack ./*.tar.gz \
    && mkdir -p thrust/dependencies/cub && cp -r cub/. thrust/dependencies/cub/ && sed -i 's/-Werror//' rmm/CMakeLists.txt \
    && if [ -x /opt/tools/bin/cmake ]; then PATH=/opt/tools/bin:$PATH; fi \
    && export LIBRARY_PATH=/usr/local/cuda/lib64:/usr/local/cuda/lib64/stubs PATH="$PATH:/usr/local/cuda/bin" \
    && cmake -S rmm -B build \
        -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/opt/rmm -DBUILD_TESTS=OFF -DBUILD_BENCHMARKS=OFF \
        -DFETCHCONTENT_FULLY_DISCONNECTED=ON -DFETCHCONTENT_SOURCE_DIR_CNMEM=/src/cnmem \
        -DFETCHCONTENT_SOURCE_DIR_SPDLOG=/src/spdlog -DFETCHCONTENT_SOURCE_DIR_THRUST=/src/thrust \
    && cmake --build build -j "$(compile-jobs 1.5)" && cmake --install build \
    && sed -n 's/^ *project(RMM .*VERSION *\([0-9.]*\).*/\1/p' rmm/CMakeLists.txt > /opt/rmm/VERSION \
    && strip --strip-unneeded /opt/rmm/lib/librmm.so

# metis 5.1.0 (source)
FROM toolchain AS metis
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/metis,target=/mnt \
    fetch metis-5.1.0.tar.gz 76faebe03f6c963127dbb73c13eab58c9a3faeae48779f049066a21c087c5db2 \
        'http://glaros.dtc.umn.edu/gkhome/fetch/sw/metis/metis-5.1.0.tar.gz' 'https://karypis.github.io/glaros/files/sw/metis/metis-5.1.0.tar.gz'
# Either archive has GKlib inside. The programs lie outside the loader path, so they are told where their library is.
RUN unpack metis-5.1.0.tar.gz && cd metis \
    && LDFLAGS=-Wl,-rpath,/opt/metis/lib make config shared=1 prefix=/opt/metis \
    && make -j"$(compile-jobs 0.5)" install \
    && strip /opt/metis/bin/* /opt/metis/lib/*.so

# smdistributed-dataparallel 1.6.0 (aws)
FROM toolchain AS smdistributed-dataparallel
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/smdistributed-dataparallel,target=/mnt \
    fetch smdistributed_dataparallel-1.6.0-cp38-cp38-linux_x86_64.whl - \
        'https://smdataparallel.s3.amazonaws.com/binary/pytorch/1.12.1/cu113/2022-12-05/smdistributed_dataparallel-1.6.0-cp38-cp38-linux_x86_64.whl'

# smdistributed-modelparallel 1.13.0 (aws)
FROM toolchain AS smdistributed-modelparallel
RUN --mount=type=secret,id=ca --mount=type=secret,id=artifacts --mount=type=secret,id=netrc --mount=type=bind,source=archives/smdistributed-modelparallel,target=/mnt \
    fetch smdistributed_modelparallel-1.13.0-cp38-cp38-linux_x86_64.whl - \
        'https://sagemaker-distributed-model-parallel.s3.us-west-2.amazonaws.com/pytorch-1.12.1/build-artifacts/2022-12-08-21-34/smdistributed_modelparallel-1.13.0-cp38-cp38-linux_x86_64.whl'

# The image. What changes least comes first.
FROM os AS final
ENV PATH=/opt/venv/bin:/opt/amazon/efa/bin:/opt/amazon/openmpi/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    VIRTUAL_ENV=/opt/venv PYTHONUNBUFFERED=1 RDMAV_FORK_SAFE=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 CUDA_HOME=/usr/local/cuda \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES="compute,utility" LD_LIBRARY_PATH="" \
    SAGEMAKER_TRAINING_MODULE=sagemaker_pytorch_container.training:main USE_SMDEBUG=0

# python 3.8 (ubuntu)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw /mnt/uv venv --python /usr/bin/python3.8 /opt/venv
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/python.txt,target=/mnt/requirements.txt --mount=type=bind,source=wheels/python,target=/mnt/wheels \
    --mount=type=secret,id=ca,target=/mnt/ca --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt

# ssh 8.2 (ubuntu)
# sshd without host keys hangs a job in silence, and keys in a layer would be everybody's: the wrapper makes them when
# the server starts. It serves both contracts, as it needs no ENTRYPOINT.
# No key pair of root either: each host makes one when it starts, and sshd lets in the addresses of the job's hosts.
RUN --mount=type=bind,source=components/ssh,target=/mnt,rw sh /mnt/install.sh sagemaker.conf

# efa 1.15.1 (aws)
# The installer brings packages of its own and has apt fetch what these need. What the plan does not name of it goes again
# in the same layer.
RUN --mount=type=bind,source=tools/apt,target=/mnt,rw --mount=type=bind,source=apt,target=/mnt/apt --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=apt-sources,target=/mnt/apt-sources --mount=type=cache,id=trainwright-apt,target=/mnt/cache,sharing=locked \
    --mount=type=bind,from=efa-archive,source=/src/aws-efa-installer,target=/mnt/efa,rw \
    /mnt/apt-run sh /mnt/efa/install.sh '' -y --skip-kmod

# openmpi 4.1.1 (source)
COPY --from=openmpi /opt/amazon/openmpi /opt/amazon/openmpi
# Where ranks go is up to the job; the loader finds the libraries in whichever of the two folders they are.
RUN --mount=type=bind,source=components/openmpi,target=/mnt sh /mnt/mca_params.sh /opt/amazon/openmpi \
    && find /opt/amazon/openmpi -maxdepth 1 \( -name lib -o -name lib64 \) > /etc/ld.so.conf.d/openmpi.conf

# cuda 11.3 (nvidia)
# The base image holds CUDA, and a driver for hosts with an older one, which must not shadow a newer driver of the host.
# When a container starts, cuda-compat decides: as ENTRYPOINT or called by it, or where that is another, in the first
# bash (BASH_ENV).
COPY --chmod=755 components/cuda/cuda-compat /usr/local/bin/cuda-compat
COPY components/cuda/cuda-compat.bash /usr/local/lib/cuda-compat.bash
RUN --mount=type=bind,source=components/cuda,target=/mnt sh /mnt/adopt_base.sh

# nccl 2.10.3 (source)
# One NCCL in the image: that of the base goes.
RUN --mount=type=bind,source=components/nccl,target=/mnt sh /mnt/remove_base.sh
COPY --from=nccl /opt/nccl /opt/nccl
RUN echo /opt/nccl/lib > /etc/ld.so.conf.d/nccl.conf

# aws-ofi-nccl 1.3.0 (source)
COPY --from=aws-ofi-nccl /opt/amazon/ofi-nccl /opt/amazon/ofi-nccl
# NCCL looks for libnccl-net.so, which newer plugins name after their network.
RUN cd /opt/amazon/ofi-nccl/lib \
    && if [ ! -e libnccl-net.so ]; then ln -s libnccl-net-ofi.so libnccl-net.so; fi \
    && echo "$PWD" > /etc/ld.so.conf.d/aws-ofi-nccl.conf

# pytorch 1.12.1 (aws)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/pytorch.txt,target=/mnt/requirements.txt --mount=type=bind,source=wheels/pytorch,target=/mnt/wheels \
    --mount=type=secret,id=ca,target=/mnt/ca --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=bind,from=pytorch,source=/src,target=/mnt/wheels \
    /mnt/uv pip install --no-deps --no-index --no-cache /mnt/wheels/*.whl

# torchvision 0.13.1 (index)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/torchvision.txt,target=/mnt/requirements.txt \
    --mount=type=bind,source=wheels/torchvision,target=/mnt/wheels --mount=type=secret,id=ca,target=/mnt/ca \
    --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=bind,from=torchvision,source=/src,target=/mnt/wheels \
    /mnt/uv pip install --no-deps --no-index --no-cache /mnt/wheels/*.whl

# torchaudio 0.12.1 (index)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=bind,from=torchaudio,source=/src,target=/mnt/wheels \
    /mnt/uv pip install --no-deps --no-index --no-cache /mnt/wheels/*.whl

# boost 1.73.0 (source)
# The headers stay behind: only a compiled program uses it.
COPY --from=boost /opt/boost/lib /opt/boost/lib
RUN echo /opt/boost/lib > /etc/ld.so.conf.d/boost.conf

# rmm 0.15.0 (source)
COPY --from=rmm /opt/rmm /opt/rmm
RUN echo /opt/rmm/lib > /etc/ld.so.conf.d/rmm.conf

# mpi4py 4.1.2 (wheel)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=cache,id=trainwright-uv,target=/mnt/cache \
    --mount=type=bind,source=requirements/mpi4py.txt,target=/mnt/requirements.txt --mount=type=bind,source=wheels/mpi4py,target=/mnt/wheels \
    --mount=type=secret,id=ca,target=/mnt/ca --mount=type=secret,id=uv,target=/mnt/uv.toml --mount=type=secret,id=netrc,target=/mnt/netrc \
    /mnt/uv pip install --no-deps --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt

# sagemaker-toolkit 4.8.3 (wheel)
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

# metis 5.1.0 (source)
COPY --from=metis /opt/metis /opt/metis
RUN echo /opt/metis/lib > /etc/ld.so.conf.d/metis.conf

# smdistributed-dataparallel 1.6.0 (aws)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=bind,from=smdistributed-dataparallel,source=/src,target=/mnt/wheels \
    SMDATAPARALLEL_PT=1 /mnt/uv pip install --no-deps --no-index --no-cache /mnt/wheels/*.whl
RUN python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"] + "/smdistributed/dataparallel/lib")' \
        > /etc/ld.so.conf.d/smdistributed-dataparallel.conf

# smdistributed-modelparallel 1.13.0 (aws)
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/mnt,rw --mount=type=bind,from=smdistributed-modelparallel,source=/src,target=/mnt/wheels \
    /mnt/uv pip install --no-deps --no-index --no-cache /mnt/wheels/*.whl

# The loader learns of every library directory added above.
RUN ldconfig && rm -f /var/cache/ldconfig/aux-cache
ENV BASH_ENV=/usr/local/lib/cuda-compat.bash

WORKDIR /
ARG SOURCE_REVISION=unknown
LABEL org.opencontainers.image.title=pytorch-training org.opencontainers.image.version=1.12.1 \
    io.trainwright.plan=b607600dc6d4fc97c0ce9b51660b4a63f9217889aca58f334b595a0a174877fb io.trainwright.framework=pytorch \
    io.trainwright.framework-version=1.12.1 io.trainwright.cuda=11.3 io.trainwright.python=3.8 io.trainwright.base=ubuntu-20.04 \
    io.trainwright.component.python="3.8 (ubuntu)" io.trainwright.component.ssh="8.2 (ubuntu)" io.trainwright.component.efa="1.15.1 (aws)" \
    io.trainwright.component.openmpi="4.1.1 (source)" io.trainwright.component.cuda="11.3 (nvidia)" io.trainwright.component.nccl="2.10.3 (source)" \
    io.trainwright.component.aws-ofi-nccl="1.3.0 (source)" io.trainwright.component.pytorch="1.12.1 (aws)" \
    io.trainwright.component.torchvision="0.13.1 (index)" io.trainwright.component.torchaudio="0.12.1 (index)" \
    io.trainwright.component.boost="1.73.0 (source)" io.trainwright.component.rmm="0.15.0 (source)" io.trainwright.component.mpi4py="4.1.2 (wheel)" \
    io.trainwright.component.sagemaker-toolkit="4.8.3 (wheel)" io.trainwright.component.metis="5.1.0 (source)" \
    io.trainwright.component.smdistributed-dataparallel="1.6.0 (aws)" io.trainwright.component.smdistributed-modelparallel="1.13.0 (aws)" \
    org.opencontainers.image.revision="${SOURCE_REVISION}"
