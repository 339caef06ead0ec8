#!/bin/sh
# After a removal. Jobs are worth more than the space that they take: /var/lib/treadle stays, also after a purge.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
if [ "$1" = purge ] && [ -d /var/lib/treadle ]; then
	echo "treadle: /var/lib/treadle is kept, with the jobs of the server; remove it if you need none of them"
fi
