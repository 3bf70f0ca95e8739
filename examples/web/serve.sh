#!/bin/sh
# Serves one page, in the foreground: the shell becomes the server, which then
# receives the signals itself.
set -eu
mkdir -p www
echo "hello from $BCS_POD_ID, a process on $BCS_NODE_IP:$PORT0" >www/index.html
exec ./busybox httpd -f -p "$BCS_NODE_IP:$PORT0" -h www
