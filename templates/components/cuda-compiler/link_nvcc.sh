#!/bin/sh
# nvcc looks for its parts beside itself, so it is started where the wheels put it; the wheels name the library folder
# lib where nvcc looks in lib64.
set -eu
tree=$(ls -d /opt/venv/lib/python3*/site-packages/nvidia/cu1?)
chmod +x "$tree"/bin/* "$tree"/nvvm/bin/*
[ -e "$tree/lib64" ] || ln -s lib "$tree/lib64"
[ -e "$tree/lib/libcudart.so" ] || ln -s "$(cd "$tree/lib" && ls libcudart.so.* | head -n 1)" "$tree/lib/libcudart.so"
for program in "$tree"/bin/*; do
    [ -f "$program" ] || continue
    name=$(basename "$program")
    printf '#!/bin/sh\nexec %s "$@"\n' "$program" > "/usr/local/cuda/bin/$name"
    chmod 755 "/usr/local/cuda/bin/$name"
done
ln -sfn "$tree/nvvm" /usr/local/cuda/nvvm
