package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"treadle/loop/client"
)

// call sends JSON to the HTTP API and reads the answer.
func (d *demo) call(ctx context.Context, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ask, err := http.NewRequestWithContext(ctx, http.MethodPost, d.addresses["http"]+"/api/v1"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	ask.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, answer.Status)
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// submitHTTP submits jobs over HTTP.
func (d *demo) submitHTTP(ctx context.Context) error {
	for n := 1; ctx.Err() == nil; n++ {
		job := map[string]any{
			"queue": "webhooks", "name": fmt.Sprintf("event-%d", n), "priority": rand.IntN(2),
			"workload_json": map[string]any{"event": "order.paid", "order": 1000 + n},
		}
		if err := d.call(ctx, "/jobs", job, new(struct{})); err != nil {
			return err
		}
		pause(ctx, around(400*time.Millisecond))
	}
	return nil
}

// workHTTP leases jobs and ends them.
func (d *demo) workHTTP(ctx context.Context) error {
	for ctx.Err() == nil {
		ask := map[string]any{"queues": []string{"webhooks"}, "jobs": 4, "wait": "20s", "lease": "30s", "worker": "webhooks-1"}
		var leased struct {
			Jobs []struct{ Token string }
		}
		if err := d.call(ctx, "/reserve", ask, &leased); err != nil {
			return err
		}
		for _, j := range leased.Jobs {
			pause(ctx, around(250*time.Millisecond))
			path, report := "/leases/done", map[string]any{"token": j.Token, "result": `{"status":200}`}
			if rand.Float64() < 0.1 {
				path, report = "/leases/fail", map[string]any{"token": j.Token, "error": fmt.Sprintf("the receiver answered 503 after %d ms", 100+rand.IntN(900))}
			}
			if err := d.call(ctx, path, report, new(struct{})); err != nil {
				return err
			}
		}
	}
	return nil
}

// submitKts46 makes a project with two simulations.
func (d *demo) submitKts46(ctx context.Context) error {
	k := client.NewKts46(d.addresses["kts46"])
	defer k.Close()
	for ctx.Err() == nil {
		d.projects++
		project := fmt.Sprintf("traffic%d", d.projects)
		if err := k.CreateProject(ctx, project); err != nil {
			return err
		}
		for _, job := range []string{"morning", "evening"} {
			if err := k.AddJob(ctx, project, job, "simulationParameters: {duration: 60.0, stepDuration: 0.5, batchLength: 4}"); err != nil {
				return err
			}
			if err := k.RunJob(ctx, project, job); err != nil {
				return err
			}
		}
		pause(ctx, 3*time.Minute)
	}
	return nil
}

// workKts46 does simulations, a batch at a time.
func (d *demo) workKts46(ctx context.Context) error {
	k := client.NewKts46(d.addresses["kts46"])
	defer k.Close()
	for ctx.Err() == nil {
		task, err := k.Take(ctx, "simulator-1")
		if err != nil {
			return err
		}
		if task == nil {
			pause(ctx, time.Second)
			continue
		}
		pause(ctx, around(900*time.Millisecond))
		if err := k.Finish(ctx, task); err != nil {
			return err
		}
	}
	return nil
}
