// bench/CMakeLists.txt sets compile definitions for this file only.
#include "bench/cli/build_info.h"

#include <halfstep/plugin_stamp.h>

#include "commit.h"

namespace hs::bench::cli {

const BuildInfo build_info = {
    .version = BUILD_VERSION,
    .commit = BUILD_COMMIT,
    .build_type = BUILD_TYPE,
    .compiler = BUILD_COMPILER,
    .flags = BUILD_FLAGS,
    .native = BUILD_NATIVE != 0,
    .cuda = BUILD_CUDA,
    .nvcc = BUILD_NVCC,
    .emulator = BUILD_EMULATOR,
    .plugin_stamp = HALFSTEP_PLUGIN_STAMP,
};

}  // namespace hs::bench::cli
