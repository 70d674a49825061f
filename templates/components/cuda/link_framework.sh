#!/bin/sh
# link_framework.sh ROOT: below a root folder, makes /usr/local/cuda out of links to CUDA's libraries in PyTorch's wheel, by
# the names that other programs ask for, and puts it on the loader path. The wheel has files with a hash in their names
# (libcudart-a7b20f20.so.11.0 in that of CUDA 11.3), which have kept their own sonames (seen in torch 1.12.1).
set -e
home=$1/usr/local/cuda
mkdir -p "$home/lib64" "$1/etc/ld.so.conf.d"
for library in "$1"/opt/venv/lib/python*/site-packages/torch/lib/libcu*.so* "$1"/opt/venv/lib/python*/site-packages/torch/lib/libnv*.so*; do
    [ -f "$library" ] || continue
    name=$(printf '%s\n' "${library##*/}" | sed 's/-[0-9a-f]\{8\}\.so/.so/')
    ln -sfn "${library#"$1"}" "$home/lib64/$name"
    # What -lcudart and dlopen("libcudart.so") ask for.
    if [ "$name" != "${name%%.so*}.so" ]; then ln -sfn "$name" "$home/lib64/${name%%.so*}.so"; fi
done
[ -L "$home/lib64/libcudart.so" ] || { echo "no CUDA runtime in PyTorch's wheel" >&2; exit 1; }
ln -s lib64 "$home/lib"
echo /usr/local/cuda/lib64 > "$1/etc/ld.so.conf.d/cuda.conf"
