#!/bin/sh
# Before a removal, not before an upgrade: deb says "remove", rpm the number of packages that stay.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now treadle.service treadle-disbatch.service
	fi
	;;
esac
