# simt_emulator_sources: what runs blocks of a kernel on the CPU, apart from launch.cc, which queues them on
# InfiniRT's streams. simt_emulator_core_sources: what these need of the framework where it is not linked.
set(simt_emulator_sources block_runner early fault fiber grid options race_detector shared_memory)
list(TRANSFORM simt_emulator_sources REPLACE "(.+)" "${CMAKE_CURRENT_LIST_DIR}/\\1.cc")
set(simt_emulator_core_sources device/environment error)
list(TRANSFORM simt_emulator_core_sources REPLACE "(.+)" "${CMAKE_CURRENT_LIST_DIR}/../../../infini_train/core/\\1.cc")
