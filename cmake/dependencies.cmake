# What Paceline stands on. Required: LibTorch, fmt, spdlog, nlohmann-json, CLI11, OpenMP, zlib. Optional, each a PACELINE_WITH_* definition of
# the rooms that use it: toml++ (recipes as files), libjpeg and libpng (image folders), MPI and Gloo (ranks on
# several hosts), gRPC (parameter servers as processes), OpenSSL (ranks that are processes, TLS), CUDA.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)  # a project that has Paceline as a subfolder links against them too
find_package(Torch REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL COMPONENTS Crypto SSL)
find_package(JPEG)
find_package(PNG)
find_package(MPI COMPONENTS CXX)
find_library(GLOO_LIBRARY gloo)
find_path(GLOO_INCLUDE_DIR gloo/transport/unbound_buffer.h)
# Not find_package(gRPC): Debian's configuration asks for plugins of the protocol compiler, which nothing here needs.
find_package(PkgConfig)
if(PkgConfig_FOUND AND NOT PACELINE_FUZZ)  # no target needs it, and it takes long
  pkg_check_modules(GRPCPP IMPORTED_TARGET GLOBAL grpc++)
endif()
find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h)

if(PACELINE_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2)
  find_path(NCCL_INCLUDE_DIR nccl.h)
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # A precompiled header is part of what ccache must look at; without these it would never hit.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()
