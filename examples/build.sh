#!/usr/bin/env bash
# Makes the examples runnable on this machine: packs the archives, makes the
# images, and writes the artifacts with the addresses of both into OUTDIR/artifacts.
# usage: build.sh OUTDIR            pack everything
#        build.sh --clean OUTDIR    remove OUTDIR and the images again
# Needs Go, redis-server and busybox-static. Without a Docker Engine the
# artifacts with containers are left out, and without root processes run as who
# calls this; it says so.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
images=(tandem-examples/consul:latest tandem-examples/busybox:latest)

say() { printf 'examples: %s\n' "$*"; }
die() { say "$*" >&2; exit 1; }

clean=
if [ "${1:-}" = --clean ]; then clean=1; shift; fi
[ $# = 1 ] && [ -n "$1" ] || { sed -n '2,8s/^# //p' "$0" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
case $out in *[[:space:]\|\&\"\\%]*) die "the directory $out must not contain blanks, quotes, backslashes, |, & or %" ;; esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$here" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$work/mkimage" ./mkimage)

if [ -n "$clean" ]; then
  [ -e "$out/images/none" ] || "$work/mkimage" -remove "${images[@]}" || say "the images stay: ${images[*]}"
  rm -rf "$out"
  exit 0
fi

PATH=$PATH:/usr/sbin:/sbin
command -v redis-server >/dev/null || die "redis-server is missing; apt-get install redis-server"
busybox=
for b in /bin/busybox /usr/bin/busybox; do
  # A dynamic busybox would not run in an image that holds nothing else.
  if [ -x $b ] && ! ldd $b 2>/dev/null | grep -q '=>'; then busybox=$b; break; fi
done
[ -n "$busybox" ] || die "a static busybox is missing; apt-get install busybox-static"

# The same files give the same bytes, so that what is fetched already stays valid.
pack() { # pack ARCHIVE DIRECTORY
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$work" -cf - "$2" | gzip -n >"$out/$1.new"
  mv "$out/$1.new" "$out/$1"
  say "packed $out/$1 ($(du -h "$out/$1" | cut -f1))"
}

# Redis with its loader and libraries. redis-server is a link on some systems,
# and goes by the name it is called by.
mkdir -p "$work/redis/bin" "$work/redis/lib"
cp "$here"/redis/*.sh "$work/redis/"
for program in redis-server redis-cli; do
  cp -L "$(command -v $program)" "$work/redis/bin/$program"
  ldd "$work/redis/bin/$program" | awk '$2 == "=>" && $3 ~ /^\// {print $3} $1 ~ /^\// {print $1}'
done | sort -u | while read -r lib; do cp -L "$lib" "$work/redis/lib/"; done
pack redis-v1.tar.gz redis

mkdir -p "$work/web"
cp "$here/web/serve.sh" "$busybox" "$work/web/"
pack web-v1.tar.gz web

# Images from files of this machine: nothing is pulled.
mkdir -p "$out/images" "$work/busybox/bin" "$work/busybox/tmp"
for applet in $("$busybox" --list); do ln -sf busybox "$work/busybox/bin/$applet"; done
cp --remove-destination "$busybox" "$work/busybox/bin/busybox"
mkdir -p "$work/consul"
cp -a "$work/busybox/." "$work/consul/"
(cd "$here" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$work/consul/bin/consul" ./registry)
containers=1
for image in "${images[@]}"; do
  name=${image#*/}; name=${name%:*}
  if "$work/mkimage" -load -o "$out/images/$name.tar" "$image" "$work/$name"; then
    say "made the image $image"
  else
    containers=
  fi
done

rm -f "$out/images/none"
if [ -z "$containers" ]; then touch "$out/images/none"; fi

rm -rf "$out/artifacts"
mkdir -p "$out/artifacts"
user=
if [ "$(id -u)" != 0 ]; then
  user="s|\"user\": \"[^\"]*\"|\"user\": \"$(id -un)\"|;"
  say "only root may start processes as another user: they run as $(id -un) here"
fi
for artifact in "$here"/*.json "$here"/*.yaml; do
  if [ -z "$containers" ] && grep -q 'tandem-examples/' "$artifact"; then
    say "left out $(basename "$artifact"): it needs containers, and there is no Docker Engine"
    continue
  fi
  sed "${user}s|/OUTDIR/|$out/|g" "$artifact" >"$out/artifacts/$(basename "$artifact")"
done
say "wrote $out/artifacts; run them with: tandem apply -f $out/artifacts --wait"
