package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"
)

type disbatchPluginsCmd struct {
	disbatchREST
	disbatchJSON
}

// Run lists the plugins.
func (d *disbatchPluginsCmd) Run(con *console) error {
	var names []string
	text, err := d.get("GET", "/plugins", nil, &names)
	if err != nil || d.JSON {
		return write(con.out, text, err)
	}
	for _, name := range names {
		fmt.Fprintln(con.out, printable(name))
	}
	return nil
}

// write writes a text unless there is an error.
func write(w io.Writer, text []byte, err error) error {
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

type disbatchQueuesCmd struct {
	disbatchREST
	disbatchJSON
}

// Help implements kong.HelpProvider.
func (disbatchQueuesCmd) Help() string {
	return `Threads is the limit of tasks that run at once: at all nodes together, or at each node for a queue of 2016.

	treadle disbatch queues
	treadle disbatch status --json | jq '.[] | select(.queued > 0) | .name'`
}

// Run shows the queues.
func (d *disbatchQueuesCmd) Run(con *console) error {
	var queues []struct {
		ID                         hexID
		Plugin, Name, Threads      any
		Queued, Running, Completed int64
	}
	text, err := d.get("GET", "/queues", nil, &queues)
	if err != nil || d.JSON {
		return write(con.out, text, err)
	}
	lines := [][]string{{"ID", "NAME", "PLUGIN", "THREADS", "QUEUED", "RUNNING", "COMPLETED"}}
	for _, q := range queues {
		lines = append(lines, []string{string(q.ID), shown(q.Name), shown(q.Plugin), shown(q.Threads), number(q.Queued), number(q.Running), number(q.Completed)})
	}
	return align(con.out, lines, 3)
}

type disbatchNodesCmd struct {
	disbatchREST
	disbatchJSON
}

// Run shows the nodes.
func (d *disbatchNodesCmd) Run(con *console) error {
	var nodes []struct {
		ID               hexID
		Node, MaxThreads any
		Timestamp        any
	}
	text, err := d.get("GET", "/nodes", nil, &nodes)
	if err != nil || d.JSON {
		return write(con.out, text, err)
	}
	lines := [][]string{{"ID", "NODE", "LAST SEEN", "MAXTHREADS"}}
	for _, n := range nodes {
		seen := shown(n.Timestamp)
		if ms, ok := n.Timestamp.(float64); ok {
			seen = time.UnixMilli(int64(ms)).Format(time.DateTime)
		}
		lines = append(lines, []string{string(n.ID), shown(n.Node), seen, shown(n.MaxThreads)})
	}
	return align(con.out, lines, 3)
}

type disbatchCreateQueueCmd struct {
	disbatchREST
	disbatchJSON
	Name   string `arg:"" help:"Name of the queue."`
	Plugin string `arg:"" help:"Plugin that does its tasks, one of treadle disbatch plugins."`
}

// Help implements kong.HelpProvider.
func (disbatchCreateQueueCmd) Help() string {
	return `Prints the id of the queue. Nothing runs in it until it has threads.

	treadle disbatch create-queue demo Disbatch::Plugin::Demo
	treadle disbatch update-queue demo threads 4`
}

// Run creates a queue.
func (d *disbatchCreateQueueCmd) Run(con *console) error {
	var reply struct{ ID hexID }
	text, err := d.get("POST", "/queues", map[string]string{"name": d.Name, "plugin": d.Plugin}, &reply)
	if err != nil || d.JSON {
		return write(con.out, text, err)
	}
	fmt.Fprintln(con.out, reply.ID)
	return nil
}

type disbatchUpdateQueueCmd struct {
	disbatchREST
	disbatchJSON
	Queue  string   `arg:"" help:"Name or id of the queue."`
	Change []string `arg:"" help:"FIELD VALUE, as often as there are fields to change: threads, name, plugin, sort (fifo, lifo or default)."`
}

// Help implements kong.HelpProvider.
func (disbatchUpdateQueueCmd) Help() string {
	return `Nodes see the change within a second.

	treadle disbatch update-queue demo threads 4
	treadle disbatch update-queue demo name trial sort fifo`
}

// Run changes a queue.
func (d *disbatchUpdateQueueCmd) Run(con *console) error {
	fields, err := pairs(d.Change)
	if err != nil {
		return err
	}
	return d.silently(con, "POST", "/queues/"+url.PathEscape(d.Queue), fields, d.JSON)
}

// pairs reads names and values that alternate.
func pairs(words []string) (map[string]string, error) {
	if len(words)%2 != 0 {
		return nil, badUsage("%q has no value: names and values come in pairs", words[len(words)-1])
	}
	out := make(map[string]string)
	for i := 0; i < len(words); i += 2 {
		out[words[i]] = words[i+1]
	}
	return out, nil
}

// silently makes a request and prints the reply only if asked.
func (d *disbatchREST) silently(con *console, method, path string, body any, asked bool) error {
	var reply any
	text, err := d.get(method, path, body, &reply)
	if err != nil || asked {
		return write(con.out, text, err)
	}
	return nil
}

type disbatchDeleteQueueCmd struct {
	disbatchREST
	disbatchJSON
	Queue string `arg:"" help:"Name or id of the queue."`
}

// Run deletes a queue.
func (d *disbatchDeleteQueueCmd) Run(con *console) error {
	return d.silently(con, "DELETE", "/queues/"+url.PathEscape(d.Queue), nil, d.JSON)
}

type disbatchCreateTaskCmd struct {
	disbatchREST
	disbatchJSON
	Queue  string   `arg:"" help:"Name or id of the queue."`
	Params []string `arg:"" optional:"" help:"NAME VALUE, as often as there are parameters; values are text."`
}

// Help implements kong.HelpProvider.
func (disbatchCreateTaskCmd) Help() string {
	return `Prints the id of the task.

	treadle disbatch create-task mail to alice@example.org subject hello`
}

// Run creates a task.
func (d *disbatchCreateTaskCmd) Run(con *console) error {
	params, err := pairs(d.Params)
	if err != nil {
		return err
	}
	return d.insert(con, "/tasks/"+url.PathEscape(d.Queue), []any{params}, d.JSON)
}

// insert creates tasks and prints their ids.
func (d *disbatchREST) insert(con *console, path string, body any, asked bool) error {
	var reply struct {
		Result struct {
			Inserted []struct {
				ID hexID `json:"_id"`
			} `json:"inserted"`
		} `json:"MongoDB::InsertManyResult"`
	}
	text, err := d.get("POST", path, body, &reply)
	if err != nil || asked {
		return write(con.out, text, err)
	}
	var out strings.Builder
	for _, task := range reply.Result.Inserted {
		fmt.Fprintln(&out, task.ID)
	}
	_, err = io.WriteString(con.out, out.String())
	return err
}

type disbatchCreateTasksCmd struct {
	disbatchREST
	disbatchJSON
	Collection string `placeholder:"NAME" help:"Create a task for every document that the filter finds in this collection (default: the tasks are given)."`
	Queue      string `arg:"" help:"Name or id of the queue."`
	Tasks      string `arg:"" help:"JSON, or @FILE, or @- for standard input: an array of objects, each the parameters of a task; with --collection {\"filter\": {..}, \"params\": {..}}."`
}

// Help implements kong.HelpProvider.
func (disbatchCreateTasksCmd) Help() string {
	return `Prints the ids of the tasks, one a line.

	treadle disbatch create-tasks mail '[{"to": "alice"}, {"to": "bob"}]'
	jq -n '[range(1000) | {n: .}]' | treadle disbatch create-tasks count @-
	treadle disbatch create-tasks move --collection users '{"filter": {"plan": "old"}, "params": {"user": "document.username", "to": "new"}}'

With --collection a parameter document.FIELD has that field of the document.`
}

// Run creates tasks.
func (d *disbatchCreateTasksCmd) Run(con *console) error {
	tasks, err := readWorkload(d.Tasks, con.in)
	if err != nil {
		return err
	}
	path := "/tasks/" + url.PathEscape(d.Queue)
	if d.Collection != "" {
		path += "/" + url.PathEscape(d.Collection)
	}
	if !json.Valid(tasks) {
		return badUsage("the tasks are not JSON")
	}
	return d.insert(con, path, json.RawMessage(tasks), d.JSON)
}

type disbatchSearchCmd struct {
	disbatchREST
	Count   bool   `help:"Print how many tasks there are, and not the tasks."`
	Terse   bool   `help:"Leave stdout and stderr out."`
	Pretty  bool   `help:"Print the JSON over several lines."`
	Table   bool   `help:"Print a line a task, without stdout and stderr."`
	Options string `placeholder:"JSON" help:"limit (at most 100), skip, sort and projection of the search, an object (default: {})."`
	Filter  string `arg:"" default:"{}" help:"Which tasks, a MongoDB filter (default: all)."`
}

// Help implements kong.HelpProvider.
func (disbatchSearchCmd) Help() string {
	return `Prints a JSON array of tasks, 100 at most. In the filter {"$oid": HEX} is an id, as is the text of queue, and numbers of ctime and mtime are times in seconds, those over 9999999999 in milliseconds.

	treadle disbatch search '{"status": 2}' --pretty
	treadle disbatch search '{"params.to": "alice"}' --options '{"limit": 5, "sort": {"_id": -1}}'
	treadle disbatch search '{"status": {"$gte": 1}}' --count
	treadle disbatch search --table`
}

// Run searches and prints the tasks or their number.
func (d *disbatchSearchCmd) Run(con *console) error {
	request := map[string]any{"terse": d.Terse || d.Table, "pretty": d.Pretty}
	for name, text := range map[string]string{"filter": d.Filter, "options": d.Options} {
		switch {
		case text == "":
		case !json.Valid([]byte(text)):
			return badUsage("%s: %q is not JSON", name, text)
		default:
			request[name] = json.RawMessage(text)
		}
	}
	if d.Count {
		var reply struct{ Count int64 }
		request["count"] = true
		if _, err := d.get("POST", "/tasks/search", request, &reply); err != nil {
			return err
		}
		fmt.Fprintln(con.out, reply.Count)
		return nil
	}
	if d.Table {
		return d.table(con, request)
	}
	return d.call("POST", "/tasks/search", request, func(r io.Reader) error {
		_, err := io.Copy(con.out, r)
		return err
	})
}

// table prints a line a task.
func (d *disbatchSearchCmd) table(con *console, request any) error {
	var tasks []struct {
		ID                 hexID `json:"_id"`
		Queue              hexID
		Status, Node       any
		CTime, MTime       any
		Params, Parameters json.RawMessage
	}
	if _, err := d.get("POST", "/tasks/search", request, &tasks); err != nil {
		return err
	}
	lines := [][]string{{"ID", "QUEUE", "NODE", "CREATED", "CHANGED", "STATUS", "PARAMETERS"}}
	for _, t := range tasks {
		if t.Params == nil {
			t.Params = t.Parameters
		}
		lines = append(lines, []string{
			string(t.ID), string(t.Queue), shown(t.Node), moment(t.CTime), moment(t.MTime), shown(t.Status), printable(string(t.Params)),
		})
	}
	return align(con.out, lines, len(lines[0]))
}

// moment returns a time in seconds as a cell of a table.
func moment(v any) string {
	if seconds, ok := v.(float64); ok {
		return time.UnixMilli(int64(seconds * 1000)).Format(time.DateTime)
	}
	return shown(v)
}
