# The few functions every folder's CMakeLists.txt uses.

# Flags of all our targets: warnings are errors; no -ffast-math ever (it breaks NaN checks and reproducibility);
# -ffp-contract=off so that a float expression means the same in every build.
add_library(sx_flags INTERFACE)
target_compile_options(sx_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror
                                          -ffp-contract=off -fno-omit-frame-pointer)
target_include_directories(sx_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # g++ 12 sees overlapping copies in std::string concatenation at -O3 where there are none (GCC bug 105651).
  target_compile_options(sx_flags INTERFACE -Wno-restrict)
endif()
if(SX_SANITIZE)
  target_compile_options(sx_flags INTERFACE -fsanitize=${SX_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(sx_flags INTERFACE -fsanitize=${SX_SANITIZE})
else()
  target_compile_options(sx_flags INTERFACE $<$<CONFIG:Release>:-D_FORTIFY_SOURCE=2> -fstack-protector-strong)
endif()
if(SX_FUZZ)
  target_compile_options(sx_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# sx_library(name SOURCES a.cpp ... LINKS sx_base ... PRIVATE_LINKS simdjson::simdjson ...)
function(sx_library name)
  cmake_parse_arguments(A "" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${SX_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  target_link_libraries(${name} PUBLIC sx_flags ${A_LINKS} PRIVATE ${A_PRIVATE_LINKS})
endfunction()

# Every test, every fuzz target: what the sanitizer presets build.
add_custom_target(unit_tests)
add_custom_target(fuzzers)

# sx_test(name SOURCES a_test.cpp ... LINKS sx_io ...): one GoogleTest binary a folder, found by ctest.
# SLOW tests (labels) are left out of the sanitizer presets.
function(sx_test name)
  if(NOT SX_TESTS)
    return()
  endif()
  cmake_parse_arguments(A "" "" "SOURCES;LINKS;LABELS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE ${A_LINKS} GTest::gtest GTest::gmock GTest::gtest_main rapidcheck)
  target_compile_definitions(${name} PRIVATE SX_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_dependencies(unit_tests ${name})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "unit;${A_LABELS}" TIMEOUT 1200)
endfunction()

# sx_fuzz(name SOURCES x_fuzz.cpp LINKS ... CORPUS dir): a libFuzzer binary; ctest replays its corpus.
function(sx_fuzz name)
  if(NOT SX_FUZZ)
    return()
  endif()
  cmake_parse_arguments(A "" "CORPUS" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE ${A_LINKS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzzers ${name})
  add_test(NAME ${name} COMMAND ${name} -runs=20000 -max_total_time=30 ${CMAKE_CURRENT_BINARY_DIR}/${name}_work ${A_CORPUS})
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${name}_work)
  set_tests_properties(${name} PROPERTIES LABELS fuzz)
endfunction()

# sx_weak_symbols_test(library files...): the per-ISA files of a library define no weak symbol, which the linker could give to everyone.
# Sanitizers add weak symbols of their own.
function(sx_weak_symbols_test library)
  if(NOT SX_TESTS OR SX_SANITIZE OR NOT ARGN)
    return()
  endif()
  set(files ${ARGN})
  list(TRANSFORM files REPLACE "^cpu/" "")
  list(JOIN files "," files)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  string(REPLACE "sx_" "" name ${library})
  add_test(NAME ${name}_weak_symbols
           COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tools/check_weak_symbols.py --nm ${CMAKE_NM} --files ${files}
                   $<TARGET_OBJECTS:${library}>
           COMMAND_EXPAND_LISTS)
  set_tests_properties(${name}_weak_symbols PROPERTIES LABELS unit)
endfunction()
