#!/usr/bin/env bash
# Packs what the examples need, runs the demo, and removes what was packed.
set -euo pipefail
cd "$(dirname "$0")/.."
trap 'examples/build.sh --clean build/examples' EXIT
examples/build.sh build/examples
# A program of its own, so that Ctrl-C reaches it once, and from the terminal only.
go build -buildvcs=false -o build/demo ./integration/demo
build/demo -bin bin -examples build/examples "$@"
