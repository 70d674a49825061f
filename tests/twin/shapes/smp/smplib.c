/* Stands in for the library of smdistributed-modelparallel: it needs METIS and RMM from the loader path. */
#include <stdint.h>

int METIS_SetDefaultOptions(int32_t *options);
int rmmTwinVersion(void);

__attribute__((visibility("default"))) int smp_metis(void) {
    int32_t options[40];
    return METIS_SetDefaultOptions(options);
}

__attribute__((visibility("default"))) int smp_rmm(void) { return rmmTwinVersion(); }
