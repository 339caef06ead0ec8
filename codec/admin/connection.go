package admin

// Connection is an open connection as JSON has it.
type Connection struct {
	ID         string   `json:"id"` // for Close; no other connection of this run of the server ever has it
	Protocol   string   `json:"protocol"`
	Role       string   `json:"role"` // client, worker or none
	Remote     string   `json:"remote"`
	Since      int64    `json:"since"` // Unix milliseconds of its opening
	Idle       int64    `json:"idle"`  // milliseconds since the last byte from the peer
	Received   uint64   `json:"received"`
	Sent       uint64   `json:"sent"`
	Unsent     int      `json:"unsent,omitempty"` // bytes that wait for the peer to read
	Queues     []string `json:"queues,omitempty"` // the first ones that it serves; one that is not UTF-8 has U+FFFD for some bytes
	MoreQueues int      `json:"more_queues,omitempty"`
	Waiting    int      `json:"waiting,omitempty"` // jobs that it asks for
	Running    int      `json:"running,omitempty"` // jobs of Queues that it holds
}

// Connections is a page of connections, by id.
type Connections struct {
	Connections []Connection `json:"connections"`
	Next        string       `json:"next,omitempty"` // the cursor of the next page; empty: none
}

// Quiet names a connection whose worker is asked to take no more jobs.
type Quiet struct {
	ID  string `json:"id"`
	End bool   `json:"end,omitempty"` // the worker is asked to end, too
	RequestedBy
}

// Close names a connection to close.
type Close struct {
	ID string `json:"id"`
	RequestedBy
}
