/* Stands in for the CUDA runtime: its version, and the answer of a machine without a driver. */
#include <cuda_runtime.h>

enum { NO_DEVICE = 100 };

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return 0;
}
cudaError_t cudaDriverGetVersion(int *version) {
    *version = 0;
    return 0;
}
cudaError_t cudaGetDeviceCount(int *count) {
    *count = 0;
    return NO_DEVICE;
}
const char *cudaGetErrorString(cudaError_t error) {
    return error == NO_DEVICE ? "no CUDA-capable device is detected" : "no error";
}
