# lookback_protobuf and lookback_reflection: what generated code and the server link for Protobuf and for
# gRPC's server reflection (the one part of gRPC that needs Protobuf).
#
# Debian's libsentencepiece contains a Protobuf of another version under the same exported names. With
# libprotobuf.so in the same process each calls into the other, and the program dies before main(). So
# beside SentencePiece, Protobuf comes from its archive: whole, lest a name be found in libsentencepiece
# first, and with names that stay inside the program.
add_library(lookback_protobuf INTERFACE)
add_library(lookback_reflection INTERFACE)
if(NOT LOOKBACK_SENTENCEPIECE)
  target_link_libraries(lookback_protobuf INTERFACE protobuf::libprotobuf)
  target_link_libraries(lookback_reflection INTERFACE gRPC::grpc++_reflection)
  return()
endif()

find_package(ZLIB REQUIRED)
find_library(LOOKBACK_PROTOBUF_ARCHIVE libprotobuf.a REQUIRED)
find_library(LOOKBACK_REFLECTION_ARCHIVE libgrpc++_reflection.a REQUIRED)
set(names ${CMAKE_CURRENT_LIST_DIR}/protobuf_names.ver)
target_include_directories(lookback_protobuf SYSTEM INTERFACE
  $<TARGET_PROPERTY:protobuf::libprotobuf,INTERFACE_INCLUDE_DIRECTORIES>)
target_link_libraries(lookback_protobuf INTERFACE
  $<LINK_LIBRARY:WHOLE_ARCHIVE,${LOOKBACK_PROTOBUF_ARCHIVE}> ZLIB::ZLIB Threads::Threads)
# --as-needed drops the libprotobuf.so that gRPC's own targets list and do not use.
target_link_options(lookback_protobuf INTERFACE LINKER:--as-needed LINKER:--version-script=${names})
set_property(TARGET lookback_protobuf APPEND PROPERTY INTERFACE_LINK_DEPENDS ${names})
target_link_libraries(lookback_reflection INTERFACE
  ${LOOKBACK_REFLECTION_ARCHIVE} lookback_protobuf gRPC::grpc++)
