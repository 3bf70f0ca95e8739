#!/bin/sh
# Starts a Redis in the background and returns when it answers. The variables
# come from the artifact: work_dir, pid_file, hostip; PORT0 is its port.
set -eu
cd "$work_dir"
mkdir -p data
# The packed loader and libraries make the program run on any Linux of this architecture.
set -- "$(echo lib/ld-*)" --library-path lib
"$@" bin/redis-server --bind "$hostip" --port "$PORT0" --protected-mode no --daemonize no --pidfile "$pid_file" \
  --dir "$work_dir/data" --appendonly no --save 3600 1 --loglevel notice &
server=$!
for _ in $(seq 30); do
  # Another server may hold the port and answer; then this one ends.
  if [ "$(cat "$pid_file" 2>/dev/null)" = "$server" ] && [ "$("$@" bin/redis-cli -h "$hostip" -p "$PORT0" PING 2>&1)" = PONG ]; then
    echo "redis of $namespace/$processname.$instanceid answers on $hostip:$PORT0"
    exit 0
  fi
  kill -0 "$server" 2>/dev/null || { echo "redis-server has ended; its reason is above" >&2; exit 1; }
  sleep 0.1
done
echo "redis-server does not answer on $hostip:$PORT0 after 3 s" >&2
kill "$server" 2>/dev/null || true
exit 1
