# The tables of engines/ as a source file: sets SX_ENGINE_TABLES_CPP. Included by the CMakeLists.txt
# that lists doctor's sources; a changed table configures anew.
set(SX_ENGINE_TABLES vllm sglang trtllm llama.cpp transformers sextant)
set(SX_ENGINE_TABLES_CPP ${CMAKE_CURRENT_BINARY_DIR}/engine_tables.cpp)
set(sx_tables "#include \"doctor/engine_table.h\"\n\nnamespace sextant {\nnamespace {\n")
string(APPEND sx_tables "constexpr EmbeddedTable kEmbeddedEngineTables[] = {\n")
foreach(engine IN LISTS SX_ENGINE_TABLES)
  set(table ${CMAKE_CURRENT_LIST_DIR}/engines/${engine}.json)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${table})
  file(READ ${table} text)
  string(APPEND sx_tables "    {\"${engine}\", R\"sx_table(${text})sx_table\"},\n")
endforeach()
string(APPEND sx_tables "};\n}  // namespace\n\n")
string(APPEND sx_tables
       "std::span<const EmbeddedTable> embedded_engine_tables() { return kEmbeddedEngineTables; }\n")
string(APPEND sx_tables "}  // namespace sextant\n")
file(WRITE ${SX_ENGINE_TABLES_CPP}.new "${sx_tables}")
file(COPY_FILE ${SX_ENGINE_TABLES_CPP}.new ${SX_ENGINE_TABLES_CPP} ONLY_IF_DIFFERENT)
