# Writes a header with the commit of the sources: cmake -D source=... -D header=... -P write_commit.cmake
# "-dirty" means that a file that goes into the program differs from that commit. Without git: "unknown".
cmake_minimum_required(VERSION 3.25)

function(git result)
  execute_process(COMMAND git --no-optional-locks -C ${source} ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output
    ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(status EQUAL 0)
    set(${result} "${output}" PARENT_SCOPE)
  else()
    set(${result} "failed" PARENT_SCOPE)
  endif()
endfunction()

set(commit unknown)
git(to_top rev-parse --show-cdup)
if(to_top STREQUAL "")  # else the sources were unpacked somewhere below another project's checkout
  git(head rev-parse --short=12 HEAD)
  git(changes status --porcelain -- CMakeLists.txt engine kernels models data bench/CMakeLists.txt bench/*.cpp bench/*.h
    bench/report/report.html)
  if(NOT head STREQUAL "failed")
    set(commit ${head})
    if(NOT changes STREQUAL "")
      string(APPEND commit -dirty)
    endif()
  endif()
endif()

file(CONFIGURE OUTPUT ${header} CONTENT "#define BUILD_COMMIT \"@commit@\"\n" @ONLY)  # touches it only on a change
