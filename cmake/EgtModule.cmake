# egt_module(NAME [COLD] SOURCES file.. [LINKS target..] [PRIVATE_LINKS target..]): the static library egt_NAME.
# COLD: code that runs once, waits, or only enqueues work is compiled with -Og, and with EGT_UNITY uses one precompiled
# header. Other modules have other flags, with which GCC 12 fails on that header.
function(egt_module name)
  cmake_parse_arguments(module "COLD" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  add_library(egt_${name} STATIC ${module_SOURCES})
  target_link_libraries(egt_${name} PUBLIC ${module_LINKS} PRIVATE ${module_PRIVATE_LINKS})
  if(module_COLD AND CMAKE_BUILD_TYPE STREQUAL "Release")
    # GCC's flow analysis is less exact there, and warns of values that are always set.
    target_compile_options(egt_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Og -Wno-maybe-uninitialized>)
  endif()
  egt_unite(egt_${name})
  if(NOT EGT_UNITY OR NOT module_COLD OR EGT_CCACHE)  # ccache does not cache files with a precompiled header
    return()
  endif()
  get_property(first GLOBAL PROPERTY EGT_PRECOMPILED_modules)
  if(first)
    target_precompile_headers(egt_${name} REUSE_FROM ${first})
  else()
    target_precompile_headers(egt_${name} PRIVATE <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable>
      <deque> <filesystem> <functional> <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string>
      <string_view> <thread> <tuple> <utility> <vector> <fmt/format.h> <nlohmann/json.hpp>)
    set_property(GLOBAL PROPERTY EGT_PRECOMPILED_modules egt_${name})
  endif()
endfunction()

# egt_unite(TARGET [ALONE file..]): with EGT_UNITY the target's files are compiled in units of twelve, in the listed order.
# Each unit compiles the library templates once, and a changed file costs one unit. ALONE: files whose names clash with
# those of others.
function(egt_unite target)
  cmake_parse_arguments(unite "" "" "ALONE" ${ARGN})
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${EGT_UNITY} UNITY_BUILD_BATCH_SIZE 12)
  if(EGT_UNITY)  # anonymous namespaces are then not in the main file
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
  set_source_files_properties(${unite_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
