/* Prints the resolution of the monotonic clock in nanoseconds. */
#include <stdio.h>
#include <string.h>
#include <time.h>

int main(int argc, char **argv) {
    struct timespec resolution;
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        puts("host-clock " VERSION);
        return 0;
    }
    if (clock_getres(CLOCK_MONOTONIC, &resolution) != 0) {
        perror("clock_getres");
        return 1;
    }
    printf("%ld\n", resolution.tv_sec * 1000000000L + resolution.tv_nsec);
    return 0;
}
