package main

// The long help texts. Kong prints them behind the synopsis and keeps indented
// lines as they are.

const topHelp = `Treadle is a job server, and this is also its command line.

Start a server, do the jobs of a function "echo" with a command, and submit one:

	treadle serve
	treadle work echo -v --data -- sh -c 'cat; echo ", $0"'
	treadle run echo first-job -w hello

-H ADDR names the server for every command: a host (its port is the default of the protocol that the command speaks), host:port, tcp://host:port, unix:///path or a path. Without it a variable does: TREADLE_GLOOM_MASTERS, TREADLE_GLOOM_SLAVES, TREADLE_DWORK, TREADLE_KTS46, TREADLE_DISBATCH_URL, TREADLE_HTTP (for health and dwork graph), TREADLE_ADMIN (for queue, job, cron, audit, top, config show and reload, which use treadle-data/admin.sock without it, and take http://host:port, too) or, for Periodic, TREADLE_HOST, which counts for all when it is a host alone.

Every command explains itself: treadle help submit. Times are seconds, or have units as 500ms, 90s, 5m or 1h30m; sizes are bytes, or have units as 64k, 64m or 64MiB.

Output has no colours, whatever NO_COLOR says. With --json a list is one object a line, and an error is one on standard error: {"error":"...","reason":"...","exit":1}.`

// Help is printed by treadle serve --help.
func (serveCmd) Help() string {
	return `Serves until SIGTERM or SIGINT. The server then hands out no more jobs, waits up to --drain for running jobs and pending replies, and exits 0; a second signal exits at once. The log says how many jobs are still running; jobs in the journal run again after the next start.

	treadle serve
	treadle serve --periodic tcp://0.0.0.0:5000 --periodic unix:///run/periodic.sock
	treadle serve --only periodic,gloom
	treadle serve --config /etc/treadle.toml --log-level debug

A configuration file is TOML with the names of the flags. Each flag has a variable, too: TREADLE_SERVE_MAX_FRAME for --max-frame, with commas between the elements of a list. A flag wins over its variable, that over the file:

	periodic = ["tcp://0.0.0.0:5000"]
	max-frame = "16MiB"
	drain = "30s"

SIGHUP and treadle reload read the file again.`
}

// Help is printed by treadle submit --help.
func (submitCmd) Help() string {
	return `Returns when the server has the job. FUNC and NAME identify it: a pending job of the same name is replaced, a running job is left alone.

	treadle submit mail alice@example.org -w 'Hello Alice'
	treadle submit resize photo-17 -w @photo.jpg
	date | treadle submit log now -w @-
	treadle submit report weekly --later 1h --timeout 60

A job that runs for longer than --timeout goes to another worker, and the first worker's result is ignored. treadle work kills its command at the time-out. Without --timeout the server's setting counts (treadle config get timeout, 10m by default): give more to jobs that may take longer.`
}

// Help is printed by treadle run --help.
func (runCmd) Help() string {
	return `Prints the result's bytes as the worker returned them. The job goes on when this command is interrupted.

	treadle run echo first-job -w hello
	treadle run resize photo-17 -w @photo.jpg --wait 30 > small.jpg

A function without workers, a job that fails and a job that is removed are errors with exit code 1. With --framing 2018, and with a server of 2018, the command waits for a worker and through every retry; after two seconds it says when no worker serves FUNC. A server other than Treadle reports these ends as a result "failed", "removed" or "expired".

With --data it prints lines as the original's periodic run: "Data: X" for each piece that the worker publishes, and "Result: X".`
}

// Help is printed by treadle status --help.
func (statusCmd) Help() string {
	return `One line a function, sorted by name: workers that can do it, and its jobs: all, running, ready to be handed out, delayed (not due yet), locked (waiting for a lock, see treadle work --lock-name) and waiting (for other tasks). NEXT is when the next pending job is due ("-": none is pending). --all also shows functions without workers and jobs. A server other than Treadle tells workers, jobs and running only, and since 2019 locked. In JSON next is in Unix seconds, or null.

	treadle status
	treadle status --all
	treadle status --watch
	treadle status --json | jq 'select(.workers == 0) | .function'`
}

// Help is printed by treadle work --help.
func (workCmd) Help() string {
	return `Runs CMD once a job, with the job's name as the last argument and its workload on standard input. The environment has TREADLE_FUNC, TREADLE_NAME and TREADLE_TIMEOUT, the seconds that the job may take (0: no limit). Exit code 0 is done, any other is failed, and a failed job is tried again at once unless --retry-secs or --skip-fail says otherwise; after a failed job the worker rests for 0.1s to 10s. With --later-line an integer as the last line on standard error, and exit code 0, delays the job by that many seconds.

	treadle work log -- tee -a
	treadle work resize --data --thread 4 -- ./resize.sh
	treadle work fetch --timeout 60 --retry-secs 5m -- curl -fsSO --
	treadle work clean --no-name -- sh -c 'rm -rf -- "/srv/cache/$TREADLE_NAME"'
	treadle work charge --thread 8 --lock-name bank --lock-count 2 -- ./charge.sh
	treadle work build --stream -- make -C
	treadle work resize ./resize.sh --fast

The -- may be left out, as in the last line, where --fast is CMD's.

The client that submits a job chooses its name. A job with a name that begins with - fails, because CMD may take the name for an option, unless CMD ends with -- (as rm --, which then takes every name for a file's) or --no-name leaves it to TREADLE_NAME.

A command is killed, with what it has started, when its job's time-out is over: that of treadle submit --timeout, else the server's (treadle config get timeout). The server gives the job to another worker a second later (its --periodic-grace), and ignores a later result. --timeout N is another limit, and --timeout 0 none; the worker says so when a result has come too late.

With --lock-name a job runs only while it has the lock, which at most --lock-count jobs have at a time. The server keeps a job without the lock until the lock is free. All workers of a lock should name the same count.

With --stream treadle recv FUNC NAME prints the command's output while the job runs. A slow receiver makes the command wait, and the job's time-out goes on meanwhile. Processes that the command leaves running keep the stream open for 5s at most. With --work-data CMD chooses what is sent, a line each: WORKDATA X sends X, WORKDONE X makes X the result. Any other line is the result too, with a newline in front. Output after the result is ignored, and so is the byte after the word.

SIGTERM and SIGINT: no more jobs are taken, running commands finish; a second signal kills them. When the server goes away the worker reconnects; commands that are running then finish, but their jobs are given to others.`
}

// Help is printed by treadle recv --help.
func (recvCmd) Help() string {
	return `Prints what the job's worker publishes from now on, until the job is over; earlier data is not kept. The job need not exist yet, but a worker must serve FUNC: otherwise the exit code is 1. Servers of 2018 do not have the request.

	treadle work build --stream -- make -C
	treadle recv build ./parser & treadle submit build ./parser; wait
	treadle recv build ./parser --wait 60 > build.log`
}

// Help is printed by treadle gloom --help.
func (gloomCmd) Help() string {
	return `Gloom's masters submit jobs of a type, its slaves do them; bodies are JSON. Types and Periodic functions share their names: what treadle gloom submit echo sends may be done by treadle work echo, and the other way round.

	treadle gloom work add -- sh -c 'jq add'
	treadle gloom submit add '[1,2,3]'`
}

// Help is printed by treadle gloom submit --help.
func (gloomSubmitCmd) Help() string {
	return `Prints the response's body as JSON. A job lives as long as its master is connected: when this command is interrupted, a queued job is removed, and the response of a running job is lost. Four slaves that leave during the job (job_failed) and an id that is in use (id_exists) are errors with exit code 1.

	treadle gloom submit echo '{"text":"hello"}'
	treadle gloom submit echo hello --priority 5
	treadle gloom submit resize @photo.json --id photo-17 | jq -r .url
	date | treadle gloom submit log @- --no-wait
	treadle -H gloom gloom submit idle null --priority=-1

TYPE and --id are taken as text, not as JSON: 7 is sent as "7".`
}

// Help is printed by treadle gloom work --help.
func (gloomWorkCmd) Help() string {
	return `Runs CMD once a job, with the job's id as the last argument (the characters of a string, the JSON of any other id) and its body, JSON, on standard input. What CMD prints is the response if it is JSON, else it is sent as a JSON string.

	treadle gloom work add -- sh -c 'jq add'
	treadle gloom work resize --thread 4 --timeout 60 -- ./resize.sh
	treadle gloom work count --skip-fail -- sh -c 'grep -c error'

The environment has TREADLE_FUNC, the type, and TREADLE_NAME, the id. An id that begins with - fails unless CMD ends with --, or --no-name leaves it to TREADLE_NAME: CMD may take it for an option.

CMD has failed when its exit code is not 0. The protocol has no message for a failure, so the worker closes the connection and connects again: the server sees a slave leave. It gives the job to the next slave, ahead of jobs of the same priority, and after the fourth time sends the master job_failed. With --skip-fail the output of a failed CMD is the response.

SIGTERM and SIGINT: no more jobs are taken, running commands finish; a second signal kills them, and the server sees the slaves leave. When the server goes away the worker reconnects.`
}

// Help is printed by treadle remove --help.
func (removeCmd) Help() string {
	return `A running job is removed too: its worker's report is ignored. A job that does not exist is an error with exit code 4; only a Treadle reports that.

	treadle remove report weekly`
}

// Help is printed by treadle drop --help.
func (dropCmd) Help() string {
	return `A function with workers or running jobs is not dropped: exit code 1. A function that does not exist is exit code 4.

	treadle drop report`
}

// Help is printed by treadle config --help.
func (configCmd) Help() string {
	return `check, show and defaults are about the settings of treadle serve, in its configuration file. get and set are about those that clients of the Periodic protocol change while the server runs. Their keys: timeout (seconds a job may run, 600; 0: no limit, while submit --timeout 0 takes this setting), keepalive (seconds a connection may be silent, 300), lock-timeout (seconds a job waits for a lock, 300); poll-delay, revert-delay, max-patch and assign-wait are for old clients and change nothing. refusing is not 0 while the server takes no new jobs (1: its disk is nearly full), max-frame is its largest request in bytes; both are read only. An unknown key is an error.

	treadle config check /etc/treadle.toml
	treadle config show
	treadle config get timeout
	treadle config set timeout 2h`
}

// Help is printed by treadle dump --help.
func (dumpCmd) Help() string {
	return `The file, readable by its owner only, replaces FILE when the dump is complete; "-" is standard output. It holds exactly the bytes of the protocol's DUMP: Periodic jobs. Tasks, projects, changed settings and jobs of Gloom and Disbatch are not in it; the command says how many. A copy of the data directory of a stopped server has everything that is on disk: cp -a treadle-data copy.

	treadle dump jobs.dump
	treadle dump - | gzip > jobs.dump.gz`
}

// Help is printed by treadle load --help.
func (loadCmd) Help() string {
	return `Every job of the dump is submitted as by treadle submit; "-" is standard input. The file is read to its end first; when it is cut off or no dump, nothing is sent. The command says how many jobs are in, also when the server refuses the rest.

	treadle load jobs.dump
	gunzip < jobs.dump.gz | treadle load -
	treadle -H old:5000 dump - | treadle -H new:5000 load -`
}

// Help is printed by treadle ping --help.
func (pingCmd) Help() string {
	return `Prints the time it took; exit code 3 when there is no answer within 3s.

	treadle ping
	treadle -H unix:///tmp/periodic.sock ping`
}

// Help is printed by treadle shutdown --help.
func (shutdownCmd) Help() string {
	return `Returns when the server has taken the request; it then stops as by SIGTERM. A server with --periodic-shutdown off refuses: exit code 5.

	treadle shutdown`
}

// Help is printed by treadle dwork --help.
func (dworkCmd) Help() string {
	return `A hub keeps a graph of tasks; a task is ready when all its predecessors are complete. Workers steal ready tasks, do them, and complete them. The hub knows a worker by its name, not by its connection: the worker keeps its tasks, also over a restart of the server, until it completes or transfers them or exits.

	treadle dwork create chop
	treadle dwork create soup chop
	treadle dwork work -j 4 -- echo
	treadle dwork status

Exit code 1 when the hub answers Error or finds nothing, 3 when it does not answer in 30s.`
}

// Help is printed by treadle dwork addfile --help.
func (dworkAddfileCmd) Help() string {
	return `Tasks are made line by line, so a task stands below its predecessors:

	chop
	soup  chop
	"serve the soup"  soup

	treadle dwork addfile dinner.txt
	make -Bn | ./to-tasks | treadle dwork addfile -`
}

// Help is printed by treadle dwork work --help.
func (dworkWorkCmd) Help() string {
	return `Runs CMD once a task, with the task's name as the last argument, until the hub says that no task is left. Exit code 0 completes the task. Any other gives it back, behind all others, and ends the worker with exit code 1, unless --keep-going. A name that begins with - fails unless CMD ends with --, or --no-name leaves it to the environment's TREADLE_NAME: CMD may take it for an option.

	treadle dwork work -- ./simulate.sh
	treadle dwork work -j 8 --keep-going -H head -- ./simulate.sh

SIGTERM and SIGINT: no more tasks are stolen, running commands finish; a second signal kills them. The tasks that the worker still holds are ready again. While the hub is away the worker waits and its commands go on; their tasks are completed when the hub is back.`
}

// Help is printed by treadle dwork graph --help.
func (dworkGraphCmd) Help() string {
	return `Writes the tasks that are not complete in Graphviz' DOT language: ready ones are bold, assigned ones filled. It asks the server's HTTP port (treadle serve --http, 5001 by default).

	treadle dwork graph live.dot && dot -Tsvg live.dot -o live.svg`
}

// Help is printed by treadle kts46 --help.
func (kts46Cmd) Help() string {
	return `Workers simulate a job of a project batch by batch; its statistics come last.

	treadle kts46 add-project traffic
	treadle kts46 add-job traffic north @north.yaml
	treadle kts46 run traffic north
	treadle kts46 status
	treadle kts46 tasks`
}

// Help is printed by treadle kts46 add-job --help.
func (kts46AddJobCmd) Help() string {
	return `The definition is YAML; the scheduler reads simulationParameters and leaves the rest to the workers. duration and stepDuration are simulated time in one unit, batchLength is how many steps are one task.

	treadle kts46 add-job traffic north @north.yaml
	treadle kts46 add-job traffic north '{simulationParameters: {duration: 600, stepDuration: 0.5, batchLength: 100}}'`
}

// Help is printed by treadle kts46 run --help.
func (kts46RunCmd) Help() string {
	return `Returns when the jobs are queued. A job that is queued, running or done is left alone; when a job does not exist, the jobs behind it are not queued.

	treadle kts46 run traffic north south`
}

// Help is printed by treadle kts46 restart --help.
func (kts46RestartCmd) Help() string {
	return `Prints a line for each task that is queued again. A worker that reports meanwhile keeps its task; the reply to its next report tells a worker that it has lost its task. treadle serve --kts46-restart-after restarts tasks by itself.

	treadle kts46 restart worker-7
	treadle kts46 restart --older 45s`
}

// Help is printed by treadle reload --help.
func (reloadCmd) Help() string {
	return `The server reads its file and variables again, as at SIGHUP, and takes all changes or none: an error in the file, or a change that needs a restart, leaves everything as it is, with exit code 1. treadle serve --help says which settings a reload changes; rules for queues and cron entries of the file are changed, too.

	treadle config check /etc/treadle.toml && treadle reload`
}

// Help is printed by treadle config check --help.
func (configCheckCmd) Help() string {
	return `Says all that treadle serve would refuse, a line each with the file's line, with exit code 2. Nothing is opened.

	treadle config check /etc/treadle.toml`
}

// Help is printed by treadle config show --help.
func (configShowCmd) Help() string {
	return `The source is default, flag, a variable, or a line of the file. Passwords are left out.

	treadle config show
	treadle config show --config /etc/treadle.toml
	treadle config show --json | jq -r 'select(.source != "default") | .name'`
}

// Help is printed by treadle config defaults --help.
func (configDefaultsCmd) Help() string {
	return `Settings whose default depends on others, or on the machine, stand in comments.

	treadle config defaults > treadle.toml`
}
