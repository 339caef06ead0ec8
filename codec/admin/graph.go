package admin

// Graph are the tasks around one, which is the first.
type Graph struct {
	Tasks []GraphTask `json:"tasks"`
	Links []GraphLink `json:"links"`
}

// GraphLink is an edge: the task at index To of Graph.Tasks waits for the one at From.
type GraphLink struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// GraphTask is a task in a Graph. A name that is not UTF-8 stands in NameBytes, in base64.
type GraphTask struct {
	Name      string `json:"name"`
	NameBytes []byte `json:"name_b64,omitempty"`
	State     string `json:"state"`
	Worker    string `json:"worker,omitempty"`
	Step      int    `json:"step"`   // links to the first; less than 0: the first waits for it
	After     int    `json:"after"`  // tasks that it waits for; 1001: more than 1000
	Before    int    `json:"before"` // tasks that wait for it, counted so, too
}
