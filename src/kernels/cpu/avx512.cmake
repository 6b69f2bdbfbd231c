# The AVX-512 tables (x86-64 only). The per-ISA files alone have AVX-512 flags; the driver, the packer and the table are ordinary code.
# sx_kernels_avx512_emulated compiles the same sources over avx512_vec_emulated.h, which runs on any machine.
set(SX_AVX512_DRIVER cpu/avx512_linear.cpp cpu/avx512_ops.cpp cpu/avx512_pack.cpp)
set(SX_AVX512_KERNELS cpu/avx512_attention.cpp cpu/avx512_linear_amx.cpp cpu/avx512_linear_bf16.cpp cpu/avx512_linear_f32.cpp cpu/avx512_rows.cpp)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_sources(sx_kernels PRIVATE ${SX_AVX512_DRIVER} ${SX_AVX512_KERNELS} cpu/avx512_measure.cpp)
  target_compile_definitions(sx_kernels PRIVATE SX_HAVE_AVX512)
  # g++-12 warns about the "undefined" pass-through operands of its own avx512fintrin.h; the emulated build keeps the two warnings.
  set(SX_AVX512_FLAGS -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx512vbmi -mfma -mf16c -mprefer-vector-width=512)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    list(APPEND SX_AVX512_FLAGS -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  set_source_files_properties(${SX_AVX512_KERNELS} cpu/avx512_measure.cpp PROPERTIES COMPILE_OPTIONS "${SX_AVX512_FLAGS}")
  set_source_files_properties(cpu/avx512_linear_bf16.cpp PROPERTIES COMPILE_OPTIONS "${SX_AVX512_FLAGS};-mavx512bf16")
endif()

if(SX_TESTS)
  add_subdirectory(cpu/emulated)
endif()
