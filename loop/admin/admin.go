// Package admin is the HTTP API of a running server: submitting jobs, working on them under leases, and viewing and
// changing queues, policies, failed and finished jobs, and cron entries. It answers on a socket of its own, which the
// server's owner alone may connect to, and to the programs of this machine on the port of --http.
//
//	POST  /api/v1/jobs                    submit a job, or one of each line: {"queue":"Q","workload":"W","delay":"90s"}
//	GET   /api/v1/jobs                    the jobs that filter=F means; limit=N, time=50ms, after=CURSOR
//	GET   /api/v1/jobs/causes             the failed jobs by queue and cause; queue=Q
//	GET   /api/v1/job                     one job and why it does not run: id=I, or queue=Q, name=N and perhaps protocol=P
//	GET   /api/v1/job/graph               the tasks around one, of a graph
//	GET   /api/v1/job/workload            its workload, as bytes
//	GET   /api/v1/job/result              its kept result, as bytes
//	GET   /api/v1/queues                  the queues; queue=Q: one, prefix=P, contains=TEXT, sort=ORDER, limit=N, after=CURSOR
//	GET   /api/v1/overview                the server, its counters, busiest queues and what needs attention; limit=N
//	GET   /api/v1/cluster                 the nodes of the cluster: roles, how far each is behind, what needs attention
//	GET   /api/v1/history                 what all jobs, or those of queue=Q, did in the span=5m, 1h or 24h
//	GET   /api/v1/connections             the connections; protocol=P, queue=Q, limit=N, after=CURSOR
//	POST  /api/v1/connections/close       close one: {"id":"I"}
//	POST  /api/v1/connections/quiet       ask its worker to take no more jobs: {"id":"I"}; to end, too: {"id":"I","end":true}
//	POST  /api/v1/reserve                 lease jobs, or wait for one: {"queues":["Q"],"jobs":10,"wait":"30s","lease":"1m"}
//	POST  /api/v1/leases/done             end a leased job: {"token":"T","result":"R"}, or an array of such
//	POST  /api/v1/leases/fail             give it back as failed: {"token":"T","error":"E","delay":"10s"}
//	POST  /api/v1/leases/release          give it back unstarted: {"token":"T"}
//	POST  /api/v1/leases/extend           keep it longer: {"token":"T","lease":"1m"}
//	POST  /api/v1/leases/progress         send data to its listeners: {"token":"T","data":"D"}
//	GET   /api/v1/policies                the rules, the weaker first, and the keys that they may have
//	GET   /api/v1/policies?queue=Q        the policy of a queue, each value with its rule
//	PATCH /api/v1/policies                change a run-time rule: {"pattern":"mail.*","values":{"retries":"3","rate":null}}
//	GET   /api/v1/projects                the projects of simulations; project=P: the jobs of one; limit=N, after=CURSOR
//	GET   /api/v1/disbatch                the queues and nodes of the Disbatch site
//	GET   /api/v1/disbatch/tasks          its tasks; queue=Q, status=S, node=N, filter=JSON, limit=N, after=CURSOR
//	GET   /api/v1/disbatch/task           one task with the beginnings of its payload and outputs: id=I
//	GET   /api/v1/disbatch/text           its payload or output, as bytes: id=I, name=params, stdout or stderr
//	GET   /api/v1/cron                    the cron entries; entry=NAME: one, next=N: with its next N times
//	POST  /api/v1/cron                    add an entry: {"name":"N","schedule":"30 2 * * *","queue":"Q","workload":"W"}
//	POST  /api/v1/cron/remove             remove it: {"entry":"N"}
//	POST  /api/v1/cron/run                submit its job now, in the same words
//	POST  /api/v1/cron/pause              leave its times out: {"entry":"N","by":"ada","why":"the database moves"}
//	POST  /api/v1/cron/resume             end that: {"entry":"N"}
//	POST  /api/v1/jobs/change             change jobs: {"verb":"retry","ids":["5.17.100"]}, {"verb":"run","queue":"Q","name":"N"}
//	                                      or {"verb":"move","filter":"F","to":"Q"}
//	GET   /api/v1/operations              the changes of all jobs that a filter means; id=7: one
//	POST  /api/v1/operations/cancel       end one: {"operation":"7"}
//	POST  /api/v1/queues/pause            {"queue":"mail.*","what":"hand-out","by":"ada","why":"the database moves"}
//	POST  /api/v1/queues/resume           end that: {"queue":"mail.*"}
//	POST  /api/v1/queues/drain            have a queue take no jobs and hand out those that it has: {"queue":"Q"}
//	POST  /api/v1/queues/empty            remove its jobs that no worker has: {"queue":"Q","dry_run":true}
//	GET   /api/v1/audit                   the last changes through the API; limit=N, after=CURSOR
//	GET   /api/v1/settings                the server's settings, each with where it comes from
//	POST  /api/v1/reload                  read the configuration again, and answer what has changed
//	GET   /api/v1/backup                  all data of the server as of now, as a tar archive
//	GET   /api/v1/openapi.json            all of these as an OpenAPI document
//
// A name that is not UTF-8 stands in name_b64 or queue_b64, in base64, instead of name or queue. The pattern of a
// rule in a request to change policies is UTF-8. A parameter queue may have any bytes.
//
// A change is answered when it holds and the journal has it. An error is {"error":"..."} with a status of 400 or more.
package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

// Setting is the setting of the address.
const Setting = "admin"

// Name is the name of the API in logs and metrics.
const Name = "admin"

// settingPrefix is in front of the pattern in the journal's key of a run-time rule. The value is the rule's values as a
// JSON object.
const settingPrefix = "policy."

// SocketMode lets the server's owner alone connect.
const SocketMode = 0o600

// Bounds of the HTTP server. A person or a script asks, over the machine's own socket.
const (
	requestTime    = 10 * time.Second
	answerTime     = time.Minute // to retry a million failed jobs takes some seconds
	maxRequest     = 1 << 20
	maxHeader      = 16 << 10
	maxConnections = 64
)

// Options are the settings of the API, as of package setting.
type Options struct {
	// Listen lists the addresses, as of protocol.CheckAddresses; default: none.
	Listen []string `name:"admin" sep:"none" placeholder:"ADDR" help:"Address of the operators' interface for treadle queue, treadle job, treadle cron and treadle reload, unix:///path (mode 0600) or tcp://host:port, or off; repeatable (default: admin.sock in the directory of --data, off with --data none)."`
	// Rules are the rules of the configuration file.
	Rules []sched.PolicyRule `kong:"-"`
	// Cron are the cron entries of the configuration file.
	Cron []codec.CronEntry `kong:"-"`
	// JobSpace is the name space of the jobs that the API submits; the server sets it.
	JobSpace sched.Space `kong:"-"`
	// Slice is how many jobs an operation looks at under one hold of a lock; default: sched.WalkBatch.
	Slice int `kong:"-"`
	// NoHistory is for a server without a clock of its own: the history is read each second.
	NoHistory bool `kong:"-"`
	// Projects are the projects of simulations. The server sets it.
	Projects Projects `kong:"-"`
	// Disbatch is the site in which the server is a node; nil: it is in none. The server sets it.
	Disbatch Disbatch `kong:"-"`
	// Configuration is where the settings come from; nil: it cannot be read again.
	Configuration Configuration `kong:"-"`
}

// Configuration is where the settings of the server come from. Its methods may be called from several goroutines.
type Configuration interface {
	// Settings returns all settings that are in effect.
	Settings() []codec.Setting
	// Reload reads the configuration again. It makes all changes and returns them, or none with an error.
	Reload() ([]codec.SettingChange, error)
}

// Socket is the usual name of the socket, in the server's data directory.
const Socket = "admin.sock"

// Check returns an OptionError when a setting cannot work.
func (o *Options) Check() error {
	return protocol.CheckAddresses(Setting, &o.Listen, protocol.NoTLS("the operators' interface is for this machine: use unix://, and --http tls://host:port for the API over TLS"))
}

// API is the HTTP API of one server. It implements protocol.Service and protocol.SettingsRestorer.
type API struct {
	host    Host
	o       Options
	servers []*web.Server
	running sync.WaitGroup

	reserver   *sched.Peer // has the session of all reserves
	reserves   requestTable[*pendingReserve]
	awaiter    *sched.Peer // submits the jobs whose ends are waited for
	waits      requestTable[*jobEnd]
	results    memoryBudget  // for the ends of waits
	closed     chan struct{} // ends all that wait
	operations operations
	rings      sharedHistory // what happened lately
	audited    auditLog
	incoming   web.Transfers // bodies that are being read
	outgoing   web.Transfers // answers that are being sent
	searches   chan struct{} // holds a token for each search of jobs that is under way

	mu          sync.Mutex
	rules       map[string]map[string]string // values of rules that were set at run time, by pattern and key
	table       *sched.Policies
	cron        map[string]*cronEntry // entries in force, by name
	runTimeCron map[string]*cronEntry // entries that were added at run time, by name
}

// New makes the API. It returns an error for an invalid rule or cron entry of the file.
func New(host Host, o Options) (*API, error) {
	api := &API{host: host, o: o, rules: make(map[string]map[string]string), runTimeCron: make(map[string]*cronEntry), closed: make(chan struct{})}
	api.reserver, api.awaiter = host.NewLocalPeer(api.deliverJob), host.NewLocalPeer(api.deliverEnd)
	api.searches = make(chan struct{}, maxSearches)
	api.incoming.Max, api.outgoing.Max, api.outgoing.Renew = host.Limits().MaxUnsent, host.Limits().MaxUnsent, pieceTime
	api.results.max = int64(host.Limits().MaxUnsent)
	table, err := api.mergedPolicies()
	if err == nil {
		err = table.CheckJobKeys()
	}
	if err != nil {
		return api, err
	}
	api.cron, err = api.mergedCron()
	return api, err
}

// mergedPolicies returns a table of the rules of the file and the rules of the run time.
func (api *API) mergedPolicies() (*sched.Policies, error) {
	all := slices.Clone(api.o.Rules)
	for _, pattern := range slices.Sorted(maps.Keys(api.rules)) {
		all = append(all, sched.PolicyRule{Pattern: pattern, Source: sched.FromRunTime, Values: maps.Clone(api.rules[pattern])})
	}
	return sched.NewPolicies(all)
}

// Name implements protocol.Protocol.
func (api *API) Name() string { return Name }

// Restore implements protocol.SettingsRestorer.
func (api *API) Restore(key string, value []byte) error {
	if entry, ok := strings.CutPrefix(key, cronPrefix); ok {
		return api.restoreCron(entry, value)
	}
	if strings.HasPrefix(key, auditPrefix) {
		return api.audited.restore(value)
	}
	pattern, ok := strings.CutPrefix(key, settingPrefix)
	if !ok {
		return nil
	}
	var values map[string]string
	if err := json.Unmarshal(value, &values); err != nil {
		return fmt.Errorf("the policy of %q in the journal: %w", pattern, err)
	}
	if len(values) == 0 { // it was taken back
		delete(api.rules, pattern)
		return nil
	}
	// A later program may have written keys that this one does not know. Its rule waits in the journal.
	if _, err := sched.NewPolicies([]sched.PolicyRule{{Pattern: pattern, Values: values}}); err != nil {
		api.host.Log().Warn("a rule for queues of the journal is ignored", "error", err)
		return nil
	}
	api.rules[pattern] = values
	return nil
}

// Begin gives the scheduler the rules and cron entries of the file, and the restored ones.
func (api *API) Begin() error {
	table, err := api.mergedPolicies()
	if err != nil {
		return err
	}
	if err := table.CheckJobKeys(); err != nil { // a later file may lack what a rule of the run time needs
		api.host.Log().Warn("a rule for keys is without effect", "error", err)
	}
	if len(table.Rules()) > 0 {
		api.applyPolicies(table, true)
	} else {
		api.table = table // the scheduler works as without policies
	}
	return api.beginCron()
}

// applyPolicies makes all queues follow a table of rules before it returns. atStart reports whether no peer is served
// yet: jobs with keys are then moved at once, not by the Ticks.
func (api *API) applyPolicies(table *sched.Policies, atStart bool) {
	api.table = table
	api.host.Sched().SetPolicies(table)
	sink := api.host.NewSink()
	api.host.Sched().ApplyPolicies(api.host.Now(), sink)
	if atStart {
		api.host.Sched().ApplyKeys(api.host.Now(), sink)
	}
	sink.Wake()
}

// Listen implements protocol.Service. The policies hold from then on.
func (api *API) Listen() (all []protocol.Listening, err error) {
	if err := api.Begin(); err != nil {
		return nil, err
	}
	for _, a := range api.o.Listen {
		l, err := api.host.Listen(Name, Setting, a)
		if err != nil {
			return nil, err
		}
		api.servers = append(api.servers, api.newServer(l))
		all = append(all, protocol.ListeningOn(Setting, l))
	}
	return all, nil
}

func (api *API) newServer(l net.Listener) *web.Server {
	return web.NewServer(l, web.Config{
		Handler: api.Handler(), Guard: api.host.Guard(), Log: api.host.Log(),
		Refuse: func(w http.ResponseWriter, why string) { web.RefuseJSON(w, http.StatusForbidden, why) },
		Header: requestTime, Request: requestTime, Answer: answerTime, Idle: requestTime,
		MaxHeader: maxHeader, MaxConnections: maxConnections,
	})
}

// Serve implements protocol.Service.
func (api *API) Serve(ctx context.Context) {
	if !api.o.NoHistory {
		api.running.Go(func() { api.keepHistory(ctx) })
	}
	for _, s := range api.servers {
		api.running.Go(func() {
			if err := s.Serve(); err != nil {
				api.host.Log().Error("the operators' interface stopped", "error", err)
			}
		})
	}
}

// Drain implements protocol.Service. Operations end after their batch. Requests are answered until the end.
func (api *API) Drain() { api.operations.stop() }

// HasPending implements protocol.Service.
func (api *API) HasPending() bool { return false }

// Close implements protocol.Service.
func (api *API) Close() {
	api.operations.stop()
	close(api.closed)
	for _, s := range api.servers {
		_ = s.Close() // a request that it cut off has no answer
	}
	api.running.Wait()
}

// changePolicy changes a run-time rule and returns when the queues follow it. The journal has it after a commit.
func (api *API) changePolicy(c *codec.PolicyChange) (changed bool, err error) {
	for _, key := range slices.Sorted(maps.Keys(c.Values)) {
		if err := sched.CheckPolicySetting(c.Pattern, key); err != nil {
			return false, &badRequest{err}
		}
	}
	api.mu.Lock()
	defer api.mu.Unlock()
	before, known := api.rules[c.Pattern]
	values := maps.Clone(before)
	if values == nil {
		values = make(map[string]string)
	}
	for key, value := range c.Values {
		if value == nil {
			delete(values, key)
		} else {
			values[key] = *value
		}
	}
	if values[sched.KeyPaused] == "" { // who has paused the queue, and why, goes with the pause
		delete(values, sched.KeyPausedBy)
		delete(values, sched.KeyPausedWhy)
	}
	if _, err := sched.NewPolicies([]sched.PolicyRule{{Pattern: c.Pattern, Values: values}}); err != nil {
		return false, &badRequest{err}
	}
	if maps.Equal(values, before) {
		return false, nil
	}
	if api.rules[c.Pattern] = values; len(values) == 0 {
		delete(api.rules, c.Pattern)
	}
	table, err := api.mergedPolicies()
	if err == nil && api.table.CheckJobKeys() == nil { // an earlier rule may be at fault, which must not prevent a pause
		err = table.CheckJobKeys()
	}
	if err != nil {
		if delete(api.rules, c.Pattern); known {
			api.rules[c.Pattern] = before
		}
		return false, &badRequest{err}
	}
	text, err := json.Marshal(values)
	if err != nil {
		return false, err
	}
	api.host.PutSetting(settingPrefix+c.Pattern, text)
	api.applyPolicies(table, false)
	api.host.Log().Info("a policy is changed", "pattern", c.Pattern, "values", string(text))
	return true, nil
}

// commit returns when the journal has all changes. It may take as long as the disk does, so the caller must not hold
// mu: other requests are answered meanwhile.
func (api *API) commit() error {
	group, wait := api.host.CommitGroupAll()
	if !wait {
		return nil
	}
	api.host.Flush(1)
	return api.host.Await(group)
}

// policies returns the present table.
func (api *API) policies() *sched.Policies {
	api.mu.Lock()
	defer api.mu.Unlock()
	return api.table
}
