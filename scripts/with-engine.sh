#!/usr/bin/env bash
# Runs a command with a Docker Engine at hand: one that runs already, or one
# that is started here and stopped again afterwards. Without the right to start
# one the command runs all the same and says itself what it leaves out.
# usage: with-engine.sh COMMAND [ARGUMENT...]
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
say() { printf 'engine: %s\n' "$*"; }

top=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$top/build"
(cd "$top" && go build -buildvcs=false -o build/engineping ./internal/engineping)
answers() { why=$("$top/build/engineping" 2>&1); }

# Until the command has ended and the engine is stopped, this script stays: what
# the terminal or CI sends to the whole group is for the command.
trap '' INT
trap : TERM HUP

engine=
if answers; then
  :
elif [ -n "${DOCKER_HOST:-}" ] && [ "$DOCKER_HOST" != unix:///var/run/docker.sock ]; then
  say "$why"
  say "DOCKER_HOST names an engine that does not answer; container tasks cannot run here"
elif ! command -v dockerd >/dev/null; then
  say "no Docker Engine is installed; container tasks cannot run here"
elif [ "$(id -u)" != 0 ]; then
  say "$why"
  say "only root may start a Docker Engine; container tasks cannot run here"
else
  log=$(mktemp -t tandem-dockerd.XXXXXX.log)
  # In a session of its own, so that Ctrl-C reaches the command and not the engine that it needs to clean up.
  setsid dockerd >"$log" 2>&1 </dev/null &
  engine=$!
  up=
  for _ in $(seq 1 150); do
    if answers; then up=1; break; fi
    if ! kill -0 "$engine" 2>/dev/null; then break; fi
    sleep 0.2
  done
  if [ -n "$up" ]; then
    say "started a Docker Engine $why (pid $engine); it is stopped at the end"
  else
    say "the Docker Engine did not start, so container tasks cannot run here; the end of its log ($log):"
    tail -5 "$log" | sed 's/^/engine:   /'
    kill "$engine" 2>/dev/null || true
    engine=
  fi
fi

stop() {
  [ -n "$engine" ] || return 0
  kill "$engine" 2>/dev/null || true
  # It gives containers 15 s to end.
  for _ in $(seq 1 300); do kill -0 "$engine" 2>/dev/null || break; sleep 0.1; done
  if kill -0 "$engine" 2>/dev/null; then
    say "the Docker Engine (pid $engine) does not end; its log is $log"
  else
    rm -f "$log"
  fi
  engine=
}
trap stop EXIT
status=0
( trap - INT TERM HUP; exec "$@" ) || status=$?
exit "$status"
