# add_lesson(): one line makes a lesson's target, its transcript test and its labels.
#
#   add_lesson(<chapter>/<stem>.cpp|.cu LABELS cpu|gpu|bench... [CPU_DEFINES NAME=VALUE...]
#              [TIMEOUT SECONDS])
#
# Options and program come from the Build line in the lesson's header, so that this build and the
# documented one agree; the build type adds nothing. A .cu lesson is built up to twice:
#
#   <stem>          with nvcc, where there is one that works    test <id>.transcript
#   <stem>_on_cpu   with the C++ compiler and the CPU runtime   test <id>.transcript_on_cpu
#
# CPU_DEFINES are for the second build only. TIMEOUT is what the program may take, 60 by default.

find_package(Python3 3.10 REQUIRED COMPONENTS Interpreter)

option(REQUIRE_CUDA "A missing or broken nvcc is an error" OFF)
option(NVCC_LESSONS "Build the .cu lessons with nvcc where it works" ON)
option(USE_CPU_RUNTIME "Build every .cu lesson for the CPU too" ON)

# Sets CUDA_USABLE and, when it is false, CUDA_REASON. Only a real compile and link shows whether
# nvcc works: it may be there and refuse the host compiler. The answer is kept for each nvcc.
function(find_working_nvcc)
  if(NOT CMAKE_CUDA_COMPILER)
    if(DEFINED ENV{CUDACXX})
      set(CMAKE_CUDA_COMPILER "$ENV{CUDACXX}" CACHE FILEPATH "nvcc")
    else()
      find_program(CMAKE_CUDA_COMPILER nvcc DOC "nvcc")
    endif()
  endif()
  set(usable FALSE)
  if(NOT CMAKE_CUDA_COMPILER)
    set(reason "nvcc was not found")
  elseif(CUDA_TRIED STREQUAL CMAKE_CUDA_COMPILER AND CUDA_TRIED_RESULT STREQUAL "works")
    set(usable TRUE)
  else()
    set(dir "${CMAKE_BINARY_DIR}/nvcc_probe")
    file(WRITE "${dir}/probe.cu" "__global__ void probe() {}\nint main() { probe<<<1, 1>>>(); }\n")
    set(host "")
    if(CMAKE_CUDA_HOST_COMPILER)
      set(host "-ccbin=${CMAKE_CUDA_HOST_COMPILER}")
    elseif(DEFINED ENV{CUDAHOSTCXX})
      set(host "-ccbin=$ENV{CUDAHOSTCXX}")
    endif()
    execute_process(COMMAND "${CMAKE_CUDA_COMPILER}" ${host} probe.cu -o probe
      WORKING_DIRECTORY "${dir}" TIMEOUT 120
      RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(result STREQUAL "0")
      set(usable TRUE)
      set(CUDA_TRIED_RESULT "works" CACHE INTERNAL "")
    else()
      string(REGEX MATCH "[^\r\n]*[Ee]rror[^\r\n]*" line "${output}")
      if(NOT line)
        string(REGEX MATCH "[^\r\n]+" line "${output}")
      endif()
      set(reason "${CMAKE_CUDA_COMPILER} does not work: ${result}")
      if(line)
        string(STRIP "${line}" line)
        string(APPEND reason ": ${line}")
      endif()
      set(CUDA_TRIED_RESULT "${reason}" CACHE INTERNAL "")
    endif()
    set(CUDA_TRIED "${CMAKE_CUDA_COMPILER}" CACHE INTERNAL "")
  endif()
  set(CUDA_USABLE ${usable} PARENT_SCOPE)
  set(CUDA_REASON "${reason}" PARENT_SCOPE)
endfunction()

find_working_nvcc()
if(CUDA_USABLE AND NOT NVCC_LESSONS AND NOT REQUIRE_CUDA)
  set(CUDA_USABLE FALSE)
  set(CUDA_REASON "NVCC_LESSONS is OFF, as in a test run without a GPU")
endif()
if(REQUIRE_CUDA AND NOT CUDA_USABLE)
  message(FATAL_ERROR "REQUIRE_CUDA is ON and ${CUDA_REASON}")
endif()
if(CUDA_USABLE)
  # Each lesson brings its own -arch. A value here keeps CMake from asking for a GPU, which the
  # value `native` would need, and from a default that this nvcc may no longer know.
  set(LESSON_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80)
  endif()
  enable_language(CUDA)
endif()

set(HAVE_CPU_RUNTIME FALSE)
if(USE_CPU_RUNTIME AND EXISTS "${CMAKE_CURRENT_LIST_DIR}/cuda_on_cpu/cuda_on_cpu.cmake")
  include("${CMAKE_CURRENT_LIST_DIR}/cuda_on_cpu/cuda_on_cpu.cmake")
  set(HAVE_CPU_RUNTIME TRUE)
endif()

set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  "${CMAKE_SOURCE_DIR}/tools/course.py")

# Reads the header of a lesson into <PREFIX>_id, _program and _flags.
function(read_lesson_header file prefix)
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" -B "${CMAKE_SOURCE_DIR}/tools/course.py" --cmake "${file}"
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE error
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
  if(NOT result STREQUAL "0")
    message(FATAL_ERROR "${error}")
  endif()
  foreach(key id program flags)
    string(REGEX MATCH "(^|\n)${key}=([^\n]*)" line "${output}")
    set(${prefix}_${key} "${CMAKE_MATCH_2}" PARENT_SCOPE)
  endforeach()
endfunction()

function(add_transcript_test name target file timeout labels)
  string(REGEX REPLACE "\\.(cpp|cu)$" ".txt" transcript "${file}")
  add_test(NAME "${name}" COMMAND "${Python3_EXECUTABLE}" -B
    "${CMAKE_SOURCE_DIR}/tools/check_transcript.py" --timeout ${timeout} ${ARGN}
    --lesson "${CMAKE_SOURCE_DIR}/${file}" "${CMAKE_SOURCE_DIR}/expected/${transcript}"
    -- "$<TARGET_FILE:${target}>")
  math(EXPR limit "${timeout} + 30")  # The check itself stops the program, and says so.
  set_tests_properties("${name}" PROPERTIES
    LABELS "${labels}" TIMEOUT ${limit} SKIP_RETURN_CODE 77)
endfunction()

function(add_lesson file)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "LABELS;CPU_DEFINES")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_LABELS)
    message(FATAL_ERROR "add_lesson(${file}): LABELS are missing, or there is an unknown word: "
      "${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  set(source "${CMAKE_SOURCE_DIR}/${file}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
  read_lesson_header("${source}" lesson)
  get_filename_component(stem "${file}" NAME_WE)
  get_filename_component(chapter "${file}" DIRECTORY)
  get_filename_component(extension "${file}" EXT)

  set(flags ${lesson_flags})
  if(extension STREQUAL ".cpp")
    add_executable(${stem} "${source}")
    target_compile_options(${stem} PRIVATE ${flags})
    target_link_options(${stem} PRIVATE ${flags})
    set_target_properties(${stem} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${chapter}")
    add_transcript_test(${lesson_id}.transcript ${stem} "${file}" ${arg_TIMEOUT} "${arg_LABELS}")
    return()
  endif()

  set_property(GLOBAL APPEND PROPERTY CUDA_LESSONS "${lesson_id}")
  if(CUDA_USABLE)
    set(architectures "${LESSON_ARCHITECTURES}")
    foreach(flag IN LISTS lesson_flags)
      if(flag MATCHES "^-arch=sm_([0-9]+[a-z]?)$")
        list(REMOVE_ITEM flags "${flag}")
        if(NOT architectures)
          set(architectures "${CMAKE_MATCH_1}")
        endif()
      endif()
    endforeach()
    add_executable(${stem} "${source}")
    target_compile_options(${stem} PRIVATE ${flags})
    set_target_properties(${stem} PROPERTIES
      CUDA_ARCHITECTURES "${architectures}" RUNTIME_OUTPUT_DIRECTORY "${chapter}")
    add_transcript_test(${lesson_id}.transcript ${stem} "${file}" ${arg_TIMEOUT} "${arg_LABELS}")
    set_tests_properties(${lesson_id}.transcript PROPERTIES RESOURCE_LOCK gpu)
  endif()
  if(HAVE_CPU_RUNTIME)
    add_cuda_on_cpu_executable(${stem}_on_cpu "${source}")
    target_compile_definitions(${stem}_on_cpu PRIVATE ${arg_CPU_DEFINES})
    set_target_properties(${stem}_on_cpu PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${chapter}")
    add_transcript_test(${lesson_id}.transcript_on_cpu ${stem}_on_cpu "${file}" ${arg_TIMEOUT}
      "cpu" --cpu-runtime)
    # The runtime uses several cores; two such tests at a time would only slow each other down.
    set_tests_properties(${lesson_id}.transcript_on_cpu PROPERTIES PROCESSORS 2)
  endif()
endfunction()

# Says in one line how the .cu lessons are built, or why they are left out.
function(report_cuda_lessons)
  get_property(ids GLOBAL PROPERTY CUDA_LESSONS)
  if(NOT ids)
    return()
  endif()
  string(REPLACE ";" " " ids "${ids}")
  if(CUDA_USABLE AND HAVE_CPU_RUNTIME)
    message(STATUS "CUDA: ${ids}: built with nvcc ${CMAKE_CUDA_COMPILER_VERSION} and for the CPU")
  elseif(CUDA_USABLE)
    message(STATUS "CUDA: ${ids}: built with nvcc ${CMAKE_CUDA_COMPILER_VERSION}")
  elseif(HAVE_CPU_RUNTIME)
    message(STATUS "CUDA: ${ids}: built for the CPU only, because ${CUDA_REASON}")
  else()
    message(STATUS "CUDA: ${ids}: left out, because ${CUDA_REASON}")
  endif()
endfunction()
