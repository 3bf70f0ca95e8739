#!/usr/bin/env bash
# Runs `go test` with the given flags and reports: failures with their output,
# every skipped test with its reason, the slowest tests, and one closing line
# "N passed, N failed, N skipped". A skip without a reason is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
go build -o build/testreport ./internal/testreport
# The report decides about success; go test's own exit code is in its stream.
{ go test -json "$@" || true; } 2>build/test-stderr.log | build/testreport -stderr build/test-stderr.log
