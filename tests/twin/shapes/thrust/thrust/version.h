#pragma once
#define THRUST_VERSION 100910
