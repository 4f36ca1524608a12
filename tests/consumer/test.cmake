# Installs a build and uses it from outside: cmake -D build=... -D work=... -D generator=... -D compiler=...
# -D flags=... -P test.cmake. `flags` are those that the library forces on its users: a sanitizer must be in both.
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${output}\n${ARGV}: ${result}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(build_project source name compiler) # and arguments for CMake
  run(${CMAKE_COMMAND} -S ${source} -B ${work}/${name} -G ${generator} -D CMAKE_BUILD_TYPE=Release
    -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_CXX_FLAGS=${flags} -D CMAKE_PREFIX_PATH=${work}/prefix ${ARGN})
  string(REGEX MATCHALL "skipped:[^\n]*" skipped "${output}")
  if(skipped)
    message("${skipped}")
  endif()
  run(${CMAKE_COMMAND} --build ${work}/${name} --parallel 2)
endfunction()

set(page docs/use_as_a_library.md)
get_filename_component(top ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)

# The first block of the page that contains `key`.
function(extract_block key file)
  file(READ ${top}/${page} text)
  string(FIND "${text}" "${key}" place)
  if(place EQUAL -1)
    message(FATAL_ERROR "${page}: no block with ${key}")
  endif()
  string(SUBSTRING "${text}" 0 ${place} before)
  string(FIND "${before}" "```" begin REVERSE)
  string(SUBSTRING "${text}" ${begin} -1 block)
  string(REGEX REPLACE "^```[a-z]+\n" "" block "${block}")
  string(FIND "${block}" "```" end)
  string(SUBSTRING "${block}" 0 ${end} block)
  file(WRITE ${file} "${block}")
endfunction()

file(REMOVE_RECURSE ${work})
run(${CMAKE_COMMAND} --install ${build} --prefix ${work}/prefix)

# An empty or relative element of a search path for libraries is the current folder, whose files would run as code.
find_program(readelf readelf)
if(readelf)
  file(GLOB built ${build}/*.so* ${build}/bench/halfstep-bench ${build}/tests/test_* ${build}/tests/*.so ${work}/prefix/bin/*)
  execute_process(COMMAND ${readelf} -d ${built} OUTPUT_VARIABLE output ERROR_QUIET)  # some are folders
  string(REGEX MATCH "R(UN)?PATH\\)[^\n]*path: \\[([^\n]*:)?[^/$][^\n]*" wrong "${output}")
  if(wrong OR NOT output MATCHES "RUNPATH")
    message(FATAL_ERROR "libraries are looked for in the current folder: ${wrong}")
  endif()
endif()

# Every header that the book's chapters name, so that a program can have every technique.
file(READ ${top}/docs/README.md text)
string(REGEX MATCHALL "`(engine|models|data)/[a-z_/]+\\.h`" named "${text}")
foreach(header IN LISTS named)
  string(REPLACE "`" "" header ${header})
  if(NOT EXISTS ${work}/prefix/include/halfstep/${header})
    message(FATAL_ERROR "docs/README.md names ${header}, which is not installed")
  endif()
endforeach()

# The page's first program learns, and its CMakeLists.txt finds the library.
extract_block("int main" ${work}/page/main.cpp)
extract_block("find_package" ${work}/page/CMakeLists.txt)
build_project(${work}/page page_build ${compiler})
run(${work}/page_build/my_program)
if(NOT output MATCHES "test accuracy (9[0-9]|100)")
  message(FATAL_ERROR "the program of ${page}: expected a test accuracy of 90 % or more, but it says\n${output}")
endif()

# So do its other programs that train; the regression comes back from its file.
foreach(key "class Waves" "Tensor loss(")
  extract_block("${key}" ${work}/page/main.cpp)
  run(${CMAKE_COMMAND} --build ${work}/page_build)
  run(${CMAKE_COMMAND} -E chdir ${work} ${work}/page_build/my_program)
  if(NOT output MATCHES "test accuracy (9[0-9]|100)" AND
      NOT (output MATCHES "test loss (0.0[0-9]+), and (0.0[0-9]+) from the file" AND CMAKE_MATCH_1 EQUAL CMAKE_MATCH_2))
    message(FATAL_ERROR "the program of ${page} with ${key}: expected it to have learnt, but it says\n${output}")
  endif()
endforeach()

# The same without CMake.
find_program(pkg_config pkg-config)
if(pkg_config)
  file(GLOB pc ${work}/prefix/lib*/pkgconfig ${work}/prefix/lib/*/pkgconfig)
  run(${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${pc} ${pkg_config} --cflags --libs halfstep)
  separate_arguments(words UNIX_COMMAND "${output}")
  run(${compiler} ${flags} -std=c++20 ${work}/page/main.cpp -o ${work}/with_pkg_config ${words})
endif()

# The same in a project that these sources are part of, with flags of its own and no build type. The library is not built
# again, only what decides how it is.
extract_block("add_subdirectory" ${work}/embedded/CMakeLists.txt)
file(COPY ${work}/page/main.cpp DESTINATION ${work}/embedded)
file(CREATE_LINK ${top} ${work}/embedded/halfstep SYMBOLIC)
set(fast fast-math)
run(${CMAKE_COMMAND} -S ${work}/embedded -B ${work}/embedded_build -G Ninja -D CMAKE_CXX_COMPILER=${compiler}
  -D "CMAKE_CXX_FLAGS=-fvisibility=hidden -f${fast}" -D HALFSTEP_CUDA=OFF)
run(${CMAKE_COMMAND} --build ${work}/embedded_build --target CMakeFiles/my_program.dir/main.cpp.o)
file(STRINGS ${work}/embedded_build/CMakeCache.txt type REGEX "^CMAKE_BUILD_TYPE:.*=.")
file(STRINGS ${work}/embedded_build/compile_commands.json hidden REGEX "command.*-fvisibility=hidden")
list(FILTER hidden EXCLUDE REGEX "-fvisibility=default")  # which comes after it
file(STRINGS ${work}/embedded_build/compile_commands.json inexact REGEX "command.*-f${fast}")
list(FILTER inexact EXCLUDE REGEX "-f${fast}.* -fno-${fast} .*-fno-math-errno|my_program")
if(type OR hidden OR inexact)
  message(FATAL_ERROR "embedded: expected no build type, no hidden names and exact arithmetic in the library, but found "
    "${type} ${hidden} ${inexact}")
endif()

# The page's other program reads a digit with a model that halfstep-bench has trained on generated ones.
if(EXISTS ${work}/prefix/bin/halfstep-bench)
  run(${CMAKE_COMMAND} -E env --unset=HALFSTEP_DATA HOME=${work} ${work}/prefix/bin/halfstep-bench train --train 2000 --test 100
    --epochs 2 --quiet --save-model ${work}/digits.safetensors)
  extract_block("hs::load_model(" ${work}/page_model/main.cpp)
  extract_block("find_package" ${work}/page_model/CMakeLists.txt)
  build_project(${work}/page_model page_model_build ${compiler})
  run(${CMAKE_COMMAND} -E chdir ${work} ${work}/page_model_build/my_program)
  if(NOT output MATCHES "^a ([0-9]), read as ([0-9])" OR NOT CMAKE_MATCH_1 EQUAL CMAKE_MATCH_2)
    message(FATAL_ERROR "the program of ${page} with a trained model: expected a digit read right, but it says\n${output}")
  endif()
endif()

# What belongs to the program came with it, and is found from there.
if(EXISTS ${work}/prefix/bin/halfstep-bench)
  foreach(part halfstep/get halfstep/recipes/mnist_99.json man/man1/halfstep-bench.1* bash-completion/completions/halfstep-bench)
    file(GLOB size ${work}/prefix/share/${part})
    if(NOT size)
      message(FATAL_ERROR "share/${part} is not installed")
    endif()
  endforeach()
  set(program ${CMAKE_COMMAND} -E env --unset=HALFSTEP_DATA HOME=${work} ${work}/prefix/bin/halfstep-bench)
  run(${program} train --recipe mnist_99 --data synthetic --train 64 --test 10 --epochs 1 --quiet --json -)
  if(NOT output MATCHES "${work}/prefix/share/halfstep/recipes/mnist_99.json")
    message(FATAL_ERROR "--recipe mnist_99: expected the one that is installed, but it says\n${output}")
  endif()
  execute_process(COMMAND ${program} data get nothing ERROR_VARIABLE output)
  if(NOT output MATCHES "^halfstep-bench data get: no data set is called 'nothing'")
    message(FATAL_ERROR "data get: expected the script that is installed, but it says\n${output}")
  endif()
endif()

# A kernel in one file, built, timed and trained with by the installed program, in a folder that has nothing else.
if(EXISTS ${work}/prefix/bin/halfstep-bench)
  set(page docs/add_a_kernel.md)
  extract_block("#include <halfstep/kernel.h>" ${work}/plugin/my_relu.cpp)
  foreach(command "kernel build my_relu.cpp" "bench ops --plugin my_relu.so --type f32 --batch 1 --rounds 3 --seconds 0"
      "train --plugin my_relu.so --kernel relu_forward=my_relu --fuse off --train 640 --test 100 --epochs 1 --json -")
    separate_arguments(words UNIX_COMMAND "${command}")
    run(${CMAKE_COMMAND} -E chdir ${work}/plugin ${CMAKE_COMMAND} -E env --unset=HALFSTEP_DATA HOME=${work}
      ${work}/prefix/bin/halfstep-bench ${words})
    if(NOT output MATCHES "my_relu")
      message(FATAL_ERROR "${command}: expected to read of my_relu, but it says\n${output}")
    endif()
  endforeach()
endif()

# Every way of compiling, by both compilers. With a sanitizer only as the library was: the others are the same code.
set(compilers ${compiler})
if(NOT flags)
  execute_process(COMMAND ${compiler} --version OUTPUT_VARIABLE version)
  set(other clang++)
  if(version MATCHES clang)
    set(other g++)
  endif()
  find_program(other_compiler ${other})
  if(other_compiler)
    list(APPEND compilers ${other_compiler})
    # A program may be compiled by what is too old for the library, which is refused before minutes of compiling.
    execute_process(COMMAND ${other_compiler} -dumpversion OUTPUT_VARIABLE version)
    if(other STREQUAL clang++ AND version VERSION_LESS 16)
      execute_process(COMMAND ${CMAKE_COMMAND} -S ${top} -B ${work}/old -G ${generator} -D CMAKE_CXX_COMPILER=${other_compiler}
        OUTPUT_QUIET ERROR_VARIABLE output)
      if(NOT output MATCHES "GCC 12 or Clang 16")
        message(FATAL_ERROR "${other_compiler} is not refused: ${output}")
      endif()
    endif()
  else()
    message("skipped: there is no ${other} to compile a user's program with")
  endif()
endif()
set(number 0)
foreach(one ${compilers})
  math(EXPR number "${number} + 1")
  build_project(${CMAKE_CURRENT_LIST_DIR} consumer${number} ${one})
  run(${CMAKE_CTEST_COMMAND} --test-dir ${work}/consumer${number} --output-on-failure)
  if(NOT flags)
    build_project(${CMAKE_CURRENT_LIST_DIR}/headers headers${number} ${one} -D number=${number})
  endif()
endforeach()
