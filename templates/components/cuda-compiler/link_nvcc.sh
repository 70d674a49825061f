#!/bin/sh
# link_nvcc.sh [ROOT]: makes the nvcc of the wheels below a root folder complete, and puts its programs on the path.
# nvcc looks for its parts beside itself, so it is started where the wheels put it; the wheels name the library folder
# lib where nvcc looks in lib64, and the runtime is a wheel of another layer.
set -eu
root=${1-}
tree=$(ls -d "$root"/opt/venv/lib/python3*/site-packages/nvidia/cu1?)
home=$root/usr/local/cuda
mkdir -p "$home/bin"
chmod +x "$tree"/bin/* "$tree"/nvvm/bin/*
[ -e "$tree/lib64" ] || ln -s lib "$tree/lib64"
[ -e "$tree/lib/libcudart.so" ] || ln -s "libcudart.so.${tree##*/cu}" "$tree/lib/libcudart.so"
for program in "$tree"/bin/*; do
    [ -f "$program" ] || continue
    name=$(basename "$program")
    printf '#!/bin/sh\nexec %s "$@"\n' "${program#"$root"}" > "$home/bin/$name"
    chmod 755 "$home/bin/$name"
done
ln -sfn "${tree#"$root"}/nvvm" "$home/nvvm"
