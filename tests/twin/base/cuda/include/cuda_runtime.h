/* The few calls of the CUDA runtime that the stand-ins use. */
#ifndef CUDA_RUNTIME_H_
#define CUDA_RUNTIME_H_
#define CUDART_VERSION 11030
#ifdef __cplusplus
extern "C" {
#endif
typedef int cudaError_t;
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *count);
const char *cudaGetErrorString(cudaError_t error);
#ifdef __cplusplus
}
#endif
#endif
