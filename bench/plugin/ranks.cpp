// ranks PLUGIN: two processes that talk through NCCL's network interface of a plugin (version 11), as NCCL would, with host
// memory: an all-reduce, a broadcast and a large send, each compared with what it has to be.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

typedef void (*Logger)(int, unsigned long, const char *, int, const char *, ...);

struct Properties {  // ncclNetProperties_v11_t; NCCL_NET_MAX_DEVS_PER_NIC is 4
    char *name, *path;
    uint64_t guid;
    int pointers, global, flush, speed, port;
    float latency;
    int comms, receives, device_type, device_version, count, devices[4];
    size_t most, most_collective;
    int requests;
};

struct Net {  // ncclNet_v11_t
    const char *name;
    int (*init)(void **, uint64_t, int *, Logger, void *);
    int (*devices)(int *);
    int (*properties)(int, Properties *);
    int (*listen)(void *, int, void *, void **);
    int (*connect)(void *, int, void *, void **, void **);
    int (*accept)(void *, void **, void **);
    int (*reg)(void *, void *, size_t, int, void **);
    int (*reg_dmabuf)(void *, void *, size_t, int, uint64_t, int, void **);
    int (*dereg)(void *, void *);
    int (*isend)(void *, void *, size_t, int, void *, void *, void **);
    int (*irecv)(void *, int, void **, size_t *, int *, void **, void **, void **);
    int (*iflush)(void *, int, void **, int *, void **, void **);
    int (*test)(void *, int *, int *);
    int (*close_send)(void *);
    int (*close_recv)(void *);
    int (*close_listen)(void *);
    int (*device_mr)(void *, void *, void **);
    int (*consumed)(void *, int, void *);
    int (*virtual_device)(int *, void *);
    int (*finalize)(void *);
};

static int rank;

static void log(int level, unsigned long, const char *, int, const char *format, ...) {
    if (rank != 0 && level > 2) return;
    char line[1024];
    va_list words;
    va_start(words, format);
    vsnprintf(line, sizeof line, format, words);
    va_end(words);
    if (level <= 2 || strstr(line, "Initializing") || strstr(line, "provider") || strstr(line, "transport")) printf("  %s\n", line);
}

static void need(int status, const char *what) {
    if (status == 0) return;
    printf("rank %d: %s failed with %d\n", rank, what, status);
    exit(1);
}

struct Link {
    Net *net;
    void *send = nullptr, *receive = nullptr;

    void move(const char *out, size_t sent, char *in, size_t taken) {
        void *out_handle = nullptr, *in_handle = nullptr, *sending = nullptr, *taking = nullptr;
        int size = 0, tag = 7, done = 0;
        void *data = in, *none = nullptr;
        if (sent) need(net->reg(send, const_cast<char *>(out), sent, 1, &out_handle), "regMr of a send");
        if (taken) need(net->reg(receive, in, taken, 1, &in_handle), "regMr of a receive");
        while (taken && !taking) need(net->irecv(receive, 1, &data, &taken, &tag, &in_handle, &none, &taking), "irecv");
        while (sent && !sending) need(net->isend(send, const_cast<char *>(out), sent, tag, out_handle, nullptr, &sending), "isend");
        while (taking || sending) {
            if (taking && (need(net->test(taking, &done, &size), "test of a receive"), done)) taking = nullptr;
            if (sending && (need(net->test(sending, &done, nullptr), "test of a send"), done)) sending = nullptr;
        }
        if (taken && static_cast<size_t>(size) != taken) need(1, "the size of a receive");
        if (sent) need(net->dereg(send, out_handle), "deregMr");
        if (taken) need(net->dereg(receive, in_handle), "deregMr");
    }
};

template <typename F> static void timed(const char *what, size_t bytes, F body) {
    auto begin = std::chrono::steady_clock::now();
    body();
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (rank == 0) printf("%s of %zu bytes: ok, %.3f s\n", what, bytes, seconds);
}

int main(int count, char **words) {
    int up[2], down[2];
    if (count != 2 || pipe(up) || pipe(down)) return 2;
    setvbuf(stdout, nullptr, _IOLBF, 0);
    pid_t child = fork();
    rank = child == 0;
    void *library = dlopen(words[1], RTLD_NOW);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
    Link link{static_cast<Net *>(dlsym(library, "ncclNetPlugin_v11"))};
    Net *net = link.net;
    if (!net) return fprintf(stderr, "no ncclNetPlugin_v11\n"), 1;
    int devices = 0;
    void *context = nullptr;
    int traffic_class = -1;  // ncclNetCommConfig_v11_t, undefined
    need(net->init(&context, 1, &traffic_class, log, nullptr), "init");
    need(net->devices(&devices), "devices");
    Properties about{};
    need(net->properties(0, &about), "getProperties");
    if (rank == 0) printf("%s: %d devices, the first is %s, pointers %d\n", net->name, devices, about.name, about.pointers);
    char own[128] = {}, other[128] = {};
    void *listener = nullptr, *ignored = nullptr;
    need(net->listen(context, 0, own, &listener), "listen");
    int to = rank ? up[1] : down[1], from = rank ? down[0] : up[0];
    if (write(to, own, sizeof own) != sizeof own || read(from, other, sizeof other) != sizeof other) return 1;
    while (!link.send || !link.receive) {
        if (!link.send) need(net->connect(context, 0, other, &link.send, &ignored), "connect");
        if (!link.receive) need(net->accept(listener, &link.receive, &ignored), "accept");
    }
    size_t numbers = 1 << 20;
    timed("all-reduce", numbers * sizeof(float), [&] {
        std::vector<float> mine(numbers), theirs(numbers);
        for (size_t i = 0; i < numbers; ++i) mine[i] = static_cast<float>((rank + 1) * (i % 1000));
        size_t bytes = numbers * sizeof(float);
        link.move(reinterpret_cast<char *>(mine.data()), bytes, reinterpret_cast<char *>(theirs.data()), bytes);
        for (size_t i = 0; i < numbers; ++i) need(mine[i] + theirs[i] != static_cast<float>(3 * (i % 1000)), "the sum");
    });
    for (size_t bytes : {size_t{4}, size_t{64} << 20, size_t{512} << 20}) {
        timed(bytes == 4 ? "broadcast" : "large send", bytes, [&] {
            std::vector<char> data(bytes);
            for (size_t i = 0; i < bytes; i += 4096) data[i] = rank ? 0 : static_cast<char>(i >> 12);
            if (rank == 0) link.move(data.data(), bytes, nullptr, 0);
            else link.move(nullptr, 0, data.data(), bytes);
            for (size_t i = 0; i < bytes; i += 4096) need(data[i] != static_cast<char>(i >> 12), "what arrived");
        });
    }
    char done = 1;
    if (write(to, &done, 1) != 1 || read(from, &done, 1) != 1) return 1;
    need(net->close_send(link.send), "closeSend");
    need(net->close_recv(link.receive), "closeRecv");
    need(net->close_listen(listener), "closeListen");
    need(net->finalize(context), "finalize");
    if (rank) return 0;
    int status = 0;
    waitpid(child, &status, 0);
    return status ? 1 : 0;
}
