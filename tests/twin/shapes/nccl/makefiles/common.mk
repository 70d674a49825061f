CUDA_HOME ?= /usr/local/cuda
PREFIX ?= /usr/local
NVCC := $(CUDA_HOME)/bin/nvcc
NVCC_GENCODE ?= -gencode=arch=compute_35,code=sm_35 -gencode=arch=compute_60,code=sm_60 \
    -gencode=arch=compute_70,code=sm_70 -gencode=arch=compute_80,code=sm_80
CXXFLAGS := -I$(CUDA_HOME)/include -fPIC -fvisibility=hidden -O2 -Wall -std=c++11
NVCUFLAGS := $(NVCC_GENCODE) -std=c++11 -Xcompiler -fPIC -O2
