#!/bin/sh
# One NCCL in the image: that of NVIDIA's base goes, its packages and what lies outside of them.
set -e
if command -v dpkg-query > /dev/null; then
    dpkg-query -W -f '${Package}\n' libnccl2 libnccl-dev 2> /dev/null | xargs -r dpkg --purge --force-depends --force-hold
else
    rpm -qa libnccl libnccl-devel | xargs -r rpm -e --nodeps
fi
rm -f /usr/lib/libnccl.so* /usr/lib64/libnccl.so* /usr/lib/*/libnccl.so* /usr/local/cuda/lib64/libnccl.so* \
    /var/log/dpkg.log /var/lib/dpkg/*-old
