/* libcudart.so for a machine without a GPU: enough of the runtime for NCCL's plugin to start. Every function of the
   driver succeeds, and no device has GPUDirect, so the plugin moves host memory only. */
#include <string.h>

static int succeed(void) { return 0; }
static int driver_version(int *version) { return *version = 13000, 0; }
static int number_zero(int *number) { return *number = 0, 0; }
static int no_attribute(int *value, int attribute, int device) { return *value = 0, (void)attribute, (void)device, 0; }

int cudaRuntimeGetVersion(int *version) { return *version = 13000, 0; }

int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *status) {
    (void)flags;
    *function = (void *)succeed;
    if (!strcmp(name, "cuDriverGetVersion")) *function = (void *)driver_version;
    if (!strcmp(name, "cuCtxGetDevice")) *function = (void *)number_zero;
    if (!strcmp(name, "cuDeviceGetAttribute")) *function = (void *)no_attribute;
    if (status) *status = 0;
    return 0;
}

int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags, int *status) {
    (void)version;
    return cudaGetDriverEntryPoint(name, function, flags, status);
}
