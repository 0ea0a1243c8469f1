# SPDX-License-Identifier: MIT
#
# add_cuda_on_cpu_executable(TARGET SOURCE [DEFINITION...])
#
# Builds one .cu file for the CPU with the project's C++ compiler: rewritten by
# tools/cuda_on_cpu.py, compiled as C++, linked with the runtime. Needs Python 3.10, and uses
# Boost.Context where it is installed (-DCUDA_ON_CPU_UCONTEXT=ON does without).

include_guard(GLOBAL)
find_package(Threads REQUIRED)
find_package(Python3 3.10 REQUIRED COMPONENTS Interpreter)

set(CUDA_ON_CPU_HOME ${CMAKE_CURRENT_LIST_DIR})
get_filename_component(CUDA_ON_CPU_TOOL ${CUDA_ON_CPU_HOME}/../../tools/cuda_on_cpu.py ABSOLUTE)
option(CUDA_ON_CPU_UCONTEXT "Switch stacks by ucontext even where Boost.Context is installed" OFF)

if(NOT TARGET cuda_on_cpu_benchmark)
  add_custom_target(
    cuda_on_cpu_benchmark
    COMMAND Python3::Interpreter ${CUDA_ON_CPU_HOME}/benchmark/run.py
            --compiler ${CMAKE_CXX_COMPILER}
    USES_TERMINAL VERBATIM)
endif()

# The runtime: one library for all programs.
function(_cuda_on_cpu_runtime)
  if(TARGET cuda_on_cpu_runtime)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CUDA_ON_CPU_HOME}/source/*.cpp)
  add_library(cuda_on_cpu_runtime STATIC ${sources})
  target_include_directories(cuda_on_cpu_runtime PUBLIC ${CUDA_ON_CPU_HOME}/include)
  target_compile_features(cuda_on_cpu_runtime PUBLIC cxx_std_17)
  target_compile_options(cuda_on_cpu_runtime PRIVATE -O2 -g)
  target_link_libraries(cuda_on_cpu_runtime PUBLIC Threads::Threads)
  if(NOT CUDA_ON_CPU_UCONTEXT)
    find_path(CUDA_ON_CPU_BOOST_INCLUDE boost/context/fiber.hpp)
    find_library(CUDA_ON_CPU_BOOST_LIBRARY boost_context)
    mark_as_advanced(CUDA_ON_CPU_BOOST_INCLUDE CUDA_ON_CPU_BOOST_LIBRARY)
    if(CUDA_ON_CPU_BOOST_INCLUDE AND CUDA_ON_CPU_BOOST_LIBRARY)
      target_compile_definitions(cuda_on_cpu_runtime PRIVATE CUDA_ON_CPU_BOOST_CONTEXT)
      target_include_directories(cuda_on_cpu_runtime SYSTEM PRIVATE ${CUDA_ON_CPU_BOOST_INCLUDE})
      target_link_libraries(cuda_on_cpu_runtime PUBLIC ${CUDA_ON_CPU_BOOST_LIBRARY})
    endif()
  endif()
endfunction()

function(add_cuda_on_cpu_executable target source)
  _cuda_on_cpu_runtime()
  get_filename_component(source ${source} ABSOLUTE)
  get_filename_component(directory ${source} DIRECTORY)
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp)
  add_custom_command(
    OUTPUT ${generated}
    COMMAND Python3::Interpreter ${CUDA_ON_CPU_TOOL} --rewrite ${source} ${generated}
    DEPENDS ${source} ${CUDA_ON_CPU_TOOL}
    COMMENT "Rewriting ${source} as C++"
    VERBATIM)
  add_executable(${target} ${generated})
  target_link_libraries(${target} PRIVATE cuda_on_cpu_runtime)
  # -g1: the runtime's reports name lines of the .cu file. A Debug build is for the debugger.
  target_compile_options(
    ${target} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O2> $<$<NOT:$<CONFIG:Debug>>:-g1>
                      -Wno-unknown-pragmas "-iquote${directory}")
  target_compile_definitions(${target} PRIVATE ${ARGN})
endfunction()
