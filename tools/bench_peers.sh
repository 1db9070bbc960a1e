#!/usr/bin/env bash
# lookback and llama.cpp on the same random Llama of 1.08 B parameters, in turns: a table of ratios.
#   tools/bench_peers.sh DIR [ARGUMENTS…]    ARGUMENTS: of tools/bench_peers.py (--pairs 8, --threads 2, …)
# What DIR lacks is made there: llama.cpp from a package of PyPI (with all that this CPU has, and with
# AVX2 at most where it has more), the model in bf16, Q8_0 and Q4_0. Takes 12 GB and half an hour of two
# cores once.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

llama_version=0.3.36 # of llama-cpp-python, whose source package has llama.cpp in it
llama_sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e

if [[ ${1:--} == -* ]]; then die "got '${1:-}', expected a folder for llama.cpp and the models"; fi
mkdir -p "$1"
dir=$(cd "$1" && pwd)
shift
python=$dir/venv/bin/python
source_dir=$dir/llama_cpp_python-$llama_version/vendor/llama.cpp

fetch_llama() {
  local archive=$dir/llama_cpp_python-$llama_version.tar.gz
  if [[ ! -f $archive ]]; then
    python3 -m pip download --no-deps --no-binary llama-cpp-python -d "$dir" "llama-cpp-python==$llama_version"
  fi
  echo "$llama_sha256  $archive" | sha256sum -c --quiet && tar xzf "$archive" -C "$dir"
}

# build_llama NAME CMAKE_ARGUMENTS…
build_llama() {
  local name=$1
  shift
  # No curl, no OpenSSL, no web page: the build would fetch assets.
  cmake -S "$source_dir" -B "$dir/$name" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLLAMA_OPENSSL=OFF \
    -DLLAMA_BUILD_IS_DEV=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF \
    -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF "$@" &&
    cmake --build "$dir/$name" --parallel "$(jobs)" --target llama-bench llama-quantize
}

make_model() {
  python3 -m venv "$dir/venv" && "$dir/venv/bin/pip" install -q gguf numpy &&
    "$python" tools/make_random_llama.py "$dir/random-1b" --shape 1b \
      --tokenizer tests/golden/tokenizers/smollm2_style &&
    "$python" tools/make_gguf.py "$dir/random-1b" "$dir/part.gguf" && mv "$dir/part.gguf" "$dir/random-1b-bf16.gguf"
}

# quantize TYPE
quantize() {
  "$dir/llama/bin/llama-quantize" "$dir/random-1b-bf16.gguf" "$dir/part.gguf" "$1" &&
    mv "$dir/part.gguf" "$dir/random-1b-$1.gguf"
}

tools/setup.sh build real
stage "build" build_release -- lookback
[[ -d $source_dir ]] || stage "fetch llama.cpp" fetch_llama
[[ -x $dir/llama/bin/llama-quantize ]] || stage "build llama.cpp" build_llama llama -DGGML_NATIVE=ON
if grep -qw avx512f /proc/cpuinfo && [[ ! -x $dir/llama-avx2/bin/llama-quantize ]]; then
  stage "build llama.cpp, AVX2" build_llama llama-avx2 -DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON
fi
[[ -f $dir/random-1b-bf16.gguf ]] || stage "make the model" make_model
for type in Q8_0 Q4_0; do
  [[ -f $dir/random-1b-$type.gguf ]] || stage "make the model, $type" quantize "$type"
done
for type in bf16 q8 q4; do
  [[ -f $dir/random-1b-$type.safetensors ]] ||
    stage "convert, $type" build/release/bin/lookback convert "$dir/random-1b" \
      -o "$dir/random-1b-$type.safetensors" --weights "$type" --quiet
done
exec python3 tools/bench_peers.py "$dir" "$@"
