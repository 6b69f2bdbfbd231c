# The chat-template half of sx_text.
target_sources(sx_text PRIVATE
  chat.cpp jinja_filters.cpp jinja_filters_text.cpp jinja_format.cpp jinja_globals.cpp jinja_interpreter.cpp jinja_lexer.cpp
  jinja_macro.cpp jinja_methods.cpp jinja_names.cpp jinja_operators.cpp jinja_parser.cpp jinja_parser_expression.cpp jinja_print.cpp
  jinja_tests.cpp jinja_unicode.cpp jinja_value.cpp)
target_link_libraries(sx_text PRIVATE PkgConfig::UTF8PROC)
sx_test(chat_test SOURCES chat_test.cpp LINKS sx_text LABELS golden)
