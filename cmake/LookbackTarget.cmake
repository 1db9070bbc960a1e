# What every target of ours has in common: include root, warnings, sanitizers, floating-point rules.
# Generated sources (Protobuf) are not ours and do not take it.
function(lookback_target target)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion
    # A contracted multiply-add would make the same source give other bits on another CPU.
    -ffp-contract=off)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # False alarms of GCC 12 on moved, joined and compared std::string (GCC bugs 105329 and 105651).
    target_compile_options(${target} PRIVATE -Wno-restrict -Wno-array-bounds -Wno-stringop-overread)
  endif()
  if(LOOKBACK_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()

if(LOOKBACK_SANITIZE)
  # Checks of `null` and `vptr` at every member access are a third of a build's time, and find little that
  # AddressSanitizer's own trap does not. With GCC those of `alignment` and `pointer-overflow` are another
  # quarter; the fuzz targets, which clang builds, have them.
  add_compile_options(-fsanitize=${LOOKBACK_SANITIZE} -fno-sanitize=null,vptr -fno-omit-frame-pointer
    -fno-sanitize-recover=all $<$<CXX_COMPILER_ID:GNU>:-fno-sanitize=alignment,pointer-overflow>)
  add_link_options(-fsanitize=${LOOKBACK_SANITIZE})
endif()

# For code whose speed does not matter: commands and tests.
set(LOOKBACK_QUICK $<$<CONFIG:Release>:-Og>)
