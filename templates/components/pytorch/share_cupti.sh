#!/bin/sh
# share_cupti.sh SITE CUDA: triton brings CUPTI for its profiler, proton, which opens libcupti.so in a folder of triton. Where
# NVIDIA's wheels bring CUPTI of the same ABI (CUDA's major version), that folder gets links to it; elsewhere one of triton's
# three names holds the library, and the others are links.
set -e
cd "$1"
case "$2" in 1[0-2]) shared=nvidia/cuda_cupti/lib ;; *) shared=nvidia/cu$2/lib ;; esac
for folder in triton/backends/nvidia/lib/cupti*; do
    test -e "$folder/libcupti.so" || continue
    if [ -e "$folder/libcupti.so.$2" ]; then
        for library in "$folder"/*.so*; do
            case "${library##*/}" in libcupti.*) name=libcupti.so.$2 ;; *) name=${library##*/} ;; esac
            ln -sf "../../../../../$shared/$name" "$library"
        done
    else
        for library in "$folder"/libcupti.so.[0-9][0-9]; do
            if cmp -s "$library" "$folder/libcupti.so"; then ln -sf "${library##*/}" "$folder/libcupti.so"; fi
            for whole in "$folder"/libcupti.so.20*; do
                if cmp -s "$library" "$whole"; then ln -sf "${library##*/}" "$whole"; fi
            done
        done
    fi
done
