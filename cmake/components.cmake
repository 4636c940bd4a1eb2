# A component is a library for users: the rooms that it needs and that no smaller component has, made of the same objects. Its target is
# Paceline::NAME, both in projects with Paceline as a subfolder and after find_package(Paceline COMPONENTS NAME).
set(PACELINE_ROOMS_comm base schedule comm)
set(PACELINE_ROOMS_data_parallel graph observe compress tensor optim nn step data_parallel)
set(PACELINE_ROOMS_parameter_server ps central)
set(PACELINE_ROOMS_train memory perf data sharded pipeline strategies train)
set(PACELINE_ROOMS_program program)

# The requested components, and those that they need.
set(wanted ${PACELINE_COMPONENTS})
if(NOT wanted)
  set(wanted ${components})
  if(NOT PACELINE_PROGRAM AND NOT PROJECT_IS_TOP_LEVEL)
    list(REMOVE_ITEM wanted program)  # and no project needs CLI11 for what it does not link
  endif()
endif()
set(PACELINE_COMPONENTS "")
set(below "")
foreach(component ${components})
  list(APPEND below ${component})
  if(component IN_LIST wanted)
    set(PACELINE_COMPONENTS ${below})
    list(REMOVE_ITEM wanted ${component})
  endif()
endforeach()
if(wanted)
  message(FATAL_ERROR "PACELINE_COMPONENTS: there is no '${wanted}'; there are ${components}")
endif()
if(PACELINE_PROGRAM AND NOT "program" IN_LIST PACELINE_COMPONENTS)
  set(PACELINE_PROGRAM OFF)
  message(STATUS "Paceline: ${PACELINE_COMPONENTS} alone, without the program, which needs all components")
endif()
set(PACELINE_TORCH OFF)
if("data_parallel" IN_LIST PACELINE_COMPONENTS)
  set(PACELINE_TORCH ON)
endif()
set(PACELINE_ROOMS "")
foreach(component ${PACELINE_COMPONENTS})
  list(APPEND PACELINE_ROOMS ${PACELINE_ROOMS_${component}})
endforeach()
if(PACELINE_PROGRAM)
  list(APPEND PACELINE_ROOMS launch measure sim)
endif()

# paceline_component(NAME [NEEDS COMPONENT] [LIBS …]): NEEDS and LIBS are what its public headers include.
function(paceline_component name)
  cmake_parse_arguments(component "" "NEEDS" "LIBS" ${ARGN})
  if(NOT name IN_LIST PACELINE_COMPONENTS)
    return()
  endif()
  set(objects "")
  set(private "")
  foreach(room ${PACELINE_ROOMS_${name}})
    foreach(part paceline_${room} paceline_${room}_core)
      if(TARGET ${part})
        list(APPEND objects $<TARGET_OBJECTS:${part}>)
        get_target_property(libraries ${part} LINK_LIBRARIES)
        list(APPEND private ${libraries})
      endif()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES private)
  # Other rooms are in this component or below it. Header-only rooms are not linked.
  list(FILTER private EXCLUDE REGEX "^paceline_|^nlohmann_json::|^CLI11::")
  list(REMOVE_ITEM private ${component_LIBS})

  set(library paceline_lib_${name})
  add_library(${library} ${objects})  # static, or shared if BUILD_SHARED_LIBS is set
  add_library(Paceline::${name} ALIAS ${library})
  set_target_properties(${library} PROPERTIES
    LINKER_LANGUAGE CXX OUTPUT_NAME paceline_${name} EXPORT_NAME ${name} VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} INSTALL_RPATH $ORIGIN
    INSTALL_RPATH_USE_LINK_PATH ON
    ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  add_dependencies(paceline_libraries ${library})
  target_include_directories(${library} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)  # installed: see install.cmake
  target_compile_features(${library} INTERFACE cxx_std_20)
  string(TOUPPER ${name} upper)
  target_compile_definitions(${library} INTERFACE PACELINE_HAS_${upper}=1)
  if(component_NEEDS)
    target_link_libraries(${library} PUBLIC paceline_lib_${component_NEEDS})
  endif()
  target_link_libraries(${library} PUBLIC ${component_LIBS} PRIVATE ${private})
  if(PACELINE_SANITIZE)
    target_link_options(${library} PUBLIC -fsanitize=${PACELINE_SANITIZE})
  endif()
endfunction()

add_custom_target(paceline_libraries)  # all that were requested
