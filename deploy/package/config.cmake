# Read by cpack, when the version is known. A plug-in is made for one lenetd alone.
set(CPACK_DEBIAN_LENETD-CUDA_PACKAGE_DEPENDS
  "libc6, lenetd (= ${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
