#include <mpi.h>
#include <nccl.h>

int main(int argc, char **argv) {
    int version = 0, rank = -1;
    if (MPI_Init(&argc, &argv) != MPI_SUCCESS || ncclGetVersion(&version) != ncclSuccess) return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return MPI_Finalize();
}
