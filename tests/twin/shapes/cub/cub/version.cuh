#pragma once
#define CUB_VERSION 100910
