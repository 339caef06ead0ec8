package protocol

// Project is a project of jobs that are counted in steps.
type Project struct {
	Name        string
	Jobs        int
	Finished    int   // of the jobs
	Done, Total int64 // steps
	Held        int   // tasks that workers have
}

// ProjectJob is a job of a project.
type ProjectJob struct {
	Name        string
	Done, Total int64 // steps
	Finished    bool
	Workers     []string // that have a task of it
}
