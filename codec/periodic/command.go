package periodic

import "strconv"

// Command is the byte behind the message id. It says what a request or a response is.
type Command byte

// Commands 0 to 25 are those of the 2018 text, the rest came with the versions with CRC: Acquired to Release in
// 2019-02, NoWorker and Data in 2019-07, RecvData to JobUnassigned with v1.2.9 (2024).
const (
	Noop          Command = 0
	GrabJob       Command = 1
	SchedLater    Command = 2
	WorkDone      Command = 3
	WorkFail      Command = 4
	JobAssign     Command = 5
	NoJob         Command = 6
	CanDo         Command = 7
	CantDo        Command = 8
	Ping          Command = 9
	Pong          Command = 10
	Sleep         Command = 11
	Unknown       Command = 12
	SubmitJob     Command = 13
	Status        Command = 14
	DropFunc      Command = 15
	Success       Command = 16
	RemoveJob     Command = 17
	Dump          Command = 18
	Load          Command = 19
	Shutdown      Command = 20
	Broadcast     Command = 21
	ConfigGet     Command = 22
	ConfigSet     Command = 23
	Config        Command = 24
	RunJob        Command = 25
	Acquired      Command = 26
	Acquire       Command = 27
	Release       Command = 28
	NoWorker      Command = 29
	Data          Command = 30
	RecvData      Command = 31
	WorkData      Command = 32
	JobAssigned   Command = 33
	JobUnassigned Command = 34
)

var commandNames = [...]string{
	Noop: "NOOP", GrabJob: "GRAB_JOB", SchedLater: "SCHED_LATER", WorkDone: "WORK_DONE", WorkFail: "WORK_FAIL",
	JobAssign: "JOB_ASSIGN", NoJob: "NO_JOB", CanDo: "CAN_DO", CantDo: "CANT_DO", Ping: "PING", Pong: "PONG",
	Sleep: "SLEEP", Unknown: "UNKNOWN", SubmitJob: "SUBMIT_JOB", Status: "STATUS", DropFunc: "DROP_FUNC",
	Success: "SUCCESS", RemoveJob: "REMOVE_JOB", Dump: "DUMP", Load: "LOAD", Shutdown: "SHUTDOWN",
	Broadcast: "BROADCAST", ConfigGet: "CONFIG_GET", ConfigSet: "CONFIG_SET", Config: "CONFIG", RunJob: "RUN_JOB",
	Acquired: "ACQUIRED", Acquire: "ACQUIRE", Release: "RELEASE", NoWorker: "NO_WORKER", Data: "DATA",
	RecvData: "RECV_DATA", WorkData: "WORK_DATA", JobAssigned: "JOB_ASSIGNED", JobUnassigned: "JOB_UNASSIGNED",
}

// String returns the command's name in the protocol text, or one like COMMAND_99 for an unknown byte. Only the latter
// allocates.
func (c Command) String() string {
	if int(c) < len(commandNames) {
		return commandNames[c]
	}
	return "COMMAND_" + strconv.Itoa(int(c))
}

// Role is the type byte of a hello.
type Role byte

// The roles. Both framings have Client and Worker; only the CRC framing has the authenticated roles (v1.2.9, 2024).
const (
	Client     Role = 1
	Worker     Role = 2
	AuthClient Role = 3
	AuthWorker Role = 4
)
