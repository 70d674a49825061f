/* Stands in for the library of smdistributed-dataparallel: it needs Boost, MPI, NCCL and the CUDA runtime. */
int ncclGetVersion(int *version);
int cudaRuntimeGetVersion(int *version);
const char *boost_filesystem_version(void);
int MPI_Get_version(int *version, int *subversion);

__attribute__((visibility("default"))) int smddp_nccl(void) {
    int version = 0;
    return ncclGetVersion(&version) ? -1 : version;
}

__attribute__((visibility("default"))) const char *smddp_boost(void) { return boost_filesystem_version(); }

__attribute__((visibility("default"))) int smddp_mpi(void) {
    int major = 0, minor = 0;
    return MPI_Get_version(&major, &minor) ? -1 : major;
}

__attribute__((visibility("default"))) int smddp_cuda(void) {
    int version = -1;
    return cudaRuntimeGetVersion(&version) ? -1 : version;
}
