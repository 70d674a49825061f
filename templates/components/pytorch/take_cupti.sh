#!/bin/sh
# take_cupti.sh TARGET [CUDA]: copies the CUPTI library of a CUDA toolkit into a folder, with the name that programs ask for.
set -e
target=$1 cuda=${2-/usr/local/cuda}
library=$(find -L "$cuda/extras/CUPTI/lib64" "$cuda/lib64" -name 'libcupti.so.*' 2> /dev/null | head -n 1)
if [ -z "$library" ]; then
    echo "take_cupti: no libcupti.so in $cuda: is the image for build stages a -devel- image?" >&2
    exit 1
fi
mkdir -p "$target"
install -m 644 "$(readlink -f "$library")" "$target"
ldconfig -n "$target"
