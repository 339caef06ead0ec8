package faktory

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
)

// Hello is what a client says of itself.
type Hello struct {
	Version  int      `json:"v"`
	Worker   string   `json:"wid"` // empty: it fetches no jobs for a worker process
	Hostname string   `json:"hostname"`
	PID      int      `json:"pid"`
	Labels   []string `json:"labels"`
	Username string   `json:"username"`
	Password string   `json:"pwdhash"` // as Hash has it
}

// ErrHello reports that a line is no HELLO.
var ErrHello = errors.New("the first line is no HELLO with a JSON object")

// ParseHello reads the first line of a client.
func ParseHello(line []byte) (*Hello, error) {
	text, ok := bytes.CutPrefix(line, []byte("HELLO "))
	if !ok || len(text) == 0 || text[0] != '{' {
		return nil, ErrHello
	}
	h := new(Hello)
	if json.Unmarshal(text, h) != nil {
		return nil, ErrHello
	}
	return h, nil
}

// Hash returns what a client proves its knowledge of a password with: the SHA-256 of the password and the salt, hashed
// again until it was hashed so many times, in hexadecimal digits.
func Hash(password, salt string, iterations int) string {
	sum := sha256.Sum256([]byte(password + salt))
	for range iterations - 1 {
		sum = sha256.Sum256(sum[:])
	}
	return hex.EncodeToString(sum[:])
}
