// Stands in for the plugin: NCCL looks for these symbols; libfabric and hwloc are linked, the CUDA runtime is looked for
// when it starts (--enable-cudart-dynamic).
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <hwloc.h>
#include <rdma/fabric.h>

#define PLUGIN extern "C" __attribute__((visibility("default")))

static const char version[] = "NET/OFI Initializing aws-ofi-nccl " VERSION;

struct twin_net {
    const char *says;
    int (*init)();
    int (*devices)(int *);
};

static int init() {
    hwloc_topology_t topology;
    void *runtime = dlopen("libcudart.so", RTLD_NOW);
    if (!runtime || !dlsym(runtime, "cudaGetDriverEntryPoint")) return 1;
    return hwloc_topology_init(&topology);
}

static int devices(int *count) {
    struct fi_info *found = nullptr, *each;
    int status = fi_getinfo(FI_VERSION(1, 22), nullptr, nullptr, 0, nullptr, &found);
    *count = 0;
    for (each = found; each; each = each->next) ++*count;
    if (found) fi_freeinfo(found);
    return status;
}

// src/nccl_ofi_interface_nvidia.cpp and src/tuner/nccl_ofi_tuner.cpp of v1.21.1 have these, and older ones.
PLUGIN const twin_net ncclNetPlugin_v10 = {version, init, devices};
PLUGIN const twin_net ncclNetPlugin_v11 = {version, init, devices};
PLUGIN const twin_net ncclNetPlugin_v12 = {version, init, devices};
PLUGIN const twin_net ncclTunerPlugin_v3 = {version, init, devices};
PLUGIN const twin_net ncclTunerPlugin_v6 = {version, init, devices};
