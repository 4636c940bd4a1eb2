# What Paceline depends on. Component comm: fmt and nlohmann-json; data_parallel and beyond: LibTorch and OpenMP; train: zlib; program: CLI11.
# Optional, each a PACELINE_WITH_* definition of the rooms that use it: toml++ (recipes as files), libjpeg and libpng (image folders), MPI and
# Gloo (ranks on several hosts), gRPC (parameter servers as processes), OpenSSL (ranks that are processes, TLS), CUDA.
# cmake/PacelineConfig.cmake.in finds the same for projects that link an installed Paceline.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)  # a project that has Paceline as a subfolder links against them too
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL COMPONENTS Crypto SSL)
find_package(MPI COMPONENTS CXX)
find_library(GLOO_LIBRARY gloo)
find_path(GLOO_INCLUDE_DIR gloo/transport/unbound_buffer.h)
find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h)
include(${CMAKE_CURRENT_LIST_DIR}/PacelineImported.cmake)
if(GLOO_LIBRARY AND GLOO_INCLUDE_DIR)
  paceline_import(gloo ${GLOO_LIBRARY} ${GLOO_INCLUDE_DIR})
endif()

if(PACELINE_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)
  endif()
  set(paceline_cuda_architectures ${CMAKE_CUDA_ARCHITECTURES})  # which LibTorch's files switch off
  set(CMAKE_CUDA_STANDARD 20)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2)
  find_path(NCCL_INCLUDE_DIR nccl.h)
  if(NCCL_LIBRARY AND NCCL_INCLUDE_DIR)
    paceline_import(nccl ${NCCL_LIBRARY} ${NCCL_INCLUDE_DIR})
  endif()
endif()

if(PACELINE_TORCH)
  find_package(Torch QUIET)
  if(NOT Torch_FOUND)
    message(FATAL_ERROR "LibTorch was not found. Install it (Debian: libtorch-dev), or let CMAKE_PREFIX_PATH name its folder; "
                        "-DPACELINE_COMPONENTS=comm builds the collectives alone, which need none.")
  endif()
  if(PACELINE_CUDA)
    set(CMAKE_CUDA_ARCHITECTURES ${paceline_cuda_architectures})
  endif()
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  paceline_import_torch()
endif()
if("parameter_server" IN_LIST PACELINE_COMPONENTS AND NOT PACELINE_FUZZ)  # no fuzz target needs gRPC, and it takes long
  paceline_import_grpc()
endif()
if("train" IN_LIST PACELINE_COMPONENTS)
  find_package(ZLIB REQUIRED)
  find_package(JPEG)
  find_package(PNG)
endif()
if("program" IN_LIST PACELINE_COMPONENTS)
  find_package(CLI11 REQUIRED)
endif()

if(PROJECT_IS_TOP_LEVEL)  # otherwise the parent project chooses a launcher
  find_program(CCACHE ccache)
  if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # Without the sloppiness, ccache would never hit with precompiled headers; without the base, never in another clone of the project.
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
        CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
  endif()
endif()
