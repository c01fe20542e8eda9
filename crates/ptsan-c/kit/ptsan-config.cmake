# For find_package(ptsan):
#
#   ptsan::ptsan                  the library and its header
#   ptsan::stores                 beside it, ptsan_stores.c: for programs with code whose stores
#                                 the compiler tells
#   ptsan_tell_stores(TARGET)     compiles a target (an object library, say) as such code
cmake_minimum_required(VERSION 3.13)
include(CMakeFindDependencyMacro)
find_dependency(Threads)
get_filename_component(_ptsan_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET ptsan::ptsan)
    add_library(ptsan::ptsan STATIC IMPORTED)
    set_target_properties(ptsan::ptsan PROPERTIES
        IMPORTED_LOCATION "${_ptsan_prefix}/lib/libptsan_c.a"
        INTERFACE_INCLUDE_DIRECTORIES "${_ptsan_prefix}/include"
        INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m")
    add_library(ptsan::stores INTERFACE IMPORTED)
    set_target_properties(ptsan::stores PROPERTIES
        INTERFACE_SOURCES "${_ptsan_prefix}/share/ptsan/ptsan_stores.c"
        INTERFACE_LINK_LIBRARIES ptsan::ptsan)
endif()

function(ptsan_tell_stores target)
    target_compile_options(${target} PRIVATE -O1 -fsanitize=thread -fno-builtin
        -Dmemset=ptsan_stores_memset -Dmemcpy=ptsan_stores_memcpy -Dmemmove=ptsan_stores_memmove)
endfunction()
