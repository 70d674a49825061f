#!/bin/sh
# adopt_base.sh [ROOT]: what NVIDIA's base image needs to be a training image. The libraries for older drivers go where no
# loader looks (cuda-compat says when they are wanted); libcudart gets the name without a version, which runtime images
# lack and aws-ofi-nccl asks for.
set -e
root=${1-}
for folder in "$root"/usr/local/cuda*/compat; do
    if [ -d "$folder" ] && [ ! -e "$root/opt/cuda-compat" ]; then
        mkdir -p "$root/opt"
        mv "$folder" "$root/opt/cuda-compat"
    fi
done
rm -rf "$root"/usr/local/cuda*/compat "$root"/etc/ld.so.conf.d/*compat*.conf
home=$root/usr/local/cuda
if [ ! -e "$home/lib64/libcudart.so" ]; then
    for library in "$home"/lib64/libcudart.so.*.*; do
        ln -s "${library##*/}" "$home/lib64/libcudart.so"
        break
    done
fi
echo /usr/local/cuda/lib64 > "$root/etc/ld.so.conf.d/cuda.conf"
