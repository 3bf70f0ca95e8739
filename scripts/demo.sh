#!/usr/bin/env bash
# Packs what the examples need, runs the demo, and removes what was packed.
set -euo pipefail
cd "$(dirname "$0")/.."
examples/build.sh build/examples
status=0
go run ./integration/demo -bin bin -examples build/examples "$@" || status=$?
examples/build.sh --clean build/examples
exit "$status"
