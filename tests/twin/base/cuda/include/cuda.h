/* The few calls of the driver that the stand-ins use. */
#ifndef CUDA_H_
#define CUDA_H_
#define CUDA_VERSION 11030
#ifdef __cplusplus
extern "C" {
#endif
typedef int CUresult;
CUresult cuInit(unsigned int flags);
CUresult cuDriverGetVersion(int *version);
#ifdef __cplusplus
}
#endif
#endif
