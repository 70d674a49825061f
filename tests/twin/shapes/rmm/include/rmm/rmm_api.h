#pragma once
#ifdef __cplusplus
extern "C" {
#endif
typedef enum { RMM_SUCCESS = 0, RMM_ERROR_CUDA_ERROR = 1, RMM_ERROR_NOT_INITIALIZED = 4 } rmmError_t;
const char *rmmGetErrorString(rmmError_t error);
int rmmTwinVersion(void);
int rmmTwinDriver(void);
#ifdef __cplusplus
}
#endif
