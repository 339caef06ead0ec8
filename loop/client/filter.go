package client

import "treadle/codec/admin"

// CheckFilter returns an error that names the term of a filter of jobs that cannot be read, and what may stand there.
func CheckFilter(text string) error {
	_, err := admin.ParseFilter(text)
	return err
}
