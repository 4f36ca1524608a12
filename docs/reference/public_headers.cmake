# The headers for users, as `headers`: of an op the one that is called as its folder. Not what kernels share, or readers of
# data, and not what includes fmt, which a user of the library need not have. What kernels share is in `kernel_headers`, for
# plug-ins; not in the reference, as the kernels are its readers, and not engine/check.h, which is fmt: a plug-in throws Error.
# `cmake -P docs/reference/public_headers.cmake` prints them, for docs/reference/make. With `-D copies=FOLDER` it writes copies,
# changed in two places. They include each other as <halfstep/engine/tensor.h>, so that a user's project may have folders called
# engine and data as well. Their namespace has default visibility: whatever -fvisibility a user compiles with, slots and
# everything else that is inline exist once, shared with the library. halfstep/halfstep.h includes all of `headers`, and
# halfstep/kernel.h those of plug-ins too: it marks what includes it with -D version, -D compiler and -D cuda of this library, and
# with what all these headers are, as an object file depends on each of their types.
get_filename_component(top ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(configure_depends CONFIGURE_DEPENDS)
endif()
file(GLOB headers ${configure_depends} RELATIVE ${top} ${top}/engine/*.h ${top}/engine/*/*.h ${top}/models/*.h ${top}/models/*/*.h ${top}/data/*.h ${top}/data/*/*.h)
list(FILTER headers EXCLUDE REGEX "^engine/(check|cpu_features|parsed_number|printable|registration|files/(crc32c|endian|input_file|output_file|protobuf))\\.h")
list(FILTER headers EXCLUDE REGEX "^data/(io/mapped|formats/(fit_image|image_file|ink|record_format|shards))")
foreach(name optimizer schedule)
  list(APPEND headers kernels/optimizer/${name}.h)
endforeach()
list(REMOVE_ITEM headers models/files/metadata.h models/training/captured_step.h models/training/loss_log.h models/training/rank_step.h models/training/step_runner.h models/training/training_run.h)
file(GLOB ops ${configure_depends} RELATIVE ${top}/kernels ${top}/kernels/*)
foreach(op IN LISTS ops)
  if(EXISTS ${top}/kernels/${op}/${op}.h AND NOT op STREQUAL optimizer)
    list(APPEND headers kernels/${op}/${op}.h)
  endif()
endforeach()

set(kernel_headers kernels/cpu/convert.h kernels/cpu/elements.h kernels/examples/compare.h kernels/examples/op_table.h
  kernels/examples/register.h)
set(cuda_headers engine/cuda.cuh kernels/cuda/columns.cuh kernels/cuda/cuda.cuh kernels/cuda/index.h kernels/cuda/mma.cuh
  kernels/cuda/shared.cuh)

if(NOT CMAKE_SCRIPT_MODE_FILE)
  return()
endif()
cmake_minimum_required(VERSION 3.25)
if(NOT copies)
  list(JOIN headers "\n" lines)
  execute_process(COMMAND ${CMAKE_COMMAND} -E echo ${lines})
  return()
endif()

# Writes only what has changed, so that nothing else is compiled anew.
function(write file text)
  set(before)
  if(EXISTS ${file})
    file(READ ${file} before)
  endif()
  if(NOT before STREQUAL text)
    file(WRITE ${file} "${text}")
  endif()
endfunction()

set(all_text "${version} ${compiler} ${cuda}")
set(umbrella "// All of halfstep.\n#pragma once\n\n")
foreach(header IN LISTS headers kernel_headers cuda_headers)
  file(READ ${top}/${header} text)
  string(REGEX REPLACE "#include \"((engine|kernels|models|data)/[^\"]+)\"" "#include <halfstep/\\1>" text "${text}")
  if(header MATCHES "^kernels/cuda/(mma|shared)\\.cuh")  # the emulator has its own
    set(text "#ifdef HALFSTEP_CUDA_EMULATED\n#include \"${header}\"\n#else\n${text}#endif\n")
  endif()
  set(visible "\nnamespace hs __attribute__((visibility(\"default\"))) {")
  string(REPLACE "\nnamespace hs {" "${visible}" text "${text}")
  string(REGEX REPLACE "\nnamespace hs::([a-z]+) {" "${visible} namespace \\1 {" text "${text}")
  string(REGEX REPLACE "\n}(  // namespace hs::[a-z]+\n)" "\n}}\\1" text "${text}")
  write(${copies}/halfstep/${header} "${text}")
  string(APPEND all_text "${text}")
  if(header IN_LIST headers)
    string(APPEND umbrella "#include <halfstep/${header}>\n")
  endif()
endforeach()
write(${copies}/halfstep/halfstep.h "${umbrella}")

string(SHA256 abi "${all_text}")
string(SUBSTRING ${abi} 0 16 abi)
write(${copies}/halfstep/plugin_stamp.h "// What a plug-in has in it, and the library that may load it.
#pragma once
#define HALFSTEP_PLUGIN_STAMP \"halfstep plug-in for ${version} ${abi}\"
")
list(JOIN kernel_headers ">\n#include <halfstep/" for_cpu)
write(${copies}/halfstep/kernel.h "// What a kernel outside of halfstep includes: `halfstep-bench kernel build` compiles it, --plugin loads it.
#pragma once

#include <halfstep/halfstep.h>
#ifdef HALFSTEP_CUDA_PLUGIN  // which `kernel build` says of a .cu file
#include <halfstep/kernels/cuda/cuda.cuh>
#include <halfstep/kernels/examples/register.h>
#else
#include <halfstep/${for_cpu}>
#endif
#include <halfstep/plugin_stamp.h>

namespace hs __attribute__((visibility(\"default\"))) {

// Read from the file before it is loaded.
[[gnu::used]] inline constexpr char plugin_stamp[] = HALFSTEP_PLUGIN_STAMP;

}  // namespace hs
")
file(GLOB_RECURSE gone RELATIVE ${copies}/halfstep ${copies}/halfstep/*.h ${copies}/halfstep/*.cuh)
list(REMOVE_ITEM gone halfstep.h kernel.h plugin_stamp.h ${headers} ${kernel_headers} ${cuda_headers})
foreach(header IN LISTS gone)
  file(REMOVE ${copies}/halfstep/${header})
endforeach()
file(TOUCH ${copies}/written)
