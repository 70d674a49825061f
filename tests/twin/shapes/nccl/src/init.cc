#include "nccl.h"
#include "nccl_net.h"

#include <dlfcn.h>

#define STR2(v) #v
#define STR(v) STR2(v)
#define API extern "C" __attribute__((visibility("default")))

API ncclResult_t ncclGetVersion(int *version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

API const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclSuccess ? "no error" : "unhandled cuda error";
}

/* As initNetPlugin in NCCL v2.10.3-1, src/init.cc: the interface of src/include/nccl_net.h, asked for by its name. */
API void *ncclTwinNetPlugin(void) {
    void *library = dlopen("libnccl-net.so", RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, STR(NCCL_PLUGIN_SYMBOL)) : nullptr;
}

/* For which architectures the device code was compiled, as the build was told. */
API const char *ncclTwinGencode(void) { return GENCODE; }
