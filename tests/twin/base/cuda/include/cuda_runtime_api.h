/* The few calls of the CUDA runtime that the stand-ins use. */
#ifndef CUDA_RUNTIME_API_H_
#define CUDA_RUNTIME_API_H_
#include <cuda_runtime.h>
#endif
