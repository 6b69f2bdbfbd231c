# cmake --install and cpack: the program, its completions and its licence.
install(TARGETS sextant RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sextant)
set(CPACK_PACKAGE_CONTACT "Sextant maintainers <maintainers@sextant.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Engine and toolchain for NVFP4 language models")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_STRIP_FILES ON)
include(CPack)
