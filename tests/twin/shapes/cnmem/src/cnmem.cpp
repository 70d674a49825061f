#include <cnmem.h>
const char *cnmemTwinName(void) { return "CNMEM_STATUS"; }
