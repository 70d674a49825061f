#!/bin/sh
# cuda_headers.sh PYTHON: CUDA's headers, and its runtime to link with, in /usr/local/cuda as in the image: from the same
# wheels of the runtime, and from those of nvcc (CUDA 12) or crt, which its headers include, and of NVML.
set -e
for folder in /mnt/wheels/*; do set -- "$@" --find-links "$folder"; done
python=$1
shift
grep -hE '^nvidia-(cuda-(runtime|crt|nvcc)|nvml-dev)(-cu12)?==' /mnt/requirements/* > /mnt/headers.txt
/mnt/uv venv --quiet --python "$python" /opt/venv
VIRTUAL_ENV=/opt/venv /mnt/uv pip install --no-deps --require-hashes "$@" -r /mnt/headers.txt
/opt/venv/bin/python /mnt/link_cuda.py
