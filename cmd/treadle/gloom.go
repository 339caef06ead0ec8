package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os/signal"
	"syscall"

	"treadle/loop"
	"treadle/loop/client"
)

type gloomCmd struct {
	Submit gloomSubmitCmd `cmd:"" help:"Submit a job, wait for its response and print it."`
	Work   gloomWorkCmd   `cmd:"" help:"Do a type's jobs by running a command for each."`
}

// Help implements kong.HelpProvider.
func (gloomCmd) Help() string {
	return `Gloom's masters submit jobs of a type, its slaves do them; bodies are JSON. Types and Periodic functions share their names: what treadle gloom submit echo sends may be done by treadle work echo, and the other way round.

	treadle gloom work add -- sh -c 'jq add'
	treadle gloom submit add '[1,2,3]'`
}

type gloomSubmitCmd struct {
	Type     string `arg:"" help:"Type: which slaves do the job."`
	Body     string `arg:"" help:"Body: JSON, @FILE for a file's content or @- for standard input; a body that is no JSON is sent as a JSON string."`
	Priority int64  `default:"0" placeholder:"N" help:"Jobs of larger priority are done first (default: ${default})."`
	ID       string `name:"id" placeholder:"ID" help:"Id of the job, unique among all that are not done (default: a random one)."`
	Wait     bool   `default:"true" negatable:"" help:"Wait for the response. With --no-wait the job is lost unless a slave is free to take it at once."`
	Masters  string `hidden:"" help:"As -H."`
}

// Help implements kong.HelpProvider.
func (gloomSubmitCmd) Help() string {
	return `Prints the response's body as JSON. A job lives as long as its master is connected: when this command is interrupted, a queued job is removed, and the response of a running job is lost. Four slaves that leave during the job (job_failed) and an id that is in use (id_exists) are errors with exit code 1.

	treadle gloom submit echo '{"text":"hello"}'
	treadle gloom submit echo hello --priority 5
	treadle gloom submit resize @photo.json --id photo-17 | jq -r .url
	date | treadle gloom submit log @- --no-wait
	treadle -H gloom gloom submit idle null --priority=-1

TYPE and --id are taken as text, not as JSON: 7 is sent as "7".`
}

// AfterApply is called by kong.
func (g *gloomSubmitCmd) AfterApply(c *cli) error {
	return c.setServer(&g.Masters, "TREADLE_GLOOM_MASTERS", loop.DefaultGloomMasters)
}

// Run submits the job and prints the response.
func (g *gloomSubmitCmd) Run(con *console) error {
	if err := refuseEmpty("TYPE", g.Type); err != nil {
		return err
	}
	body, err := readWorkload(g.Body, con.in)
	if err != nil {
		return err
	}
	if g.ID == "" {
		g.ID = rand.Text()
	}
	job := &client.GloomJob{
		ID: client.GloomText(g.ID), Type: client.GloomText(g.Type),
		Priority: g.Priority, Body: client.GloomValue(body),
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	master, err := client.DialMaster(ctx, g.Masters)
	if err != nil {
		return err
	}
	defer master.Close()
	if !g.Wait {
		ctx, cancel := context.WithTimeout(ctx, replyTimeout)
		defer cancel()
		return master.Submit(ctx, job)
	}
	response, err := master.Run(ctx, job)
	if err == nil {
		_, err = fmt.Fprintf(con.out, "%s\n", response)
	}
	return err
}
