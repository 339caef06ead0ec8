package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"treadle/loop"
)

type healthCmd struct {
	JSON bool   `name:"json" help:"Print JSON."`
	HTTP string `name:"http" hidden:"" help:"As -H."`
}

// Help implements kong.HelpProvider.
func (healthCmd) Help() string {
	return `Prints what /readyz of the server's HTTP port says (treadle serve --http, 5001 by default). Exit code 0: it is ready, even when it refuses new jobs for now; 1: it is not, because it starts, stops or has failed; 3: there is no answer within 3s. With --json the answer is on standard output in each case. -H or TREADLE_HTTP names the server.

	treadle health
	treadle -H worker7:5001 health --json`
}

// AfterApply is called by kong.
func (h *healthCmd) AfterApply(c *cli) error {
	return c.setServer(&h.HTTP, "TREADLE_HTTP", loop.DefaultHTTP)
}

// healthTimeout bounds the probe. The probes of containers are often given as little.
const healthTimeout = 3 * time.Second

// maxHealth bounds the answer: it is a line.
const maxHealth = 4 << 10

// health is the answer of a server.
type health struct {
	Status string `json:"status"` // ready, not ready or unreachable
	Text   string `json:"text"`   // what the server says, or why it does not
}

// Run prints the state of the server.
func (h *healthCmd) Run(con *console) error {
	base, requests, err := httpBase(h.HTTP, httpSetting, loop.DefaultHTTPPort)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, healthTimeout, fmt.Errorf("no answer for %v", healthTimeout))
	defer cancel()
	answer, code := askHealth(ctx, base, requests)
	switch {
	case h.JSON:
		err = json.NewEncoder(con.out).Encode(answer)
	case code == exitUnreachable:
		return coded{error: errors.New(answer.Text), code: code}
	default:
		_, err = fmt.Fprintln(con.out, oneLine(answer.Text))
	}
	if err != nil || code == 0 {
		return err
	}
	return silent{coded{error: errors.New(answer.Text), code: code}}
}

// askHealth asks a server for its state. code is the exit code.
func askHealth(ctx context.Context, base string, requests *http.Client) (answer health, code int) {
	unreachable := func(err error) (health, int) {
		return health{"unreachable", fmt.Sprintf("cannot reach %s: %v (is `treadle serve` running? %s names it)", base, cause(ctx, err),
			httpSetting)}, exitUnreachable
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz", http.NoBody)
	if err != nil {
		return unreachable(err)
	}
	response, err := requests.Do(request)
	if err != nil {
		return unreachable(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxHealth))
	if err != nil {
		return unreachable(err)
	}
	said := strings.TrimSpace(string(text))
	switch response.StatusCode {
	case http.StatusOK:
		return health{"ready", said}, 0
	case http.StatusServiceUnavailable:
		return health{"not ready", said}, exitFailure
	}
	return unreachable(fmt.Errorf("it answers %s to /readyz", response.Status))
}
