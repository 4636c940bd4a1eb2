# A room is a folder of paceline/: one static library, which may only include the rooms in its DEPS (ARCHITECTURE.md).
#
#   paceline_room(data DEPS base LIBS ZLIB::ZLIB)              a room without LibTorch: compiles in seconds
#   paceline_room(observe DEPS base COLD)                      not time-critical: precompiled headers, little optimisation
#   paceline_room(nn DEPS base graph tensor TORCH HOT x.cpp)   a room with LibTorch: precompiled headers, little optimisation
#
# Several files of a room are compiled as one (PACELINE_UNITY), so names that are local to a file must be unique in its room. ALONE lists files
# that are compiled separately. HOT lists those with loops over numbers in a room with little optimisation, where LibTorch and rooms without it
# compute nearly everything: they are compiled separately, with all optimisation. APART lists those that `paceline train` does not need: the
# others are also a library by themselves, paceline_ROOM_core.
add_library(paceline_options INTERFACE)
target_include_directories(paceline_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_features(paceline_options INTERFACE cxx_std_20)
if(PROJECT_IS_TOP_LEVEL)  # a parent project chooses its own warnings
  target_compile_options(paceline_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra $<$<BOOL:${PACELINE_WERROR}>:-Werror> -Wshadow -Wnon-virtual-dtor -Wimplicit-fallthrough>)
endif()
# All code may become part of a shared library, Paceline's or a user's; calls of its own functions stay direct.
target_compile_options(paceline_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fPIC -fno-semantic-interposition>)
# g++ 12 and 13 warn about impossible out-of-bounds copies in moves of short vectors and strings (GCC bugs 105329, 105651, 107852).
target_compile_options(paceline_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds -Wno-stringop-overflow -Wno-restrict>)
target_link_libraries(paceline_options INTERFACE Threads::Threads)
if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  # Attributes, pragmas and warnings that only g++ knows, and loops that only g++ vectorises. On aarch64 clang has the CRC instructions only for files that are compiled for them.
  target_compile_options(paceline_options INTERFACE -Wno-unknown-warning-option -Wno-unknown-attributes -Wno-ignored-attributes -Wno-unknown-pragmas -Wno-pass-failed)
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL aarch64)
    target_compile_options(paceline_options INTERFACE -march=armv8-a+crc)
  endif()
endif()
if(PACELINE_SANITIZE)
  target_compile_options(paceline_options INTERFACE -fsanitize=${PACELINE_SANITIZE} -fno-omit-frame-pointer -g1 -O1)
  # With sanitizers, g++ wrongly warns that the value of an empty std::optional is read.
  target_compile_options(paceline_options INTERFACE -Wno-maybe-uninitialized)
  target_link_options(paceline_options INTERFACE -fsanitize=${PACELINE_SANITIZE})
  target_compile_definitions(paceline_options INTERFACE PACELINE_SANITIZED=1)
endif()

# paceline_headers(NAME OPTIONS… LIBS… HEADERS…): headers that are compiled once for all targets that reuse them. g++ requires these targets to
# have the same options, including the optimisation level.
function(paceline_headers name)
  cmake_parse_arguments(shared "" "" "OPTIONS;LIBS;HEADERS" ${ARGN})
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${name}.cpp CONTENT "// the translation unit that carries the precompiled headers\n")
  add_library(${name} STATIC ${PROJECT_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE paceline_options ${shared_LIBS})
  target_compile_options(${name} PRIVATE ${shared_OPTIONS})
  target_precompile_headers(${name} PRIVATE ${shared_HEADERS})
  if(NOT PROJECT_IS_TOP_LEVEL)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# paceline_use_headers(TARGET HEADERS): with the options that these were precompiled with.
function(paceline_use_headers target headers)
  get_target_property(options ${headers} COMPILE_OPTIONS)
  if(options)
    target_compile_options(${target} PRIVATE ${options})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
endfunction()

# The parts of LibTorch that nearly every file needs; all of <torch/torch.h> would cost each file seconds for unused templates. Even so, every
# unit that includes them takes four seconds, because g++ instantiates what their inline functions need once per unit: hence large units.
set(PACELINE_TORCH_HEADERS <ATen/ATen.h> <torch/nn/module.h>)
# What nearly every file of a room with little optimisation needs.
set(PACELINE_PLAIN_HEADERS <algorithm> <array> <chrono> <cmath> <cstdint> <filesystem> <functional> <map> <memory> <mutex> <optional> <set>
    <span> <sstream> <string> <string_view> <unordered_map> <utility> <variant> <vector> <fmt/format.h>)
# g++ takes a third less time for -O1 than for -O3. It accepts headers that were precompiled for the other, if both have the same options for
# the processor; since version 13 it has one for x86 that -O3 implies and -O1 does not. But what it decides for several functions at once
# follows the headers: units of -O1 take longer with headers of -O3, and units of -O3 inline less with headers of -O1. So precompiled headers
# are of -O1 like all units that use them; to units of -O3 without LibTorch they would bring nothing (3% of a unit's time).
set(PACELINE_COLD_OPTIONS $<$<COMPILE_LANGUAGE:CXX>:-O1>)
include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(-munroll-only-small-loops PACELINE_UNROLLS_SMALL_LOOPS)
if(PACELINE_UNROLLS_SMALL_LOOPS)
  list(APPEND PACELINE_COLD_OPTIONS $<$<COMPILE_LANGUAGE:CXX>:-munroll-only-small-loops>)
endif()
set(PACELINE_HOT_OPTIONS "")
if(NOT PACELINE_SANITIZE)
  set(PACELINE_HOT_OPTIONS $<$<NOT:$<CONFIG:Debug>>:-O3>)
endif()
paceline_headers(paceline_plain_pch OPTIONS ${PACELINE_COLD_OPTIONS} LIBS fmt::fmt HEADERS ${PACELINE_PLAIN_HEADERS})
if(PACELINE_TORCH)
  paceline_headers(paceline_torch_pch OPTIONS ${PACELINE_COLD_OPTIONS} LIBS Paceline::torch OpenMP::OpenMP_CXX HEADERS ${PACELINE_TORCH_HEADERS})
endif()

# paceline_use_torch(TARGET [HEADERS]): HEADERS is a target of paceline_headers().
function(paceline_use_torch target)
  target_link_libraries(${target} PUBLIC Paceline::torch)
  target_link_libraries(${target} PUBLIC OpenMP::OpenMP_CXX)
  set(headers paceline_torch_pch ${ARGN})
  list(POP_BACK headers last)
  paceline_use_headers(${target} ${last})
endfunction()

# paceline_room_library(TARGET SOURCES): with the arguments of paceline_room() as variables.
function(paceline_room_library target sources)
  add_library(${target} STATIC ${sources})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  if(PACELINE_UNITY GREATER 1)  # units of the same size, so that no core waits for a last long one
    list(LENGTH sources files)
    math(EXPR units "(${files} + ${PACELINE_UNITY} - 1) / ${PACELINE_UNITY}")
    math(EXPR files "(${files} + ${units} - 1) / ${units}")
    set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE ${files})
  endif()
  target_link_libraries(${target} PUBLIC paceline_options ${room_LIBS})
  target_compile_definitions(${target} PUBLIC ${room_DEFINITIONS})
  if(room_COLD)
    target_compile_options(${target} PRIVATE ${PACELINE_COLD_OPTIONS})
  endif()
  if(room_TORCH)
    paceline_use_torch(${target})
  elseif(room_COLD)
    target_precompile_headers(${target} REUSE_FROM paceline_plain_pch)
  endif()
endfunction()

function(paceline_room name)
  cmake_parse_arguments(room "TORCH;COLD" "" "DEPS;LIBS;DEFINITIONS;ALONE;HOT;APART" ${ARGN})
  if(NOT name IN_LIST PACELINE_ROOMS)
    return()
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  if(PACELINE_CUDA)
    file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cu)
    set_source_files_properties(${kernels} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    list(APPEND sources ${kernels})
    list(APPEND room_LIBS CUDA::cudart)
    list(APPEND room_DEFINITIONS PACELINE_WITH_CUDA=1)
  endif()
  foreach(files ALONE HOT APART)
    list(TRANSFORM room_${files} PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/${name}/)
  endforeach()
  set_source_files_properties(${room_ALONE} ${room_HOT} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set_source_files_properties(${room_HOT} PROPERTIES COMPILE_OPTIONS "${PACELINE_HOT_OPTIONS}" SKIP_PRECOMPILE_HEADERS ON)
  set(core paceline_${name})
  if(room_APART)
    set(core paceline_${name}_core)
    list(REMOVE_ITEM sources ${room_APART})
    paceline_room_library(paceline_${name} "${room_APART}")
    target_link_libraries(paceline_${name} PUBLIC ${core})
  endif()
  paceline_room_library(${core} "${sources}")
  foreach(dep ${room_DEPS})
    if(room_APART)
      target_link_libraries(paceline_${name} PUBLIC paceline_${dep})
    endif()
    if(TARGET paceline_${dep}_core)
      set(dep ${dep}_core)
    endif()
    target_link_libraries(${core} PUBLIC paceline_${dep})
  endforeach()
endfunction()
