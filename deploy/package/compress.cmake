# Run by cpack over what it has installed for all packages: Debian has manual pages and changelogs compressed.
file(GLOB_RECURSE files ${CPACK_TEMPORARY_DIRECTORY}/*/usr/share/man/* ${CPACK_TEMPORARY_DIRECTORY}/*/usr/share/doc/*)
list(FILTER files INCLUDE REGEX "/man[0-9]/[^/]*[0-9]$|/doc/[^/]*/changelog(.Debian)?$")
execute_process(COMMAND gzip -9n ${files} COMMAND_ERROR_IS_FATAL ANY)
