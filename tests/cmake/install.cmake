# cmake -DBUILD_DIR= -DPREFIX= -P install.cmake: installs a built framework into a fresh prefix.

file(REMOVE_RECURSE "${PREFIX}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${PREFIX}" --component InfiniTrain
                COMMAND_ERROR_IS_FATAL ANY)
