#!/usr/bin/env bash
# Installs what is missing on a Debian-like machine, and says what it does.
# usage: setup.sh [--for test|lint|demo|vm]   (everything but what vm needs when nothing is named)
# Without root it installs nothing and names what is missing; the parts that
# need it then say so themselves.
set -euo pipefail
cd "$(dirname "$0")/.."

LINT_VERSION=v2.15.0
want=all
if [ "${1:-}" = "--for" ]; then want=${2:?test, lint, demo or vm}; fi

say() { printf 'setup: %s\n' "$*"; }

command -v go >/dev/null || { say "Go is missing: install Go 1.26 or later (https://go.dev/dl), or put it into PATH"; exit 1; }

packages=()
need() { packages+=("$1"); }
has() { command -v "$1" >/dev/null 2>&1; }
# A dynamic busybox would not run in an image that holds nothing else.
static_busybox() {
  local b
  for b in /bin/busybox /usr/bin/busybox; do [ -x $b ] && ! ldd $b 2>/dev/null | grep -q '=>' && return; done
  return 1
}
PATH=$PATH:/usr/sbin:/sbin
missing() {
  packages=()
  if [ "$want" = vm ]; then
    has qemu-system-x86_64 || need qemu-system-x86
    has debootstrap || need debootstrap
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || need debian-archive-keyring
    has mkfs.ext4 || need e2fsprogs
    return
  fi
  if [ "$want" != lint ]; then
    has dockerd || need docker.io
    # What the examples and the images of the tests are made of.
    static_busybox || need busybox-static
    has redis-server || need redis-server
    has ip || need iproute2
  fi
  if [ "$want" = test ] || [ "$want" = all ]; then
    has gcc || need gcc # the race detector is linked with cgo
    [ -e /usr/include/stdlib.h ] || need libc6-dev
    [ -e /usr/lib/cni/bridge ] || need containernetworking-plugins
    has nft || need nftables
    # Servers that the process daemon is tried with, each of another style.
    has nginx || need nginx-light
    has haproxy || need haproxy
    has memcached || need memcached
  fi
}

missing
if [ ${#packages[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ]; then
    say "not root, so these packages stay missing: ${packages[*]}"
    say "install them (apt-get install ${packages[*]}); until then what needs them is left out, and says so"
  elif ! has apt-get; then
    say "no apt-get here; install the equivalents of: ${packages[*]}"
  else
    say "installing ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # Packages must not start services here: the engine is started by with-engine.sh
    # and stopped again, and a Redis of the distribution would hold the port.
    policy=/usr/sbin/policy-rc.d made='' log=$(mktemp)
    if [ ! -e $policy ] && [ ! -L $policy ]; then printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy && made=1; fi
    trap 'if [ -n "$made" ]; then rm -f $policy; fi' EXIT
    # Another apt-get, such as the machine's own updates, is waited for.
    if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=120 "${packages[@]}"; } >"$log" 2>&1; then
      tail -20 "$log"; say "apt-get failed; the log is $log"; exit 1
    fi
    rm -f "$log"
    missing
    if [ ${#packages[@]} -gt 0 ]; then say "installed, but still not to be found: ${packages[*]}"; exit 1; fi
  fi
fi

if [ "$want" = lint ] || [ "$want" = all ]; then
  mkdir -p bin
  if ! bin/golangci-lint version 2>/dev/null | grep -qF " ${LINT_VERSION#v} "; then
    say "building golangci-lint $LINT_VERSION (about two minutes)"
    log=$(mktemp)
    if ! GOBIN=$PWD/bin go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$LINT_VERSION" >"$log" 2>&1; then
      grep -v '^go: downloading' "$log" || true
      rm -f "$log"
      exit 1
    fi
    rm -f "$log"
  fi
fi
if [ "$want" = all ]; then
  if [ ${#packages[@]} -gt 0 ]; then say "missing: ${packages[*]}"; exit 1; fi
  say "everything is there"
fi
