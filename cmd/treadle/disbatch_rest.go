package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/signal"
	"syscall"
	"time"
)

// disbatchREST are the flags of every command that talks to a command interface.
type disbatchREST struct {
	URL      string `name:"url" hidden:"" help:"As -H."`
	Username string `env:"TREADLE_DISBATCH_USERNAME" placeholder:"NAME" help:"User of the command interface, if it has users (default: none)."`
	Password string `env:"TREADLE_DISBATCH_PASSWORD" placeholder:"TEXT" help:"Password of the user. The environment keeps it out of the list of processes (default: none)."`
}

// AfterApply is called by kong.
func (d *disbatchREST) AfterApply(c *cli) error {
	return c.setServer(&d.URL, "TREADLE_DISBATCH_URL", "http://localhost:8080")
}

// disbatchJSON is the flag of commands that print the reply in another form by default.
type disbatchJSON struct {
	JSON bool `name:"json" help:"Print the reply as it came."`
}

const (
	// disbatchTimeout is longer than the command interface may take.
	disbatchTimeout = 3 * time.Minute
	// maxReply is the most that is read of a reply.
	maxReply = 256 << 20
)

// disbatchSetting is the flag and the variable that name a command interface.
const disbatchSetting = "-H or TREADLE_DISBATCH_URL"

// call sends a request, with a body as JSON unless it is nil, and calls read with the reply's body. The error of a
// refusal has the reply's text.
func (d *disbatchREST) call(method, path string, body any, read func(io.Reader) error) error {
	base, requests, err := httpBase(d.URL, disbatchSetting, "8080")
	if err != nil {
		return err
	}
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, disbatchTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(text))
	if err != nil {
		return badUsage("%s: %w", disbatchSetting, err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if d.Username != "" || d.Password != "" {
		r.SetBasicAuth(d.Username, d.Password)
	}
	response, err := requests.Do(r)
	if err != nil {
		return reachError{fmt.Errorf("cannot reach %s: %w (is `treadle disbatch web` running? %s names it)", base, cause(ctx, err), disbatchSetting)}
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return read(io.LimitReader(response.Body, maxReply))
	}
	return refusal(response)
}

// refusal returns the error that a reply reports.
func refusal(response *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
	if err != nil {
		return err
	}
	var said struct {
		Error  json.RawMessage `json:"error"`
		Param  string          `json:"param"`
		Plugin string          `json:"plugin"`
	}
	why := ""
	if json.Unmarshal(text, &said) == nil && json.Unmarshal(said.Error, &why) != nil {
		why = string(said.Error)
	}
	switch {
	case response.StatusCode == http.StatusUnauthorized:
		return coded{error: fmt.Errorf("%s: give --username and --password", response.Status), code: exitForbidden}
	case why == "":
		return fmt.Errorf("the command interface answers %s", response.Status)
	case said.Param != "":
		why += ": " + said.Param
	case said.Plugin != "":
		why += ": " + said.Plugin + ", see treadle disbatch plugins"
	}
	return fmt.Errorf("%s", why)
}

// get decodes a reply into a value and returns its text.
func (d *disbatchREST) get(method, path string, body, into any) (text []byte, err error) {
	err = d.call(method, path, body, func(r io.Reader) error {
		if text, err = io.ReadAll(r); err != nil {
			return err
		}
		if err := json.Unmarshal(text, into); err != nil {
			return fmt.Errorf("the reply is not that of a command interface: %w", err)
		}
		return nil
	})
	return text, err
}

// hexID is an id, which is text or {"$oid": text}.
type hexID string

// UnmarshalJSON implements json.Unmarshaler.
func (h *hexID) UnmarshalJSON(text []byte) error {
	var object struct {
		OID string `json:"$oid"`
	}
	if json.Unmarshal(text, &object) == nil {
		*h = hexID(object.OID)
		return nil
	}
	return json.Unmarshal(text, (*string)(h))
}

// shown returns a number or text of a reply as a cell of a table.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case float64:
		return fmt.Sprintf("%v", v)
	}
	return printable(fmt.Sprint(v))
}
