#include "nccl.h"

#define API extern "C" __attribute__((visibility("default")))

API ncclResult_t ncclGetVersion(int *version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

API const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclSuccess ? "no error" : "unhandled error";
}

/* For which architectures the device code was compiled, as the build was told. */
API const char *ncclTwinGencode(void) { return GENCODE; }
