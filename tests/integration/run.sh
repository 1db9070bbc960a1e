#!/bin/sh
# run.sh PYTHON SERVER TOOL SOURCE_DIR: the Python tests against the built programs.
if ! "$1" -c 'import grpc, grpc_health, grpc_reflection, safetensors, numpy' 2>/dev/null; then
  echo "integration tests: $1 is missing, or lacks the packages of tests/integration/requirements.txt;" >&2
  echo "run tools/setup.sh test, or set LOOKBACK_TEST_PYTHON to a Python that has them" >&2
  exit 1
fi
python=$1
export LOOKBACK_SERVER_BINARY="$2" LOOKBACK_TOOL_BINARY="$3" LOOKBACK_SOURCE_DIR="$4"
exec "$python" -m unittest discover --verbose --start-directory "$4/tests/integration"
