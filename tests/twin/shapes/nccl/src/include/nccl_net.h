#ifndef NCCL_NET_H_
#define NCCL_NET_H_
#include "nccl.h"
/* The name under which this NCCL looks for the plugin. */
#define NCCL_PLUGIN_SYMBOL ncclNetPlugin_v4
#endif
