# Included before project(): MetaX and Moore bring their own compiler, which is used where the SDK is
# installed and nothing else was asked for.

if(NOT CMAKE_CXX_COMPILER)
  set(_maca "$ENV{MACA_PATH}")
  if(NOT _maca)
    set(_maca /opt/maca)
  endif()
  set(_musa "$ENV{MUSA_HOME}")
  if(NOT _musa)
    set(_musa /usr/local/musa)
  endif()
  if(WITH_METAX AND EXISTS "${_maca}/mxgpu_llvm/bin/mxcc")
    set(CMAKE_CXX_COMPILER "${CMAKE_CURRENT_LIST_DIR}/../scripts/mxcc_wrapper.sh")
  elseif(WITH_MOORE AND EXISTS "${_musa}/bin/mcc")
    set(CMAKE_CXX_COMPILER "${CMAKE_CURRENT_LIST_DIR}/../scripts/mcc_wrapper.sh")
  endif()
endif()
