"""nvcc compiles a kernel, links it and, where there is a GPU, the kernel runs."""

import pytest

KERNEL = r"""
#include <cstdio>
#include <cuda_runtime.h>
#include <vector>
__global__ void add(int n, const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += x[i];
}
int main() {
    int version = 0, devices = 0;
    cudaRuntimeGetVersion(&version);
    cudaError_t error = cudaGetDeviceCount(&devices);
    std::printf("runtime %d.%d devices %d\n", version / 1000, version % 1000 / 10, error == cudaSuccess ? devices : 0);
    if (error != cudaSuccess || devices == 0) return 0;
    const int n = 1000;
    std::vector<float> host(n, 1.5f);
    float *x, *y;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&y, n * sizeof(float));
    cudaMemcpy(x, host.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(y, host.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    add<<<(n + 255) / 256, 256>>>(n, x, y);
    cudaMemcpy(host.data(), y, n * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float value : host) sum += value;
    std::printf("sum %g %s\n", sum, cudaGetErrorString(cudaGetLastError()));
    return sum == 3000 ? 0 : 1;
}
"""


@pytest.fixture
def program(host, within):
    """The kernel above, compiled to a program by nvcc with nothing but its defaults."""
    host.check_output("mkdir -p /tmp/smoke_nvcc && printf %%s %s > /tmp/smoke_nvcc/add.cu", KERNEL)
    done = within(180, "cd /tmp/smoke_nvcc && nvcc -arch=sm_80 -o add add.cu")
    assert done.rc == 0, (done.stdout + done.stderr)[-2000:]
    yield "/tmp/smoke_nvcc/add"
    host.run("rm -rf /tmp/smoke_nvcc")


def test_release_is_the_planned_one(host, plan):
    assert f"release {plan['cuda']}," in host.check_output("nvcc --version")


def test_kernel_compiles_links_and_starts(host, program, plan):
    done = host.run(program)
    assert done.rc == 0, done.stdout + done.stderr
    assert f"runtime {plan['cuda']} devices" in done.stdout
    assert "not found" not in host.check_output("ldd %s", program)


@pytest.mark.usefixtures("requires_gpu")
def test_kernel_runs(host, program):
    assert "sum 3000 no error" in host.check_output(program)


def test_host_compiler(within):
    done = within(
        60, "cd /tmp && printf 'int main() { return 0; }' | g++ -x c++ -o smoke_gxx - && ./smoke_gxx; rm -f smoke_gxx"
    )
    assert done.rc == 0, done.stderr
