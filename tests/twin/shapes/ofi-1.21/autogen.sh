#!/bin/sh
# Upstream's runs `autoreconf -ivf`; its configure.ac has the version from m4/get_version.sh, which needs this file or git.
set -eu
for tool in autoreconf automake libtoolize; do command -v "$tool" > /dev/null || exit 1; done
if [ ! -f .release_version ]; then
    echo "No version found.  This usually means you are not building from a git repo or existing release tarball." >&2
    exit 1
fi
cp configure.in configure
