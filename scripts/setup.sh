#!/usr/bin/env bash
# Installs what is missing on a Debian-like machine, and says what it does.
# usage: setup.sh [--for test|lint|demo]   (everything when nothing is named)
# Without root it installs nothing and names what is missing; the parts that
# need it then say so themselves.
set -euo pipefail
cd "$(dirname "$0")/.."

LINT_VERSION=v2.15.0
want=all
if [ "${1:-}" = "--for" ]; then want=${2:?test, lint or demo}; fi

say() { printf 'setup: %s\n' "$*"; }

command -v go >/dev/null || { say "Go is missing: install Go 1.26 or later first"; exit 1; }

packages=()
need() { # need COMMAND-OR-PATH PACKAGE
  if [[ $1 == /* ]]; then [ -e "$1" ] && return; else command -v "$1" >/dev/null 2>&1 && return; fi
  packages+=("$2")
}
PATH=$PATH:/usr/sbin:/sbin
if [ "$want" != lint ]; then
  # busybox and redis are what the examples and the test images are made of.
  need dockerd docker.io
  need /bin/busybox busybox-static
  need redis-server redis-server
  need ip iproute2
fi
if [ "$want" = test ] || [ "$want" = all ]; then
  need gcc gcc            # the race detector is linked with cgo
  need /usr/include/stdlib.h libc6-dev
  need /usr/lib/cni/bridge containernetworking-plugins
  need nft nftables
fi

if [ ${#packages[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ]; then
    say "not root, so these packages stay missing: ${packages[*]}"
    say "install them (apt-get install ${packages[*]}); until then the container part is left out, and says so"
  elif ! command -v apt-get >/dev/null; then
    say "no apt-get here; install the equivalents of: ${packages[*]}"
  else
    say "installing ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # Packages must not start services here: the engine is started by with-engine.sh
    # and stopped again, and a Redis of the distribution would hold the port.
    policy=/usr/sbin/policy-rc.d made=
    if [ ! -e $policy ]; then printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy && made=1; fi
    trap '[ -n "$made" ] && rm -f $policy' EXIT
    log=$(mktemp)
    if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}"; } >"$log" 2>&1; then
      tail -20 "$log"; say "apt-get failed; the log is $log"; exit 1
    fi
    rm -f "$log"
  fi
fi

if [ "$want" = lint ] || [ "$want" = all ]; then
  mkdir -p bin
  if ! bin/golangci-lint version 2>/dev/null | grep -q "${LINT_VERSION#v}"; then
    say "building golangci-lint $LINT_VERSION (about two minutes)"
    GOBIN=$PWD/bin go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$LINT_VERSION"
  fi
fi
if [ "$want" = all ]; then say "everything is there"; fi
