# cmake --install: the components with the headers that are public (public_headers.cmake), their CMake package and pkg-config files; the
# program with its man pages, completions and what its benchmarks start; recipes. Nothing that is installed names the folder of the sources, of
# the build or of the prefix, so that a prefix can be moved; only LibTorch, Gloo, NCCL and CUDA are expected where they were.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
include(public_headers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Paceline)

# What PacelineConfig.cmake must find, by component. A shared library already contains what a static one needs at link time.
set(PACELINE_STATIC ON)
if(BUILD_SHARED_LIBS)
  set(PACELINE_STATIC OFF)
endif()
set(GRPC_FOUND OFF)
if(TARGET Paceline::grpc)
  set(GRPC_FOUND ON)
endif()
foreach(answer OPENSSL_FOUND MPI_CXX_FOUND GRPC_FOUND JPEG_FOUND PNG_FOUND)
  set(PACELINE_${answer} OFF)
  if(${answer})
    set(PACELINE_${answer} ON)
  endif()
endforeach()
set(PACELINE_LIBRARY_FOLDERS "")
foreach(library gloo nccl)
  set(PACELINE_FOUND_${library} OFF)
  if(TARGET Paceline::${library})
    set(PACELINE_FOUND_${library} ON)
    get_target_property(file Paceline::${library} IMPORTED_LOCATION)
    get_filename_component(folder ${file} DIRECTORY)
    string(APPEND PACELINE_LIBRARY_FOLDERS " ${folder}")
  endif()
endforeach()

foreach(component ${PACELINE_COMPONENTS})
  install(TARGETS paceline_lib_${component} EXPORT Paceline_${component}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component}
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT Paceline_${component} NAMESPACE Paceline:: DESTINATION ${package} COMPONENT ${component})
  foreach(header ${PACELINE_HEADERS_${component}})
    get_filename_component(folder ${header} DIRECTORY)
    install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder} COMPONENT ${component})
  endforeach()
endforeach()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/PacelineConfig.cmake.in ${PROJECT_BINARY_DIR}/PacelineConfig.cmake
                              INSTALL_DESTINATION ${package})
# While the major version is 0, a new minor version may change the public interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/PacelineConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/PacelineConfig.cmake ${PROJECT_BINARY_DIR}/PacelineConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/PacelineImported.cmake DESTINATION ${package} COMPONENT comm)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT comm)
include(pkg_config)

if(PACELINE_PROGRAM)
  install(TARGETS paceline RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
  # What `paceline` starts (bench/helpers.h); the peers' programs if they were built.
  set(helpers ${CMAKE_INSTALL_LIBEXECDIR}/paceline)
  install(TARGETS paceline-train paceline-tools paceline-bench bench_rank RUNTIME DESTINATION ${helpers} COMPONENT program)
  foreach(peer bench_peer_mpi bench_peer_gloo)
    if(TARGET ${peer})
      install(TARGETS ${peer} RUNTIME DESTINATION ${helpers} COMPONENT program OPTIONAL)
    endif()
  endforeach()
  install(PROGRAMS ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/bench_peer_mpich DESTINATION ${helpers} COMPONENT program OPTIONAL)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/bench/peers/ DESTINATION ${helpers} COMPONENT program FILES_MATCHING PATTERN "*.py")
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/paceline COMPONENT program)
  # The program writes its own man pages and completions, from the tables behind --help.
  install(CODE "
    set(paceline \"$<TARGET_FILE:paceline>\")
    set(share \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")
    include(\"${PROJECT_SOURCE_DIR}/cmake/install_pages.cmake\")" COMPONENT program)
endif()
