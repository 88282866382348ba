#!/usr/bin/env bash
# Makes the Python environment that bench/compare.py measures against: llama.cpp built from source
# for this machine. Needs clang-19, cmake and a few minutes; ends with the path of its python.
#   bench/setup_peer.sh [DIR]       default: .cache/peer
set -euo pipefail

cd "$(dirname "$0")/.."
dir="${1:-.cache/peer}"
# Pinned: figures of different peers cannot be compared.
readonly llama="llama-cpp-python==0.3.36"

for tool in clang-19 clang++-19 cmake python3; do
  if ! command -v "$tool" >/dev/null; then
    echo "setup_peer: '$tool' is missing; install it with: apt-get install clang-19 cmake python3-venv" >&2
    exit 2
  fi
done

[[ -x "$dir/bin/python" ]] || python3 -m venv "$dir"
"$dir/bin/python" -m pip install --quiet --disable-pip-version-check numpy gguf
# clang, because g++ 12 miscompiles the AMX tile configuration. The binary wheels are built for a
# generic CPU, which would flatter us.
if ! "$dir/bin/python" -c 'import llama_cpp' 2>/dev/null; then
  CC=clang-19 CXX=clang++-19 CMAKE_ARGS="-DGGML_NATIVE=ON" \
    "$dir/bin/python" -m pip install --disable-pip-version-check \
    --no-binary llama-cpp-python "$llama"
fi
"$dir/bin/python" -c 'import llama_cpp; print("llama-cpp-python", llama_cpp.__version__)' >&2
echo "$dir/bin/python"
