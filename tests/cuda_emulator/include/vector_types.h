#pragma once
#include "emulator/vector_types.h"
