#pragma once
const char *cnmemTwinName(void);
