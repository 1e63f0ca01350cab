# LENET_STATIC: makes the imported targets of gRPC, Protobuf, Abseil, OpenSSL, c-ares, RE2, SQLite and zlib stand for
# the distribution's archives. The packages' CMake files name the shared libraries alone, with the archives beside them.
set(OPENSSL_USE_STATIC_LIBS ON)
set(Protobuf_USE_STATIC_LIBS ON)
set(ZLIB_USE_STATIC_LIBS ON)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(SQLite3 3.35 REQUIRED)

# Follows what `target` links. A library without an archive stays shared. Collects the shared libraries replaced in the
# global property LENET_REPLACED.
function(lenet_prefer_archives target)
  if(NOT TARGET ${target})
    return()
  endif()
  get_target_property(visited ${target} LENET_ARCHIVES)
  if(visited)
    return()
  endif()
  set_target_properties(${target} PROPERTIES LENET_ARCHIVES ON)

  get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
  set(properties IMPORTED_LOCATION)
  if(configurations)
    list(TRANSFORM configurations PREPEND IMPORTED_LOCATION_ OUTPUT_VARIABLE located)
    list(APPEND properties ${located})
  endif()
  foreach(property IN LISTS properties)
    get_target_property(location ${target} ${property})
    string(REGEX REPLACE "\\.so[.0-9]*$" ".a" archive "${location}")
    if(location AND EXISTS "${archive}")
      set_target_properties(${target} PROPERTIES ${property} "${archive}")
      set_property(GLOBAL APPEND PROPERTY LENET_REPLACED "${location}")
    endif()
  endforeach()

  get_target_property(needs ${target} INTERFACE_LINK_LIBRARIES)
  if(needs)
    foreach(need IN LISTS needs)
      lenet_prefer_archives(${need})
    endforeach()
  endif()
endfunction()

lenet_prefer_archives(absl::statusor)
lenet_prefer_archives(absl::str_format)
lenet_prefer_archives(absl::time)
# Abseil's archives are not all position-independent, so a plug-in takes the shared libraries. Named ahead of the
# archives, they leave these nothing to define.
get_property(LENET_PLUGIN_LINK_OPTIONS GLOBAL PROPERTY LENET_REPLACED)
list(PREPEND LENET_PLUGIN_LINK_OPTIONS -Wl,--no-as-needed)

lenet_prefer_archives(gRPC::grpc++)
lenet_prefer_archives(gRPC::grpc++_reflection)
lenet_prefer_archives(SQLite::SQLite3)

# Comes from pkg-config, as flags.
find_library(LENET_RE2_ARCHIVE NAMES libre2.a)
if(LENET_RE2_ARCHIVE AND TARGET re2::re2)
  set_target_properties(re2::re2 PROPERTIES INTERFACE_LINK_LIBRARIES ${LENET_RE2_ARCHIVE})
endif()
