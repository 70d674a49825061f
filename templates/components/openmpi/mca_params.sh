#!/bin/sh
# mca_params.sh PREFIX [LINE...]: where ranks go is up to the job. In the file once, as a key that the command line has
# twice ends mpirun. Other lines are for installations of one kind.
set -e
file=$1/etc/openmpi-mca-params.conf
shift
touch "$file"
# The second expression ends the last line where its end is missing.
sed -i -e '/^ *\(hwloc_base_binding\|rmaps_base_mapping\)_policy *=/d' -e '$a\' "$file"
printf '%s\n' 'hwloc_base_binding_policy = none' 'rmaps_base_mapping_policy = slot' "$@" >> "$file"
