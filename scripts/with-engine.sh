#!/usr/bin/env bash
# Runs a command with a Docker Engine at hand: one that runs already, or one
# that is started here and stopped again afterwards. Without the right to start
# one the command runs all the same and says itself what it leaves out.
# usage: with-engine.sh COMMAND [ARGUMENT...]
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
say() { printf 'engine: %s\n' "$*"; }

answers() { timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

engine=
if answers; then
  :
elif ! command -v dockerd >/dev/null; then
  say "no Docker Engine is installed; container tasks cannot run here"
elif [ "$(id -u)" != 0 ]; then
  say "the Docker Engine does not answer and only root may start it; container tasks cannot run here"
else
  log=$(mktemp -t tandem-dockerd.XXXXXX.log)
  # In a session of its own, so that Ctrl-C reaches the command and not the engine that it needs to clean up.
  setsid dockerd >"$log" 2>&1 </dev/null &
  engine=$!
  for _ in $(seq 1 150); do
    answers && break
    if ! kill -0 "$engine" 2>/dev/null; then break; fi
    sleep 0.2
  done
  if answers; then
    say "started a Docker Engine (pid $engine); it is stopped at the end"
  else
    say "the Docker Engine did not start; the end of its log ($log):"
    tail -5 "$log" | sed 's/^/engine:   /'
    kill "$engine" 2>/dev/null || true
    engine=
  fi
fi

stop() {
  [ -n "$engine" ] || return 0
  kill "$engine" 2>/dev/null || true
  for _ in $(seq 1 100); do kill -0 "$engine" 2>/dev/null || break; sleep 0.1; done
  rm -f "$log"
  engine=
}
trap stop EXIT
# The command gets the terminal's signals itself; this script only waits for it.
trap '' INT
status=0
( trap - INT; exec "$@" ) || status=$?
exit "$status"
