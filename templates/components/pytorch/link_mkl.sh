#!/bin/sh
# link_mkl.sh [LIB [LOADER]]: puts MKL on the loader path, also under the names without a version that it had before 2021.
set -e
lib=${1-$VIRTUAL_ENV/lib}
for library in "$lib"/libmkl_*.so.1; do
    ln -sf "${library##*/}" "${library%.1}"
done
echo "$lib" > "${2-/etc/ld.so.conf.d}/mkl.conf"
