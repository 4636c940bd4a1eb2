# A room is a folder of paceline/: one static library, which may only include the rooms in its DEPS (ARCHITECTURE.md).
#
#   paceline_room(data DEPS base LIBS ZLIB::ZLIB)       a room without LibTorch: compiles in seconds
#   paceline_room(nn DEPS base graph tensor TORCH)      a room with LibTorch: shares the one precompiled header
#   paceline_room(program DEPS base train TORCH COLD)   not time-critical: little optimisation
#
# Several files of a room are compiled as one (PACELINE_UNITY), so names that are local to a file must be unique in its room. ALONE lists files
# that are compiled separately.
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

# The parts of LibTorch that nearly every file needs; all of <torch/torch.h> would cost each file seconds for unused templates. Even so, every
# unit that includes them takes four seconds, because g++ instantiates what their inline functions need once per unit: hence large units.
set(PACELINE_TORCH_HEADERS <ATen/ATen.h> <torch/nn/module.h>)
# What nearly every other file needs.
set(PACELINE_PLAIN_HEADERS <algorithm> <array> <chrono> <cmath> <cstdint> <filesystem> <functional> <map> <memory> <mutex> <optional> <set>
    <span> <sstream> <string> <string_view> <unordered_map> <utility> <variant> <vector> <fmt/format.h>)
# g++ takes a third less time for -O1 than for -O3. It accepts headers that were precompiled for the other, if both have the same options for
# the processor; since version 13 it has one for x86 that -O3 implies and -O1 does not.
set(PACELINE_COLD_OPTIONS $<$<COMPILE_LANGUAGE:CXX>:-O1>)
include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(-munroll-only-small-loops PACELINE_UNROLLS_SMALL_LOOPS)
if(PACELINE_UNROLLS_SMALL_LOOPS)
  list(APPEND PACELINE_COLD_OPTIONS $<$<COMPILE_LANGUAGE:CXX>:-munroll-only-small-loops>)
endif()
paceline_headers(paceline_plain_pch LIBS fmt::fmt HEADERS ${PACELINE_PLAIN_HEADERS})
if(PACELINE_TORCH)
  paceline_headers(paceline_torch_pch LIBS Paceline::torch OpenMP::OpenMP_CXX HEADERS ${PACELINE_TORCH_HEADERS})
endif()

# paceline_use_torch(TARGET [HEADERS]): HEADERS is a target of paceline_headers().
function(paceline_use_torch target)
  target_link_libraries(${target} PUBLIC Paceline::torch)
  target_link_libraries(${target} PUBLIC OpenMP::OpenMP_CXX)
  set(headers paceline_torch_pch ${ARGN})
  list(POP_BACK headers last)
  target_precompile_headers(${target} REUSE_FROM ${last})
endfunction()

function(paceline_room name)
  cmake_parse_arguments(room "TORCH;COLD" "" "DEPS;LIBS;DEFINITIONS;ALONE" ${ARGN})
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
  add_library(paceline_${name} STATIC ${sources})
  set_target_properties(paceline_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  list(TRANSFORM room_ALONE PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/${name}/)
  set_source_files_properties(${room_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_link_libraries(paceline_${name} PUBLIC paceline_options ${room_LIBS})
  target_compile_definitions(paceline_${name} PUBLIC ${room_DEFINITIONS})
  foreach(dep ${room_DEPS})
    target_link_libraries(paceline_${name} PUBLIC paceline_${dep})
  endforeach()
  if(room_COLD)
    target_compile_options(paceline_${name} PRIVATE ${PACELINE_COLD_OPTIONS})
  endif()
  if(room_TORCH)
    paceline_use_torch(paceline_${name})
  elseif(NOT "OpenMP::OpenMP_CXX" IN_LIST room_LIBS AND NOT "ps" IN_LIST room_DEPS)  # g++ refuses headers precompiled without OpenMP
    target_precompile_headers(paceline_${name} REUSE_FROM paceline_plain_pch)
  endif()
endfunction()
