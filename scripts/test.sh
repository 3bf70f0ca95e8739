#!/usr/bin/env bash
# Runs `go test` with the given flags and reports: failures with their output,
# every skipped test with its reason, the slowest tests, and one closing line
# "N passed, N failed, N skipped". A skip without a reason is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
go build -buildvcs=false -o build/testreport ./internal/testreport
flags=()
for flag in "$@"; do
  # The race detector is linked with cgo.
  if [ "$flag" = -race ] && [ "$(go env CGO_ENABLED)" != 1 ]; then
    echo "tests: cgo is off (no C compiler?), so they run without the race detector"
    continue
  fi
  flags+=("$flag")
done
# A program with the race detector sleeps for a second when it ends: each package, and each program that a test starts.
export GORACE="atexit_sleep_ms=50 ${GORACE:-}"
exec build/testreport -closing build/test-closing.txt go test -json "${flags[@]}"
