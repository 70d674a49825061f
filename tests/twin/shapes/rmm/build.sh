#!/bin/bash
# build.sh librmm: configure, build and install the library, as upstream's does.
set -e
cd "$(dirname "$0")"
mkdir -p build && cd build
cmake -DCMAKE_INSTALL_PREFIX="${INSTALL_PREFIX:-${PREFIX:-/usr/local}}" ${CMAKE_ARGS:-} ..
make -j"${PARALLEL_LEVEL:-2}" install
