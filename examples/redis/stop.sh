#!/bin/sh
# Saves the data and stops the Redis that start.sh started; returns when it is gone.
set -eu
cd "$work_dir"
"$(echo lib/ld-*)" --library-path lib bin/redis-cli -h "$hostip" -p "$PORT0" SHUTDOWN SAVE
pid=$(cat "$pid_file" 2>/dev/null) || exit 0
for _ in $(seq 20); do
  kill -0 "$pid" 2>/dev/null || exit 0
  sleep 0.1
done
echo "redis-server (pid $pid) has not ended within 2 s" >&2
exit 1
