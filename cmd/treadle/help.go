package main

// topHelp is the text of treadle help. Kong prints it behind the synopsis and keeps indented lines as they are. The
// text of each command is its Help method, beside the command.
const topHelp = `Treadle is a job server, and this is also its command line.

Start a server, do the jobs of a function "echo" with a command, and submit one:

	treadle serve
	treadle work echo -v --data -- sh -c 'cat; echo ", $0"'
	treadle run echo first-job -w hello

-H ADDR names the server for every command: a host (its port is the default of the protocol that the command speaks), host:port, tcp://host:port, unix:///path or a path. Without it a variable does: TREADLE_GLOOM_MASTERS, TREADLE_GLOOM_SLAVES, TREADLE_DWORK, TREADLE_KTS46, TREADLE_DISBATCH_URL, TREADLE_HTTP (for health and dwork graph), TREADLE_ADMIN (for queue, job, cron, audit, top, config show and reload, which use treadle-data/admin.sock without it, and take http://host:port, too) or, for Periodic, TREADLE_HOST, which counts for all when it is a host alone.

Every command explains itself: treadle help submit. Times are seconds, or have units as 500ms, 90s, 5m or 1h30m; sizes are bytes, or have units as 64k, 64m or 64MiB.

Output has no colours, whatever NO_COLOR says. With --json a list is one object a line, and an error is one on standard error: {"error":"...","reason":"...","exit":1}.`
