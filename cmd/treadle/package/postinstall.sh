#!/bin/sh
# After an installation or upgrade. Nothing is started: the administrator looks at the settings first. A server that
# runs is restarted with the new program, which waits for its jobs as --drain says.
set -e
systemd-sysusers treadle.conf
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart treadle.service treadle-disbatch.service
fi
