package admin

// History is what the jobs of a queue, or all jobs, did in the last minutes or hours, since the start of the server at
// most.
type History struct {
	Span  string        `json:"span"`  // 5m, 1h or 24h
	Step  int           `json:"step"`  // of each slot, in seconds
	End   int64         `json:"end"`   // Unix milliseconds: the end of the last slot, which may be to come
	Slots []HistorySlot `json:"slots"` // the oldest first
}

// HistorySlot is one step of a History. The last three are as they were at its end.
type HistorySlot struct {
	Submitted uint32 `json:"submitted"` // jobs in the step
	Done      uint32 `json:"done"`
	Failed    uint32 `json:"failed"` // given up; of all jobs: runs that failed
	Ready     uint32 `json:"ready"`
	Running   uint32 `json:"running"`
	Oldest    uint32 `json:"oldest"` // how long the oldest ready job had been due, in seconds
}
