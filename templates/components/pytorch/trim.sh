#!/bin/sh
# trim.sh SITE [headers]: takes out of a folder of packages what torch's wheels have for those who develop torch and triton:
# torch's own C++ tests, archives to link with (triton's copies of CUPTI's), the symbols that no loader reads, and `headers`,
# which an image without a compiler cannot use.
set -e
cd "$1"
rm -rf torch/test
test "$2" != headers || rm -rf torch/include torch/share/cmake
for folder in torch/bin triton; do
    test ! -d $folder || find $folder -type f \( -path 'torch/bin/*test*' -o -name '*.a' \) -delete
done
for folder in torch/lib triton; do
    test ! -d $folder || find $folder -type f -name '*.so*' -exec strip --strip-unneeded {} +
done
