package client

import (
	"iter"

	"treadle/codec/admin"
)

// CheckFilter returns an error that names the term of a filter of jobs that cannot be read, and what may stand there.
func CheckFilter(text string) error {
	_, err := admin.ParseFilter(text)
	return err
}

// FilterKeys yields the keys of the terms of a filter, each with what may stand behind its colon.
func FilterKeys() iter.Seq2[string, string] { return admin.FilterKeys() }

// JobStates returns the states of jobs.
func JobStates() []string { return admin.JobStates() }
