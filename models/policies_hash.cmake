# Writes OUT, a header with a hash of SOURCES.
set(all "")
foreach(source ${SOURCES})
  file(SHA256 ${source} hash)
  string(APPEND all ${hash})
endforeach()
string(SHA256 hash "${all}")
file(WRITE ${OUT} "#define STALLCAST_POLICIES_HASH \"${hash}\"\n")
