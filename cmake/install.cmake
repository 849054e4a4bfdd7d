# What is installed. Three components, each a Debian package (tools/package-debian):
#   runtime  libtruce0     the shared library
#   dev      libtruce-dev  headers, archive, truce.pc, find_package(truce), man pages of the calls, examples
#   cli      truce         the program, its man page, its completion, and the docs

# The man page and the completion are made by the program itself, from its table of commands.
add_custom_command(OUTPUT truce.1 truce.bash truce.zsh truce.fish
    COMMAND truce_cli manual man > truce.1
    COMMAND truce_cli manual bash > truce.bash
    COMMAND truce_cli manual zsh > truce.zsh
    COMMAND truce_cli manual fish > truce.fish
    DEPENDS truce_cli VERBATIM)
if(NOT TRUCE_SANITIZE)
    add_custom_target(truce_manual ALL DEPENDS truce.1 truce.bash truce.zsh truce.fish)
endif()

# Those of the calls come from the public headers.
file(GLOB TRUCE_PUBLIC_HEADERS CONFIGURE_DEPENDS include/truce/*.h)
add_custom_command(OUTPUT man3/truce_store.3
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/man3 ${CMAKE_CURRENT_BINARY_DIR}/man3 ${PROJECT_VERSION}
    DEPENDS tools/man3 ${TRUCE_PUBLIC_HEADERS} VERBATIM)
add_custom_target(truce_man3 ALL DEPENDS man3/truce_store.3)
install(DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/man3 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT dev)

# The prefix in truce.pc is where the file lies, so that it is right wherever it was installed.
file(RELATIVE_PATH TRUCE_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" TRUCE_PC_PREFIX "${TRUCE_PC_PREFIX}")
configure_file(cmake/truce.pc.in truce.pc @ONLY)

include(CMakePackageConfigHelpers)
set(TRUCE_CMAKE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/truce)
configure_package_config_file(cmake/truceConfig.cmake.in truceConfig.cmake
    INSTALL_DESTINATION ${TRUCE_CMAKE_FOLDER})
write_basic_package_version_file(truceConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS truce_shared EXPORT truce
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
install(TARGETS truce_static EXPORT truce
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
if(TRUCE_BROKERS)
    install(TARGETS ${TRUCE_BROKERS} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/truce COMPONENT runtime)
endif()
install(EXPORT truce NAMESPACE truce:: FILE truceTargets.cmake DESTINATION ${TRUCE_CMAKE_FOLDER}
    COMPONENT dev)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/truceConfig.cmake
    ${CMAKE_CURRENT_BINARY_DIR}/truceConfigVersion.cmake
    DESTINATION ${TRUCE_CMAKE_FOLDER} COMPONENT dev)
install(DIRECTORY include/truce DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/truce.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT cli)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT dev)
install(TARGETS truce_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT cli)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/truce.1
    DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT cli)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/truce.bash RENAME truce
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT cli)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/truce.zsh RENAME _truce
    DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT cli)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/truce.fish
    DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT cli)
