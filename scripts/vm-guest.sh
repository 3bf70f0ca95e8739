#!/bin/sh
# What runs in the machine of vm.sh. Its output is a serial line; the last one tells how it ended.
stty raw -echo 2>/dev/null </dev/ttyS1
export TANDEM_VM=1 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
cd /payload || exit 1
code=0
if [ -e command ]; then
  sh -c "$(cat command)" 2>&1 || code=$?
else
  while IFS="$(printf '\t')" read -r package regexp; do
    # As `go test` does it: in the package's directory, with a limit.
    (cd "$package" && ./vm.test -test.v=test2json -test.timeout 10m -test.run "$regexp" 2>&1 </dev/null; echo $? >/run/code) | bin/test2json -t -p "tandem/$package"
    [ "$(cat /run/code)" = 0 ] || code=1
  done <tests
fi
echo "tandem-vm: exit $code"
# It waits until all has left the serial line; what has not when the machine is switched off is lost.
stty raw -echo </dev/ttyS1
