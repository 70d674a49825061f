# Read by every bash that runs a command or a script (BASH_ENV): where the ENTRYPOINT is another, as under SageMaker's
# Python SDK 3, the first bash has the decision made. Afterwards this costs a look at two files.
if [ -r "${CUDA_COMPAT_DRIVER:-/proc/driver/nvidia/version}" ]; then
    { IFS= read -r CUDA_COMPAT_NOW < "${CUDA_COMPAT_DRIVER:-/proc/driver/nvidia/version}"; } 2> /dev/null || :
    { IFS= read -r CUDA_COMPAT_THEN < "${CUDA_COMPAT_CONF:-/etc/ld.so.conf.d/00-cuda-compat.conf}"; } 2> /dev/null || :
    [ "# ${CUDA_COMPAT_NOW-}" = "${CUDA_COMPAT_THEN-}" ] || "${CUDA_COMPAT:-/usr/local/bin/cuda-compat}" --decide || :
    unset CUDA_COMPAT_NOW CUDA_COMPAT_THEN
fi
