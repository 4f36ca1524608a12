# Installs a build and uses it from outside: cmake -D build=... -D work=... -D generator=... -D compiler=...
# -D flags=... -P test.cmake. `flags` are those that the library forces on its users: a sanitizer must be in both.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${output}\n${ARGV}: ${result}")
  endif()
endfunction()

file(REMOVE_RECURSE ${work})
run(${CMAKE_COMMAND} --install ${build} --prefix ${work}/prefix)
set(projects consumer)
if(NOT flags) # the headers are the same with and without a sanitizer: one check of them is enough
  list(APPEND projects consumer/headers)
endif()
foreach(project ${projects})
  run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/../${project} -B ${work}/${project} -G ${generator}
    -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_CXX_FLAGS=${flags} -D CMAKE_PREFIX_PATH=${work}/prefix)
  run(${CMAKE_COMMAND} --build ${work}/${project} --parallel 2)
endforeach()
run(${work}/consumer/consumer)
