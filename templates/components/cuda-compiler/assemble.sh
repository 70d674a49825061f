#!/bin/sh
# Put a complete nvcc together from Debian's package (deb/) and NVIDIA's wheels (wheels/).
#
# The package holds the compiler driver and its tools, the nvcc wheel libnvvm and libdevice and the crt headers, the
# cccl wheel the C++ headers. The runtime's headers and libcudart are in the image already.
set -eu
to=$1
tools=deb/usr/lib/nvidia-cuda-toolkit/bin
mkdir -p "$to/bin" "$to/nvvm/bin" "$to/include"
for name in nvcc cicc cudafe++ fatbinary nvlink bin2c ptxas; do
    from=$tools/$name
    [ -e "$from" ] || from=deb/usr/bin/$name
    cp -L "$from" "$to/bin/$name"
done
for folder in $tools/crt deb/usr/bin/crt; do
    [ ! -d "$folder" ] || cp -RL "$folder" "$to/bin/"
done
cp nvcc.profile "$to/bin/nvcc.profile"
chmod 755 "$to"/bin/[a-z]*
chmod 644 "$to/bin/nvcc.profile"
ln -s ../../bin/cicc "$to/nvvm/bin/cicc"
nvidia=wheels/nvidia
cp -R "$nvidia"/cuda_nvcc/nvvm/. "$to/nvvm/"
cp -R "$nvidia"/cuda_nvcc/include/. "$to/include/"
cp -Rn "$nvidia"/cuda_cccl/include/. "$to/include/"
find "$to" -name '__init__.py' -o -name '__pycache__' | xargs -r rm -rf
