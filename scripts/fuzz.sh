#!/usr/bin/env bash
# Runs every fuzz target of the module for a while, one after the other, and
# goes on after a failure; the last line counts.
# Making inputs smaller is bounded by tries: of archives it would take all the time.
# usage: fuzz.sh TIME   (for example 30s)
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
ran=0 failed=()
while IFS=: read -r file target; do
  dir=./$(dirname "$file")
  echo "fuzz: $dir $target for $time"
  go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 100x "$dir" </dev/null || failed+=("$dir $target")
  ran=$((ran + 1))
done < <(grep -rE --include='*_test.go' --exclude-dir=.git '^func Fuzz[A-Z]' . | sed -E 's|^\./([^:]*):func (Fuzz[A-Za-z0-9_]+).*|\1:\2|' | sort)
for f in "${failed[@]}"; do echo "fuzz: FAILED: $f"; done
echo "fuzz: $ran targets, ${#failed[@]} failed"
[ "$ran" -gt 0 ] && [ ${#failed[@]} = 0 ]
