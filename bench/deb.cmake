# Debian packages of a build for /usr: the program, the library, and what compiles against it. docs/install.md says how to make
# them. MPI's module is in none: it would bring Open MPI to every machine.
find_program(dpkg_shlibdeps dpkg-shlibdeps)
find_program(file file)
if(NOT dpkg_shlibdeps OR NOT file)  # without them CPack would leave out what a package depends on
  message(STATUS "no Debian packages: they need dpkg-shlibdeps and file, of the packages dpkg-dev and file")
  return()
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL program library development)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS  # whatever the umask is
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_CONTACT "The halfstep authors <authors@halfstep.invalid>" CACHE STRING "Who made the packages, with an address")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SOURCE halfstep)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
# Program and headers go with the library that they were built with, to the version.
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_COMPONENT_PROGRAM_DEPENDS library)
set(CPACK_COMPONENT_DEVELOPMENT_DEPENDS library)

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME halfstep)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "curl | wget")  # data get
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "libhalfstep-dev, g++")  # kernel build
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION "deep-learning engine with every training-speed technique written out
The program halfstep-bench trains six models, with each technique for
training faster as a switch, and measures what each gains.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libhalfstep0)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "deep-learning engine: shared library
Tensors, autograd, kernels, models and loaders of data, for C++ programs.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libhalfstep-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "deep-learning engine: development files
Headers of the library, for programs and for kernels as plug-ins, and its
files for CMake and pkg-config.")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # it would stand before each of these

# What depends on the library, and that ldconfig wants to hear of it.
file(WRITE ${PROJECT_BINARY_DIR}/control/shlibs "libhalfstep 0 libhalfstep0 (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})\n")
file(WRITE ${PROJECT_BINARY_DIR}/control/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/control/shlibs ${PROJECT_BINARY_DIR}/control/triggers)
# Debian's changelog names the version alone: CHANGELOG.md has the rest.
file(STRINGS CHANGELOG.md released REGEX "^## \\[${PROJECT_VERSION}\\] - ")
string(REGEX REPLACE ".* - " "" released "${released}")
execute_process(COMMAND date -Rud "${released}" OUTPUT_VARIABLE released COMMAND_ERROR_IS_FATAL ANY)
file(WRITE ${PROJECT_BINARY_DIR}/changelog "halfstep (${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * CHANGELOG.md of the sources says what is new.

 -- ${CPACK_PACKAGE_CONTACT}  ${released}")
set(changelog ${PROJECT_BINARY_DIR}/changelog.Debian.gz)
execute_process(COMMAND gzip -9n INPUT_FILE ${PROJECT_BINARY_DIR}/changelog OUTPUT_FILE ${changelog} COMMAND_ERROR_IS_FATAL ANY)
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  set(folder ${CMAKE_INSTALL_DATADIR}/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  install(FILES ${changelog} DESTINATION ${folder} COMPONENT ${component})
  install(FILES LICENSE RENAME copyright DESTINATION ${folder} COMPONENT ${component})
endforeach()
if(NOT CMAKE_CROSSCOMPILING)
  install(CODE [[execute_process(COMMAND gzip -9nf $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/share/man/man1/halfstep-bench.1)]]
    COMPONENT program)
endif()
include(CPack)
