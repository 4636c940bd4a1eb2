# Targets for libraries that do not bring their own; the same for a build of Paceline and for an installed Paceline.

# paceline_import(gloo LIBRARY INCLUDE_DIR): Paceline::gloo.
function(paceline_import name library include_dir)
  if(NOT TARGET Paceline::${name})
    add_library(Paceline::${name} UNKNOWN IMPORTED GLOBAL)
    set_target_properties(Paceline::${name} PROPERTIES IMPORTED_LOCATION ${library} INTERFACE_INCLUDE_DIRECTORIES "${include_dir}")
  endif()
endfunction()

# paceline_import_grpc(): Paceline::grpc, where gRPC is installed. Not by find_package(gRPC): Debian's configuration asks for plugins of the
# protocol compiler, which nothing here needs. Not by pkg_check_modules(): it asks nine times, and pkg-config walks through gRPC's hundred
# libraries for over a second each time.
function(paceline_import_grpc)
  find_program(PKG_CONFIG_EXECUTABLE pkg-config)
  if(TARGET Paceline::grpc OR NOT PKG_CONFIG_EXECUTABLE)
    return()
  endif()
  execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --cflags --libs grpc++ OUTPUT_VARIABLE flags ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    separate_arguments(flags UNIX_COMMAND "${flags}")
    set(libraries ${flags})
    list(FILTER flags EXCLUDE REGEX "^-[lLW]")
    list(FILTER libraries INCLUDE REGEX "^-[lLW]")
    list(REMOVE_DUPLICATES libraries)
    add_library(Paceline::grpc INTERFACE IMPORTED GLOBAL)
    target_compile_options(Paceline::grpc INTERFACE ${flags})
    target_link_libraries(Paceline::grpc INTERFACE ${libraries})
  endif()
endfunction()

# What the linker must find before LibTorch, in libstdc++. The libraries of a PyTorch wheel contain and export a part of its <filesystem>:
# their remove_all() calls functions that nothing defines, and the linker uses the first definition that it finds.
set(paceline_before_torch --push-state,--no-as-needed,-u,_ZNSt10filesystem10remove_allERKNS_7__cxx114pathERSt10error_code)

# paceline_import_torch(): Paceline::torch, LibTorch as a system library (no warnings about its headers), after find_package(Torch).
function(paceline_import_torch)
  if(TARGET Paceline::torch)
    return()
  endif()
  add_library(Paceline::torch INTERFACE IMPORTED GLOBAL)
  target_include_directories(Paceline::torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  target_link_libraries(Paceline::torch INTERFACE ${TORCH_LIBRARIES})
  target_link_options(Paceline::torch INTERFACE "SHELL:LINKER:${paceline_before_torch} -lstdc++ LINKER:--pop-state")
  foreach(folder ${TORCH_INCLUDE_DIRS})
    if(EXISTS ${folder}/fmt/format.h AND NOT folder STREQUAL "/usr/include")
      # A PyTorch wheel brings the headers of a newer fmt than the system's library: use those as header-only.
      target_compile_definitions(Paceline::torch INTERFACE FMT_HEADER_ONLY=1)
    endif()
  endforeach()
  separate_arguments(flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
  target_compile_options(Paceline::torch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${flags}>)
endfunction()
