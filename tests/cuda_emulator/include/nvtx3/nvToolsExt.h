// Stand-in for NVTX: ranges go to whoever has asked for them (emulator/emulator.h).
#pragma once

int nvtxRangePushA(const char* name);
int nvtxRangePop();
