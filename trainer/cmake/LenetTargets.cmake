# Settings and helpers that every target of the project shares.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

find_program(LENET_CCACHE ccache)
if(LENET_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without this it would not keep what is compiled with a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${LENET_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${LENET_CCACHE})
endif()

# Where the executables of the build tree find the plug-ins.
set(LENET_PLUGIN_BUILD_DIR ${PROJECT_BINARY_DIR}/plugins)

add_library(lenet_options INTERFACE)
target_include_directories(lenet_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(lenet_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-missing-field-initializers>)
if(LENET_WERROR)
  target_compile_options(lenet_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(LENET_SANITIZE)
  add_compile_options(
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LENET_SANITIZE}>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=undefined>)
  # A null pointer that is used ends AddressSanitizer's run too, and the type behind a vptr cannot be told in libraries
  # built without it; together they take a quarter of the time to compile.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=null,vptr>)
  add_link_options(-fsanitize=${LENET_SANITIZE})
endif()

find_package(Threads REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
find_package(absl CONFIG REQUIRED)
if(LENET_STATIC)
  include(StaticArchives)
  add_link_options(-Wl,--gc-sections -Wl,--as-needed)
  # Keeps a plug-in's copies of archives out of its exports. An old-style run path also serves the libraries that a
  # plug-in's libraries need.
  list(APPEND LENET_PLUGIN_LINK_OPTIONS -Wl,--exclude-libs,ALL -Wl,--disable-new-dtags)
endif()

# lenet_library(NAME SOURCES ... PUBLIC ... PRIVATE ...): a static library with the project's settings. PUBLIC are the
# libraries that its headers need, PRIVATE those that its sources alone need.
function(lenet_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC lenet_options ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  if(LENET_FUZZERS)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
  endif()
endfunction()

# All that deploy/bundle.sh installs: programs, plug-ins, GPU tests and benchmarks.
add_custom_target(bundle)

# lenet_program(NAME SOURCES ... PRIVATE ...): an executable that is installed to bin/.
function(lenet_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PRIVATE" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE lenet_options ${ARG_PRIVATE})
  install(TARGETS ${name} RUNTIME DESTINATION bin COMPONENT ${name})
  add_dependencies(bundle ${name})
endfunction()

# lenet_man_pages(PROGRAM PAGE...): writes and installs manual pages, from their templates in deploy/man and from what
# the program, of this folder, tells of itself.
function(lenet_man_pages program)
  set(generator ${PROJECT_SOURCE_DIR}/deploy/man/generate.py)
  foreach(page IN LISTS ARGN)
    set(template ${PROJECT_SOURCE_DIR}/deploy/man/${page}.in)
    set(output ${CMAKE_CURRENT_BINARY_DIR}/man/${page})
    set_property(TARGET ${program} APPEND PROPERTY LINK_DEPENDS ${generator} ${template})
    add_custom_command(TARGET ${program} POST_BUILD
      COMMAND Python3::Interpreter -B ${generator} ${template} ${output} --version ${PROJECT_VERSION}
        --program ${program}=$<TARGET_FILE:${program}>
      VERBATIM)
    string(REGEX MATCH "[0-9]$" section ${page})
    install(FILES ${output} DESTINATION share/man/man${section} COMPONENT ${program})
  endforeach()
endfunction()

# lenet_plugin(NAME COMPONENT ... SOURCES ... PRIVATE ...): a backend's library, loaded at run time. Installed, it looks
# for the libraries it needs beside itself first.
function(lenet_plugin name)
  cmake_parse_arguments(ARG "" "COMPONENT" "SOURCES;PRIVATE" ${ARGN})
  add_library(${name} MODULE ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE lenet_options ${ARG_PRIVATE})
  target_link_options(${name} PRIVATE ${LENET_PLUGIN_LINK_OPTIONS})
  set_target_properties(${name} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${LENET_PLUGIN_BUILD_DIR}
    INSTALL_RPATH "$ORIGIN"
    INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS ${name} LIBRARY DESTINATION lib/lenet COMPONENT ${ARG_COMPONENT})
  add_dependencies(bundle ${name})
endfunction()
