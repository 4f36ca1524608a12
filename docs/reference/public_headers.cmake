# The headers for users, as `headers`: of an op the one that is called as its folder. Not what kernels share, or readers of
# data, and not what includes fmt, which a user of the library need not have.
# `cmake -P docs/reference/public_headers.cmake` prints them, for docs/reference/make.
get_filename_component(top ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(configure_depends CONFIGURE_DEPENDS)
endif()
file(GLOB headers ${configure_depends} RELATIVE ${top} ${top}/engine/*.h ${top}/models/*.h ${top}/data/*.h ${top}/data/*/*.h)
list(FILTER headers EXCLUDE REGEX "^engine/(check|cpu_features|crc32c|endian|input_file|output_file|printable|protobuf|temporary_path)\\.h")
list(FILTER headers EXCLUDE REGEX "^data/(io/(bus_error|mapped)|places|formats/(fit_image|image_file|record_format|shards)|loader/sample_cache)")
file(GLOB ops ${configure_depends} RELATIVE ${top}/kernels ${top}/kernels/*)
foreach(op IN LISTS ops)
  if(EXISTS ${top}/kernels/${op}/${op}.h)
    list(APPEND headers kernels/${op}/${op}.h)
  endif()
endforeach()

if(CMAKE_SCRIPT_MODE_FILE)
  list(JOIN headers "\n" lines)
  execute_process(COMMAND ${CMAKE_COMMAND} -E echo ${lines})
endif()
