#!/bin/sh
# link_mkl.sh [ROOT]: puts the MKL of the environment below a root folder on the loader path, also under the names without a
# version that it had before 2021.
set -e
lib=${1-}/opt/venv/lib
loader=${1-}/etc/ld.so.conf.d
for library in "$lib"/libmkl_*.so.1; do
    ln -sf "${library##*/}" "${library%.1}"
done
mkdir -p "$loader"
echo /opt/venv/lib > "$loader/mkl.conf"
