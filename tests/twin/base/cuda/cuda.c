/* Stands in for the driver's library: DRIVER is the CUDA version that it answers with, 0 for the stub. */
#include <cuda.h>

CUresult cuInit(unsigned int flags) { return flags || !DRIVER ? 100 : 0; }
CUresult cuDriverGetVersion(int *version) {
    *version = DRIVER;
    return DRIVER ? 0 : 34;
}
