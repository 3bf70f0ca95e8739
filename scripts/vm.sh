#!/usr/bin/env bash
# Boots a small Debian in a virtual machine, with systemd in charge and cgroups v2
# only, and runs in it the tests that need such a machine: those of scripts/vm-tests.txt,
# reported as those of `make test` are. The machine is made once and kept in build/vm;
# what a run writes to it is forgotten. There is no network in it.
#
# usage: vm.sh               run the tests
#        vm.sh -run REGEXP   only these, of every package
#        vm.sh -- COMMAND    run a command (of sh) in /payload, a copy of this tree with bin/
#
# TANDEM_VM_ACCEL=kvm or tcg chooses how the machine is made; by itself it is kvm where
# the processor says that it can. TANDEM_VM_LIMIT is how many seconds it may run (2400).
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/local/go/bin:/usr/sbin:/sbin
dir=$PWD/build/vm
say() { printf 'vm: %s\n' "$*" >&2; }

# What the machine has besides Debian's required packages and a kernel.
release=bookworm
packages=systemd-sysv,dbus,iproute2,kmod

# made_root makes the root file system and the kernel for the machine, unless they are there.
made_root() {
  local key root
  key=$(sed -n '/^release=/,/^}/p' scripts/vm.sh | sha256sum | cut -c1-12)
  image=$dir/root-$key.ext4 kernel=$dir/vmlinuz-$key
  [ -e "$image" ] && [ -e "$kernel" ] && return
  [ "$(id -u)" = 0 ] || { say "only root can make the machine (debootstrap); run this as root once"; return 1; }
  say "making a Debian $release for the machine (a minute or two)"
  rm -f "$dir"/root-* "$dir"/vmlinuz-*
  root=$dir/root
  rm -rf "$root"
  if ! debootstrap --variant=minbase --include=$packages $release "$root" ${DEBIAN_MIRROR:-} >"$dir/debootstrap.log" 2>&1; then
    tail -5 "$dir/debootstrap.log" >&2
    say "debootstrap failed; its log is $dir/debootstrap.log; DEBIAN_MIRROR names another mirror"
    return 1
  fi
  # The kernel is unpacked and not installed: what makes initial file systems would come with it, and
  # this one has the driver of its disk (NVMe) and ext4 built in.
  # shellcheck disable=SC2016 # that is for the shell over there
  chroot "$root" sh -ec 'install -d -o _apt /kernel && cd /kernel
    apt-get -qq download $(apt-cache depends linux-image-cloud-amd64 | sed -n "s/.*Depends: \(linux-image-[0-9].*\)/\1/p")
    dpkg-deb -x linux-image-*.deb . && mv lib/modules /usr/lib/'
  mv "$root"/kernel/boot/vmlinuz-* "$kernel"
  rm -r "$root/kernel"
  chroot "$root" depmod "$(ls "$root/lib/modules")"
  rm -rf "$root"/{var/cache/apt,var/lib/apt/lists,usr/share/{doc,man,locale,i18n,zoneinfo}}/*
  printf '127.0.0.1 localhost vm\n::1 localhost\n' >"$root/etc/hosts"
  echo vm >"$root/etc/hostname"
  cat >"$root/etc/systemd/system/tandem-vm.service" <<'UNIT'
[Unit]
Description=What this machine is for
[Service]
ExecStart=/bin/sh -c 'mkdir -p /payload && mount /dev/nvme0n2 /payload && exec /payload/scripts/vm-guest.sh'
ExecStopPost=/bin/sh -c 'systemctl poweroff -ff >/dev/null 2>&1'
StandardOutput=file:/dev/ttyS1
StandardError=inherit
KillMode=process
UNIT
  mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
  ln -s ../tandem-vm.service "$root/etc/systemd/system/multi-user.target.wants/"
  ln -s /dev/null "$root/etc/systemd/system/serial-getty@ttyS0.service"
  mkfs.ext4 -qq -L root -d "$root" "$image.new" 1G >/dev/null
  rm -rf "$root"
  mv "$image.new" "$image"
}

# made_payload makes the second disk: this tree, its programs and tests, and what is to be done.
made_payload() {
  local payload=$dir/payload package regexp
  rm -rf "$payload"
  mkdir -p "$payload/bin"
  git ls-files -z -c -o --exclude-standard | tar -c --null -T - --ignore-failed-read -f - 2>/dev/null | tar -x -C "$payload"
  export CGO_ENABLED=0
  go build -buildvcs=false -o "$payload/bin/" ./cmd/... ./integration/bench
  go build -buildvcs=false -o "$payload/bin/test2json" cmd/test2json
  if [ -n "$command" ]; then printf '%s\n' "$command" >"$payload/command"; fi
  grep -v '^#' scripts/vm-tests.txt | while read -r package regexp; do
    go test -c -o "$payload/$package/vm.test" "./$package"
    printf '%s\t%s\n' "$package" "${run:-$regexp}"
  done >"$payload/tests"
  rm -f "$dir/payload.ext4"
  mkfs.ext4 -qq -L payload -d "$payload" "$dir/payload.ext4" 2G >/dev/null
  rm -rf "$payload"
}

# accelerated names how qemu makes the processor. A processor without vmx and svm may have a
# /dev/kvm all the same, of a kind that runs only kernels made for it.
accelerated() {
  local accel=${TANDEM_VM_ACCEL:-}
  if [ -z "$accel" ]; then
    accel=tcg
    if [ -w /dev/kvm ] && grep -qwE 'vmx|svm' /proc/cpuinfo; then accel=kvm; fi
  fi
  case $accel in
  kvm) echo "-accel kvm -cpu host" ;;
  tcg) echo "-accel tcg,thread=multi -cpu max" ;;
  *) say "TANDEM_VM_ACCEL=$accel: want kvm or tcg"; return 1 ;;
  esac
}

# boot becomes the machine, which ends with this script, however that ends, and at its limit. Its second
# serial line is the standard output.
boot() {
  local accel limit=${TANDEM_VM_LIMIT:-2400}
  accel=$(accelerated)
  : >"$dir/console.log"
  # shellcheck disable=SC2086 # the options are several words
  exec setpriv --pdeathsig TERM timeout -k 5 "$limit" qemu-system-x86_64 $accel -smp 2 -m 1024 -nodefaults -nographic -no-reboot \
    -serial "file:$dir/console.log" -serial stdio \
    -device nvme,serial=tandem,id=disks \
    -drive "file=$image,format=raw,if=none,id=root,snapshot=on,cache=unsafe" -device nvme-ns,drive=root,bus=disks,nsid=1 \
    -drive "file=$dir/payload.ext4,format=raw,if=none,id=payload,snapshot=on,cache=unsafe" -device nvme-ns,drive=payload,bus=disks,nsid=2 \
    -kernel "$kernel" -append "root=/dev/nvme0n1 rw console=ttyS0 loglevel=5 panic=-1 mitigations=off systemd.show_status=0" </dev/null
}

# followed passes on what the machine says and returns what its last line says.
followed() {
  local line code=''
  while IFS= read -r line; do
    line=${line%$'\r'}
    case $line in
    'tandem-vm: exit '*) code=${line##* } ;;
    *) printf '%s\n' "$line" ;;
    esac
  done
  if [ -z "$code" ]; then
    say "the machine ended before what it was for; the end of its console ($dir/console.log):"
    tail -15 "$dir/console.log" >&2 || true
    return 1
  fi
  return "$code"
}

# machine boots it, follows it, and leaves nothing of it.
machine() {
  local code=0
  exec 3< <(boot)
  booted=$!
  trap 'kill $booted 2>/dev/null && wait $booted || true' EXIT
  trap 'exit 130' INT TERM HUP
  followed <&3 || code=$?
  exec 3<&-
  wait "$booted" 2>/dev/null || true
  return "$code"
}

command='' run=''
case ${1:-} in
--) shift; command=$* ;;
-run) run=${2:?a regular expression} ;;
'' | --boot) ;;
*) sed -n '/^# usage/,/^# TANDEM/p' scripts/vm.sh >&2; exit 2 ;;
esac

mkdir -p "$dir"
if [ "${1:-}" = --boot ]; then
  image=$(ls "$dir"/root-*.ext4) kernel=$(ls "$dir"/vmlinuz-*)
  machine
  exit
fi
exec 9>"$dir/lock"
flock -n 9 || { say "another run uses $dir"; exit 1; }
scripts/setup.sh --for vm >&2
made_root
made_payload
say "booting ($(accelerated))"
if [ -n "$command" ]; then
  machine
else
  go build -buildvcs=false -o build/testreport ./internal/testreport
  build/testreport -closing build/vm/closing.txt scripts/vm.sh --boot
fi
