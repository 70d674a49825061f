#!/bin/bash
# Stands in for the EFA installer @VERSION@: the same options, folders and report; what it installs is the distribution's
# libfabric, rdma-core and Open MPI. Like the real one it needs apt, and leaves nothing of itself behind.
set -euo pipefail
version=@VERSION@
efa=/opt/amazon/efa
mpi=/opt/amazon/openmpi
skip_kmod=no debug=no

while [ $# -gt 0 ]; do
    case $1 in
        -y | --yes) ;;
        -k | --skip-kmod) skip_kmod=yes ;;
        -g | --enable-gdr) ;;
        -d | --debug-packages) debug=yes ;;
        -l | --skip-limit-conf | -n | --no-verify) ;;
        *)
            echo "efa_installer.sh: unknown option $1" >&2
            exit 1
            ;;
    esac
    shift
done
[ "$(id -u)" = 0 ] || { echo "Please run as root" >&2; exit 1; }
[ "$skip_kmod" = yes ] || { echo "the kernel module cannot be built in a container: --skip-kmod" >&2; exit 1; }
# As upstream: the packages lie beside the script, so it has to be started from its own folder.
[ -f ./efa_installer.sh ] || { echo "start it from its own folder" >&2; exit 1; }

echo "= Starting Amazon Elastic Fabric Adapter Installation Script, version $version ="
libraries="rdma-core ibverbs-providers libibverbs1 librdmacm1 libpsm2-2 libpsm-infinipath1"
for_mpi="libevent-core-2.1-7 libevent-pthreads-2.1-7 libhwloc15 libpmix2 libucx0 libnl-3-200 openmpi-common openssh-client"
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive apt-get -y --no-install-recommends install $libraries $for_mpi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(
    cd "$work"
    apt-get -o APT::Sandbox::User=root download libfabric1 libfabric-bin libfabric-dev openmpi-bin libopenmpi3 libopenmpi-dev
    for package in libfabric*.deb; do dpkg-deb -x "$package" fabric; done
    for package in openmpi*.deb libopenmpi*.deb; do dpkg-deb -x "$package" mpi; done
)
arch=$(dpkg --print-architecture | sed 's/amd64/x86_64/')-linux-gnu

mkdir -p $efa/bin $efa/lib $efa/include $efa/share
cp -a "$work"/fabric/usr/bin/. $efa/bin/
cp -a "$work/fabric/usr/lib/$arch"/. $efa/lib/
cp -a "$work"/fabric/usr/include/. $efa/include/
rm -f $efa/lib/*.a

# Debian's Open MPI, moved. The folders of its libraries, modules, programs and settings are compiled into it and led to
# the new place; its texts stay where openmpi-common has them.
mkdir -p $mpi/bin $mpi/lib $mpi/include $mpi/etc
cp -a "$work"/mpi/usr/bin/. $mpi/bin/
cp -a "$work/mpi/usr/lib/$arch"/lib*.so.* $mpi/lib/
for library in $mpi/lib/lib*.so.[0-9][0-9]; do ln -s "${library##*/}" "${library%.*}"; done
cp -a "$work/mpi/usr/lib/$arch"/openmpi/lib/openmpi3 $mpi/lib/openmpi
cp -a "$work/mpi/usr/lib/$arch"/openmpi/include/. $mpi/include/
rm -f $mpi/lib/*gfortran* $mpi/lib/*java* $mpi/lib/*usempi* $mpi/lib/*mpifh* $mpi/lib/liboshmem*
python=$(command -v python3 python3.8 python3.9 | head -n 1)
"$python" - $mpi <<'PY'
import glob, os, sys
prefix = sys.argv[1].encode()
moved = {
    b"${prefix}/lib/x86_64-linux-gnu/openmpi/lib": prefix + b"/lib",
    b"${libdir}/openmpi3": b"${libdir}/openmpi",
    b"${exec_prefix}/bin": b"${libdir}/../bin",
}
for path in glob.glob(sys.argv[1] + "/lib/libopen-pal.so.*.*"):
    data = open(path, "rb").read()
    for old, new in moved.items():
        assert data.count(b"\0" + old + b"\0") == 1, old
        data = data.replace(b"\0" + old + b"\0", b"\0" + new.ljust(len(old), b"\0") + b"\0")
    open(path, "wb").write(data)
PY
cp -a "$work"/mpi/etc/openmpi/. $mpi/etc/
rm -rf /etc/openmpi && ln -s $mpi/etc /etc/openmpi
# The real one is configured with --enable-orterun-prefix-by-default; here an option says where orted is.
for name in mpirun mpiexec; do
    rm -f $mpi/bin/$name
    printf '#!/bin/bash\nexec -a %s %s/bin/orterun --prefix %s "$@"\n' $name $mpi $mpi > $mpi/bin/$name
    chmod 755 $mpi/bin/$name
done
for program in $mpi/bin/*.openmpi; do
    plain=${program%.openmpi}
    [ -e "$plain" ] || mv "$program" "$plain"
done

echo $efa/lib > /etc/ld.so.conf.d/000_efa.conf
echo $mpi/lib >> /etc/ld.so.conf.d/000_efa.conf
printf 'PATH="%s/bin:%s/bin:$PATH"\n' $efa $mpi > /etc/profile.d/zippy_efa.sh
ldconfig
{
    echo "# EFA installer version: $version"
    echo "# Debug packages installed: $debug"
    echo "# Packages installed:"
    echo "efa-config_1.9_all efa-profile_1.5_all libfabric-aws_@LIBFABRIC@ openmpi40-aws_@OPENMPI@"
} > /opt/amazon/efa_installed_packages
$efa/bin/fi_info --version
echo "EFA installation complete."
