#include <cnmem.h>
#include <cub/version.cuh>
#include <cuda.h>
#include <cuda_runtime.h>
#include <rmm/rmm_api.h>
#include <rmm/version_config.hpp>
#include <spdlog/version.h>
#include <thrust/version.h>

static_assert(SPDLOG_VER_MAJOR == 1 && SPDLOG_VER_MINOR == 6, "RMM is made for spdlog 1.6");
static_assert(CUB_VERSION == THRUST_VERSION, "Thrust takes the CUB of its own version");
static_assert(THRUST_VERSION == 100910, "RMM is made for Thrust 1.9.10");

const char *rmmGetErrorString(rmmError_t error) { return error == RMM_SUCCESS ? "RMM_SUCCESS" : cnmemTwinName(); }
int rmmTwinVersion(void) { return RMM_VERSION_MAJOR * 10000 + RMM_VERSION_MINOR * 100 + RMM_VERSION_PATCH; }
int rmmTwinDriver(void) {
    int version = 0;
    return cuDriverGetVersion(&version) ? -1 : version;
}
