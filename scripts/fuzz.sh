#!/usr/bin/env bash
# Runs every fuzz target of the module for a while, one after the other.
# usage: fuzz.sh TIME   (for example 30s)
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
git grep -lE '^func Fuzz[A-Z]' -- '*_test.go' | while read -r file; do
  dir=./$(dirname "$file")
  grep -oE '^func Fuzz[A-Za-z0-9_]+' "$file" | sed 's/^func //' | while read -r target; do
    echo "fuzz: $dir $target for $time"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir"
  done
done
