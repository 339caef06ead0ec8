package admin

// Projects is a page of the projects of simulations; of one project also of its jobs.
type Projects struct {
	Projects []Project    `json:"projects"`
	Jobs     []ProjectJob `json:"jobs,omitempty"`
	Next     string       `json:"next,omitempty"` // the cursor of the next page; empty: there is none
}

// Project is a project of simulations. A name that is not UTF-8 has U+FFFD for some bytes.
type Project struct {
	Project  string `json:"project"`
	Jobs     int    `json:"jobs"`
	Finished int    `json:"finished"` // of the jobs
	Done     int64  `json:"done"`     // steps
	Total    int64  `json:"total"`
	Held     int    `json:"held"` // tasks that workers have
}

// ProjectJob is a simulation.
type ProjectJob struct {
	Job      string   `json:"job"`
	Done     int64    `json:"done"` // steps
	Total    int64    `json:"total"`
	Finished bool     `json:"finished"`
	Workers  []string `json:"workers,omitempty"` // that have a task of it
}
