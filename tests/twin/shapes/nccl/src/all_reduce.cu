#include "nccl.h"

extern "C" __attribute__((visibility("default"))) int ncclTwinSum(const int *values, int count) {
    int sum = 0;
    for (int i = 0; i < count; i++) sum += values[i];
    return sum;
}
