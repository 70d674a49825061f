#pragma once
#define SPDLOG_VER_MAJOR 1
#define SPDLOG_VER_MINOR 6
#define SPDLOG_VER_PATCH 0
