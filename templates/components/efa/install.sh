#!/bin/sh
# install.sh KEPT OPTION...: runs the EFA installer beside it with these options, and takes away what
# of it an image is not to have. KEPT: the words of "openmpi aws-ofi-nccl" that stay. Open MPI 5 never does: the toolkit
# waits for a process named orted, which it lacks.
set -e
kept=" $1 "
shift
prefix=${EFA_PREFIX:-/opt/amazon}
cd "${EFA_INSTALLER:-${0%/*}}"
bash ./efa_installer.sh "$@"

# drop PACKAGE FOLDER...: packages whose name matches, then what is left of the folders.
drop() {
    if command -v dpkg-query > /dev/null; then
        dpkg-query -W -f '${Package}\n' "$1" 2> /dev/null | xargs -r dpkg --purge --force-depends
    else
        rpm -qa "$1" | xargs -r rpm -e --nodeps
    fi
    shift
    rm -rf "$@"
}

drop 'openmpi5*-aws' "$prefix/openmpi5"
case $kept in
    *' openmpi '*) ;;
    *) drop 'openmpi*-aws' "$prefix/openmpi" ;;
esac
case $kept in
    *' aws-ofi-nccl '*) ;;
    *) drop 'libnccl-ofi*' "$prefix/ofi-nccl" ;;
esac
# lib on Debian and Ubuntu, lib64 on Amazon Linux.
find "$prefix/efa" -maxdepth 1 -name 'lib*' > "${EFA_LOADER:-/etc/ld.so.conf.d}/efa.conf"
ldconfig
