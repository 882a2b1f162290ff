# egt_module(NAME [COLD] SOURCES file.. [LINKS target..] [PRIVATE_LINKS target..]): the static library egt_NAME.
# COLD: what runs once, waits for people or devices, or only hands them work is compiled fast, and with EGT_UNITY behind one
# precompiled header; other rooms have other flags, which GCC 12 fails on there.
function(egt_module name)
  cmake_parse_arguments(module "COLD" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  add_library(egt_${name} STATIC ${module_SOURCES})
  target_link_libraries(egt_${name} PUBLIC ${module_LINKS} PRIVATE ${module_PRIVATE_LINKS})
  if(module_COLD AND CMAKE_BUILD_TYPE STREQUAL "Release")
    # GCC's flow analysis is less exact there, and warns of values that are always set.
    target_compile_options(egt_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Og -Wno-maybe-uninitialized>)
  endif()
  egt_unite(egt_${name})
  if(NOT EGT_UNITY OR NOT module_COLD OR EGT_CCACHE)  # which keeps nothing that stands behind one
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

# egt_unite(TARGET [ALONE file..]): with EGT_UNITY the target's files are compiled twelve at a time, in the order in which
# they are listed: each unit compiles the templates of the libraries once, and a changed file costs one unit. ALONE: files
# that have names of others, too.
function(egt_unite target)
  cmake_parse_arguments(unite "" "" "ALONE" ${ARGN})
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${EGT_UNITY} UNITY_BUILD_BATCH_SIZE 12)
  if(EGT_UNITY)  # what stands in an anonymous namespace is then in no main file
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
  set_source_files_properties(${unite_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
