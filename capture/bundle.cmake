# Copies the libraries that LIBRARY needs, beside those of the C and C++ runtimes and zlib, into
# bundled/ in its folder: as plain files, so that the folder survives any way of copying it.
get_filename_component(folder ${LIBRARY} DIRECTORY)
set(folder ${folder}/bundled)
file(MAKE_DIRECTORY ${folder})
file(GET_RUNTIME_DEPENDENCIES
  LIBRARIES ${LIBRARY}
  RESOLVED_DEPENDENCIES_VAR needed
  PRE_INCLUDE_REGEXES "^lib(protobuf-lite|fmt|zstd|xxhash)\\."
  PRE_EXCLUDE_REGEXES ".")
foreach(library ${needed})
  get_filename_component(name ${library} NAME)
  if(NOT library STREQUAL "${folder}/${name}")
    file(REAL_PATH ${library} file)
    file(COPY_FILE ${file} ${folder}/${name} ONLY_IF_DIFFERENT)
  endif()
endforeach()
