# What every target of ours has in common: include root, warnings, sanitizers, floating-point rules.
# Generated sources (Protobuf) are not ours and do not take it.
function(lookback_target target)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion
    # A contracted multiply-add would make the same source give other bits on another CPU.
    -ffp-contract=off)
  if(LOOKBACK_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()

if(LOOKBACK_SANITIZE)
  add_compile_options(-fsanitize=${LOOKBACK_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LOOKBACK_SANITIZE})
endif()
