package fuzz

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// canary is a bug on purpose: in a copy of file, what is old becomes new.
type canary struct{ name, file, old, new string }

// canaries are what `make canary` plants, one at a time: the simulation must find each. A
// list of them stands in README.md here.
var canaries = []canary{
	{"an acknowledgement is sent before the sync", "loop/acks.go", "s.ackGroups[n].group <= committed", "s.ackGroups[n].group <= committed+1"},
	{"a removal is not journaled", "loop/schedjournal.go", "j.journal.Delete(shard, seq)", "_ = seq"},
	{"a result is sent to the next session of the slot", "loop/sessiontable.go", "s != nil && s.ID == id", "s != nil"},
	{"a message to another loop does not wake it", "loop/mailbox.go", "wake = len(m.bytes) == 0", "wake = false"},
	{"a frame in two pieces loses its end", "loop/session.go", "take := min(need-len(s.partial), len(in))\n", "take := min(need-len(s.partial), len(in))\n\tif take > 40 {\n\t\tin = in[1:]\n\t\ttake--\n\t}\n"},
	{"sessions of the second loop are not forgotten", "loop/reactor.go", "if s.SchedPeer != nil {\n\t\tr.server.sched.Disconnect", "if s.SchedPeer != nil && r.index == 0 {\n\t\tr.server.sched.Disconnect"},
	{"the last bit of a priority does not count", "sched/ready.go", "sortKey{^r.priority, r.due}", "sortKey{^(r.priority >> 1), r.due}"},
	{"jobs are due two seconds early", "sched/shard.go", "return r.due*1000+int64(millis) <= now.Wall", "return r.due*1000+int64(millis) <= now.Wall+2000"},
	{"a time-out comes after a tenth of its time", "sched/held.go", "int64(r.timeout)*1000 + grace)", "int64(r.timeout)*100 + 0*grace)"},
	{"a late report ends a later run", "sched/held.go", "case w.held[r.heldIndex()].number != run.Number:", "case w.held[r.heldIndex()].number < run.Number:"},
	{"a worker is assigned a job of a name that it has not reported", "sched/unreported.go", "if w.peer.class == nameOnly {", "if w.peer.class == nameOnly && w.ended {"},
	{"a worker that has reported a name is not assigned a job of that name", "sched/unreported.go", "if w := u.watch; w.lineIndex >= 0 {", "if w := u.watch; w.lineIndex > 1<<20 {"},
	{"a worker finishes a job that another worker holds", "sched/held.go", "case w.held[r.heldIndex()].number != run.Number:\n\t\treturn nil, ErrNotFound\n\tcase w.peer != p:", "case p == w.peer && p == nil:"},
	{"the last job of a worker that leaves is not released", "sched/departed.go", "\t} else {\n\t\tsh.fail(now, job, r, q, Attempt{Outcome: attemptLeft,", "\t} else if len(w.held) > 0 {\n\t\tsh.fail(now, job, r, q, Attempt{Outcome: attemptLeft,"},
	{"a replaced job keeps its workload", "sched/submit.go", "\tsh.freeBytes(r.bytes)\n\tr.bytes, r.size = bytes, uint32(size)\n", "\tsh.freeBytes(bytes)\n"},
	{"a Gloom job fails when its second slave leaves", "loop/gloom/space.go", "Owned: true, Untimed: true, MaxFailures: 4", "Owned: true, Untimed: true, MaxFailures: 2"},
	{"a task starts before its last predecessor is complete", "sched/graph.go", "if g.node(job).ins > 0 {", "if g.node(job).ins > 1 {"},
	{"a late kts46 report is accepted", "loop/kts46/xml.go", "return ok && at.Unix() == time.UnixMilli(t.revision.Number).Unix()", "return ok && !at.IsZero()"},
	{"a kts46 reply is sent before the sync", "loop/kts46/registry.go", "\tif wait {\n\t\tif failed :=", "\tif wait && r.closed {\n\t\tif failed :="},
	{"the progress of a kts46 job is not journaled", "loop/kts46/tasks.go", "\tr.unassign(w)\n\tr.saveProgress(j)\n", "\tr.unassign(w)\n"},
	{"a Disbatch node is told the result of another task", "loop/disbatch/functions.go", "result{d.Tag, d.Effect", "result{p.lastTag, d.Effect"},
	{"a Disbatch task that has failed is retried", "loop/disbatch/space.go", "NeverDropped: true, MaxFailures: 1}", "NeverDropped: true, MaxFailures: 2}"},
	{"a named lock is held by one job more than its count", "sched/locks.go", "case len(k.holders) >= count:", "case len(k.holders) > count:"},
	{"a job that waits for a named lock is not woken", "sched/locks.go", "\t\tk.open.Push(line)\n", "\t\tif line.count > 1 {\n\t\t\tk.open.Push(line)\n\t\t}\n"},
	{"a stream loses every other chunk", "sched/listen.go", "\t\tsh.out = Delivery{To: a.peer.id, Tag: a.tag, Effect: Chunk, Data: data}\n", "\t\tif len(data)%2 == 0 {\n\t\t\tcontinue\n\t\t}\n\t\tsh.out = Delivery{To: a.peer.id, Tag: a.tag, Effect: Chunk, Data: data}\n"},
	{"a broadcast skips waiting workers", "sched/broadcast.go", "\t\tsh.out.To, sh.out.Tag, sh.out.Effect = w.peer.id, s.tag, Broadcast\n", "\t\tif w.peer.id&1 == 1 && b.sent {\n\t\t\tbreak\n\t\t}\n\t\tsh.out.To, sh.out.Tag, sh.out.Effect = w.peer.id, s.tag, Broadcast\n"},
	{"a job is accepted while the disk is full", "loop/periodic/client.go", "if err := c.p.host.CheckCapacity(); err != nil {\n\t\tc.refuse(", "if err := c.p.host.CheckCapacity(); err != nil && await {\n\t\tc.refuse("},
	{"a dump leaves out running jobs", "loop/periodic/dump.go", "case j.Space == Space:", "case j.Space == Space && !j.Running:"},
	{"a Disbatch queue in LIFO order is served in FIFO order", "loop/disbatch/store/lifecycle.go", "return bson.D{{Key: \"_id\", Value: -1}}", "return bson.D{{Key: \"_id\", Value: 1}}"},
	{"a Disbatch claim is kept over the limit", "loop/disbatch/store/lifecycle.go", "case count <= int64(q.Limit):", "case count <= int64(q.Limit)+1:"},
	{"a stopping Disbatch node releases a task that a worker runs", "loop/disbatch/node/functions.go", "if n.o.Functions.Withdraw(a.Plugin.Function, id) {", "if n.o.Functions.Withdraw(a.Plugin.Function, id) || true {"},
	{"a Disbatch claim whose reply is lost is forgotten", "loop/disbatch/node/reclaim.go", "if n.foreignLastTick[t.ID] || n.ticks == 0 {", "if n.ticks == 0 {"},
	{"a stopping Disbatch node does not release its claims", "loop/disbatch/node/node.go", "released, err := n.store.ReleaseAll(n.callsCtx, n.o.Name, queues)", "released, err := int64(0), error(nil)"},
	{"a failed write of a finished Disbatch task is not retried", "loop/disbatch/node/perform.go", "return p.retry.Do(ctx, \"finishing task \"+t.ID.Hex(), attempt)", "return attempt()"},
	{"a Disbatch node ends when the database fails at its start", "loop/disbatch/node/node.go", "before, err := n.retryEntry(ctx)", "before, err := n.entry(ctx)"},
	{"a dump has no counts", "loop/periodic/dump.go", "j.SchedAt, j.Count, j.Timeout)", "j.SchedAt, 0, j.Timeout)"},
	{"a load drops time-outs", "loop/periodic/dump.go", "\tsub := submission(&j)\n", "\tsub := submission(&j)\n\tsub.Timeout = 0\n"},
	{"the count of a delayed job does not increase", "sched/finish.go", "r.count = clampAdd(r.count, countStep)", "r.count = clampAdd(r.count, countStep&1)"},
	{"a count is not journaled", "loop/schedjournal.go", "r.Count, r.Timeout = saved.SchedAt, saved.Due, saved.Priority, saved.Count, saved.Timeout", "r.Count, r.Timeout = saved.SchedAt, saved.Due, saved.Priority, 0, saved.Timeout"},
	{"a setting is journaled under the wrong key", "loop/periodic/config.go", "configPrefix+configKeys[key].saved()", "configPrefix+configKeys[key].laterName"},
	{"a short write is not an error", "loop/journal/failfs.go", "if err == nil && wrote < n {", "if err == nil && wrote < 0 {"},
	{"a job is released when its worker confirms the assignment", "loop/periodic/conversation.go", "\tcase codec.JobAssigned: // it has no effect\n", "\tcase codec.JobAssigned:\n\t\t_ = c.p.sched.ReleaseNewest(c.s.Loop.Now, c.s.Peer(), uint64(f.MsgID), c.s.Loop.Sink)\n"},
	{"a worker is assigned jobs of a function that it has removed", "loop/periodic/worker.go", "c.p.sched.Unwatch(c.s.Peer(), protocol.Queue(name))", "_ = loop"},
	{"SHUTDOWN works where it is disabled", "loop/periodic/admin.go", "if c.p.o.Shutdown != on {", "if false {"},
	{"a store that could not be created is opened", "loop/journal/store.go", "\tif failed := disk.failure(); failed != nil {\n\t\treturn failed\n\t}\n", "\t_ = disk.failure()\n"},
	{"a stop does not commit pending changes", "loop/journal/commit.go", "\t\t\tj.commitAll()\n\t\t\treturn\n", "\t\t\treturn\n"},
	{"a released job is delayed", "sched/return.go", "\tq := sh.unhold(job, r)\n\tsh.release(now, job, r, q, now.Wall, sink)\n", "\tq := sh.unhold(job, r)\n\tsh.release(now, job, r, q, now.Wall+900_000_000, sink)\n"},
	{"a reply to CONFIG_SET is sent before the sync", "loop/periodic/admin.go", "c.replyAfter(f.MsgID, codec.Success, group, wait)\n\t\treturn true", "c.replyAfter(f.MsgID, codec.Success, group, wait && len(key) > 12)\n\t\treturn true"},
	{"a sleeping worker is not woken", "sched/match.go", "\tsh.out = Delivery{To: w.peer.id, Tag: s.tag, Effect: Wake}\n\tsink.Deliver(&sh.out)\n", "\tsh.out = Delivery{To: w.peer.id, Tag: s.tag, Effect: Wake}\n\tif w.queue.ready.jobs > 1 {\n\t\tsink.Deliver(&sh.out)\n\t}\n"},
	{"a stopping server assigns jobs", "sched/match.go", "\tif sh.halted || q.throttled() {\n", "\tif q.throttled() {\n"},
	{"a stop does not wait for running jobs", "loop/server.go", "return s.sched.CountInterruptible() > 0 || ", "return "},
	{"a stop does not wait for replies that await the sync", "loop/reactor.go", "s.stream != nil || s.unsent() > 0 {", "s.stream != nil || len(s.Out)+s.conn.OutboundBuffered() > 0 {"},
	{"a restart releases dwork tasks that it must keep", "loop/dwork/workers.go", "if p.o.Restart == restartReady {", "if true {"},
	{"a worker completes a task that another worker holds", "sched/graph_steal.go", "if !ok || !g.mayComplete(p, job) {\n\t\t\tsh.counters.Stale++\n\t\t\tmissing(i)\n", "if !ok || sh.slab.at(job).state != reserved {\n\t\t\tsh.counters.Stale++\n\t\t\tmissing(i)\n"},
	{"a stopping dwork hub accepts tasks", "loop/dwork/requests.go", "if p.stopping.Load() && !isReport(q.Type) {", "if p.stopping.Load() && !isReport(q.Type) && q.Type != codec.Create {"},
	{"a change is acknowledged by the sync before its own", "loop/schedjournal.go", "group = j.journal.Group(shard)\n\treturn", "group = min(j.journal.Group(shard), j.journal.Committed()+1)\n\treturn"},
	{"a half-closed connection gets no replies", "loop/reactor.go", "if len(s.ackGroups) > 0 && r.dupWriter != nil {", "if len(s.ackGroups) > 1 && r.dupWriter != nil {"},
	{"a half-closed connection gets replies before the sync", "loop/acks.go", "if p.group > committed {", "if p.group > committed+1 {"},
	{"a half-closed connection waits for the changes of other peers", "loop/reactor.go", "halfClosed{conn, s.acks, s.ackGroups[len(s.ackGroups)-1].group, s.ProtocolID})", "halfClosed{conn, s.acks, max(s.ackGroups[len(s.ackGroups)-1].group, func() uint64 { all, _ := r.server.journal.commitGroupAll(); return all }()), s.ProtocolID})"},
	{"a full log is not applied while the store is busy", "loop/journal/log.go", "\tselect {\n\tcase l.full <- full:\n\tcase <-failed:\n\t}\n", "\t_ = failed\n"},
	{"a log that cannot be read counts as empty", "loop/journal/chain.go", "return fmt.Errorf(\"cannot read the log %q: %w\", s.dir.log(name), cause(err))", "_ = err"},
	{"a half-closed connection is never removed from the count", "loop/acks.go", "\t\t_ = p.conn.Close()\n\t\tr.server.conns.remove(p.protocol)\n", "\t\t_ = p.conn.Close()\n"},
	{"a log is removed before the store is flushed", "loop/journal/apply.go", "return db.Flush()", "return nil"},
	{"a predecessor that is added later is not journaled", "sched/graph_edit.go", "\t\t\tg.saveEdge(i, e.q)\n", "\t\t\t_ = i\n"},
	{"a ready task that gets a predecessor stays ready", "sched/graph_edit.go", "if (r.state == ready || r.state == delayed) && g.node(job).ins > 0 {", "if r.state == delayed && g.node(job).ins > 0 {"},
	{"a cycle of two tasks is accepted", "sched/graph_order.go", "\t\t\tif next == end {\n", "\t\t\tif next == end && i > 0 {\n"},
	{"a refused request removes remembered tasks", "sched/graph_edit.go", "\tfor _, job := range e.displaced {\n\t\tif !sh.names", "\tfor _, job := range e.displaced[:0] {\n\t\tif !sh.names"},
	{"a text result is returned as a JSON string", "loop/gloom/slave.go", "\tif c.wrapped {\n", "\tif c.wrapped && m.Body == nil {\n"},
	{"an invalid LOAD is acknowledged", "loop/periodic/dump.go", "\t\tc.answerError(l.msgID, l.reason, &c.p.truncated)\n", "\t\tc.reply(l.msgID, codec.Success)\n"},
	{"a duplicate Gloom id gets no error", "loop/gloom/master.go", "\t\tc.answerError(codec.IDExists, m.ID)\n", "\t\t_ = m\n"},
	{"a slave that joins another type keeps the first type", "loop/gloom/slave.go", "\t\ts.Unwatch(p, c.queue)\n", "\t\t_ = s\n"},
	{"STATUS does not count running jobs", "sched/status.go", "Jobs: q.pending() + q.running +", "Jobs: q.pending() +"},
	{"a malformed Periodic request gets no reply", "loop/periodic/conversation.go", "\t\tc.answerError(f.MsgID, codec.ReasonMalformed, &c.p.truncated)\n", "\t\tc.p.truncated.Add(1)\n"},
	{"the time before a restart counts against leases", "loop/dwork/workers.go", "\tp.now = p.host.Now() // the lease begins with the restart\n", ""},
	{"a task that a worker of another protocol has finished runs again", "sched/finish.go", "\tcase r.flags&task != 0:\n\t\tsh.graph.end(now, job, r, q, sink)\n", "\tcase r.flags&task != 0:\n\t\tsh.release(now, job, r, q, now.Wall, sink)\n\t\tsh.matchOrDefer(now, q, sink)\n"},
	{"the release of a worker's jobs stops after one batch", "sched/departed.go", "\t\tif budget = w.shard.abandonJobs(now, d, w, budget, sink); budget < 0 {\n", "\t\tif budget = w.shard.abandonJobs(now, d, w, budget, sink); budget < -1 {\n"},
	{"a broadcast stops after one batch", "sched/broadcast.go", "if budget, done = sh.sendBroadcast(now, q, budget, sink); done {", "if budget, done = sh.sendBroadcast(now, q, budget, sink); !done || done {"},
	{"a queue that is left for the next Tick is never matched", "sched/match.go", "\t\tsh.deferredMatches = append(sh.deferredMatches, q)\n", ""},
	{"a retry starts without its back-off", "sched/failed.go", "delay = backoff(q.policy, f, tries, sh.s.jitterBits(r.seq, tries))", "delay = 0 * backoff(q.policy, f, tries, sh.s.jitterBits(r.seq, tries))"},
	{"a back-off does not grow", "sched/failed.go", "p.Backoff.delay(int(retry),", "p.Backoff.delay(1,"},
	{"a job is retried once too often", "sched/failed.go", "!limited || tries <= retries {", "!limited || tries <= retries+1 {"},
	{"a paused queue assigns a job when none is running", "sched/limiter.go", "return l.paused || l.concurrency", "return l.paused && q.running > 0 || l.concurrency"},
	{"a queue runs one job more than its concurrency", "sched/limiter.go", "q.running >= l.concurrency", "q.running > l.concurrency"},
	{"a queue at its concurrency is not matched when a job ends", "sched/limiter.go", "\tsh.deferMatch(q)\n\tsh.offerWithheld(q)\n", "\tsh.offerWithheld(q)\n"},
	{"a job that is given up is not journaled as failed", "sched/failed.go", "\tsh.keep(job, r, q, use)\n\tsh.save(job, r, q)\n", "\tsh.keep(job, r, q, use)\n"},
	{"a restart forgets how often a job has failed", "sched/journal.go", "\t\tsh.saved.History = sh.history(job, r)\n", ""},
	{"a failed job that is removed stays in the journal", "sched/kept.go", "\tsh.dropSaved(r)\n\tsh.dropHistory(job, r)\n\tsh.freeBytes(r.bytes)\n\tsh.slab.free(job)\n", "\tsh.dropHistory(job, r)\n\tsh.freeBytes(r.bytes)\n\tsh.slab.free(job)\n"},
	{"a moved dead letter is lost", "sched/failed_move.go", "\tif sh.moveTo(now, job, r, q, to, target, r.endedAt(), sink) == nil {\n\t\tto.matchOrDefer(now, target, sink)\n\t}\n", "\tif m.seq%2 == 0 {\n\t\tsh.removeKept(job, r, q)\n\t} else if sh.moveTo(now, job, r, q, to, target, r.endedAt(), sink) == nil {\n\t\tto.matchOrDefer(now, target, sink)\n\t}\n"},
	{"a move to another queue is not journaled", "sched/move.go", "\tto.save(moved, m, target)\n", ""},
	{"a policy is forgotten by a restart", "loop/admin/admin.go", "\tapi.host.PutSetting(settingPrefix+c.Pattern, text)\n", ""},
	{"a queue starts one job more than its rate", "sched/limiter.go", "g.rate.Jobs > 0 && g.credit < g.rate.Per {", "g.rate.Jobs > 0 && g.credit < 0 {"},
	{"a change of policy resets the credit of a rate", "sched/limiter.go", "g.credit, g.last = old.credit, old.last", "g.last = old.last"},
	{"a queue takes one job more than its max-jobs", "sched/limiter.go", "int64(q.unstarted()) >= p.MaxJobs", "int64(q.unstarted()) > p.MaxJobs"},
	{"a queue takes jobs of twice its max-bytes", "sched/limiter.go", "q.bytes+size-max(replaced, 0) > p.MaxBytes", "q.bytes+size-max(replaced, 0) > 2*p.MaxBytes"},
	{"a job above max-payload replaces another job", "sched/limiter.go", "int64(len(workload)) > p.MaxPayload", "replaced < 0 && int64(len(workload)) > p.MaxPayload"},
	{"a queue with both pauses accepts jobs", "sched/limiter.go", "case p.Paused&pauseSubmits != 0:", "case p.Paused == pauseSubmits:"},
	{"one failed job less is kept", "sched/kept.go", "int64(jobs) > keep.Jobs", "int64(jobs) >= keep.Jobs"},
	{"failed jobs are kept for twice their time", "sched/kept.go", "l.check = first.major + keep.Age", "l.check = first.major + 2*keep.Age"},
	{"a client gets no result when its job is given up", "sched/shard.go", "if r.flags&awaited != 0 {\n\t\tsh.notifyAll(job, r, q, e", "if r.flags&awaited != 0 && (e != Failed || sh.keptBySeq.count > 1) {\n\t\tsh.notifyAll(job, r, q, e"},
	{"a key runs one job more than its key-concurrency", "sched/lanes.go", "k.limit > 0 && l.taken >= k.limit", "k.limit > 0 && l.taken > k.limit"},
	{"a key at its key-concurrency is not matched when a job ends", "sched/lanes.go", "if closed && l.level != nil && !q.lineEmpty() {", "if closed && l.level == nil && !q.lineEmpty() {"},
	{"a key with a finished turn keeps the turn", "sched/lanes.go", "\t\tv.unlink(l)\n\t\tv.append(l)\n\t\tl.turn = 0\n", "\t\tl.turn = 0\n"},
	{"a pattern takes precedence over an exact name", "sched/policy.go", "cmp.Compare(oneIf(r.exact()), oneIf(o.exact()))", "cmp.Compare(oneIf(o.exact()), oneIf(r.exact()))"},
	{"the less specific of two patterns takes precedence", "sched/policy.go", "cmp.Compare(r.literal(), o.literal())", "cmp.Compare(o.literal(), r.literal())"},
	{"the configuration file takes precedence over run-time rules", "sched/policy.go", "cmp.Compare(r.Source, o.Source),", "cmp.Compare(o.Source, r.Source),"},
	{"a name is free after an eighth of its unique-for", "sched/done.go", ">= q.policy.UniqueFor {", ">= q.policy.UniqueFor/8 {"},
	{"a restart forgets the names of finished jobs", "sched/kept.go", "if last == none || sh.slab.at(last).endedAt() <= r.endedAt() {", "if len(j.History) > 1<<20 && (last == none || sh.slab.at(last).endedAt() <= r.endedAt()) {"},
	{"an expired job is assigned", "sched/match.go", "if sh.expired(now, q, r) {", "if sh.expired(now, q, r) && q.withheld.jobs > 0 {"},
	{"a cron entry that has run is not journaled", "sched/cron_run.go", "\tsh.planCron(c)\n\tsh.saveCron(c)\n}\n\n// submitCron", "\tsh.planCron(c)\n}\n\n// submitCron"},
	{"a job that has expired stays in its queue", "sched/ttl.go", "case at <= now.Wall:", "case at <= now.Wall-60_000:"},
	{"a restart forgets the results of done jobs", "sched/done.go", "case j.Result != nil && sh.setResult(job, j.Result):", "case j.Result != nil && len(j.Result) == 0:"},
	{"a turn is one job long, whatever its weight", "sched/lanes.go", "v.shared && l.turn >= l.weight {", "v.shared && l.turn >= 1 {"},
	{"a job loses its turn for a lock while its queue is paused", "sched/locks.go", "r.seq != ref.Seq || !sh.s.locks.isWoken(ref) {", "r.seq != ref.Seq || !sh.s.locks.isWoken(ref) || sh.queues[r.container].throttled() {"},
	{"a lease is not restored", "sched/journal.go", "if j.Lease.Token != (Token{}) && sh.restoreLease(", "if j.Lease.Until < 0 && sh.restoreLease("},
	{"a lease that has ended while the server was down goes on", "sched/lease.go", "min(max(saved.Until-now.Wall, 0), l.length))", "min(max(saved.Until-now.Wall, 0), l.length)+l.length*int64(oneIf(saved.Until <= now.Wall)))"},
	{"an extended lease is not journaled", "sched/lease_verbs.go", "\tif r.flags&task == 0 {\n\t\tsh.save(l.record, r, sh.queueOf(r))\n", "\tif r.flags&task != 0 {\n\t\tsh.save(l.record, r, sh.queueOf(r))\n"},
	{"the token of an earlier run ends a later one", "sched/lease_verbs.go", "\tl, err := s.leases.find(t)\n\tif err != nil {\n\t\treturn nil, nil, nil, s.countStale(err)\n\t}\n\tsh := &s.shards[l.shard]\n\tsh.mu.Lock()\n\tr := sh.slab.find(l.record)\n\tif r != nil && r.state == reserved && sh.holdingWatch(r).leased() && sh.holdingWatch(r).held[r.heldIndex()].number == t.Number {", "\tl, err := s.leases.find(t)\n\tif err == ErrLeaseExpired {\n\t\tfor i := range s.leases {\n\t\t\tfor _, x := range s.leases[i].live {\n\t\t\t\tl, err = x, nil\n\t\t\t}\n\t\t}\n\t}\n\tif err != nil {\n\t\treturn nil, nil, nil, s.countStale(err)\n\t}\n\tsh := &s.shards[l.shard]\n\tsh.mu.Lock()\n\tr := sh.slab.find(l.record)\n\tif r != nil && r.state == reserved && sh.holdingWatch(r).leased() {"},
	{"the delay of a failed run over HTTP is ignored", "loop/admin/report.go", "delay = time.Duration(*r.Delay).Milliseconds()", "delay = min(time.Duration(*r.Delay).Milliseconds(), 0)"},
	{"a lease token is accepted twice", "loop/admin/report.go", "\t\t\tcase err == nil:\n", "\t\t\tcase err == nil || errors.Is(err, sched.ErrLeaseDone):\n"},
	{"a job whose reserve has hung up is lost", "loop/admin/handler.go", "\t\tjobs.unsent()\n", "\t\t_ = jobs\n"},
	{"a submitter that waits is not told some results", "loop/admin/wait.go", "\tif !ok {\n\t\treturn\n", "\tif !ok || len(d.Data)%2 == 1 {\n\t\treturn\n"},
	{"a job that an operator moves stays in its queue as well", "sched/move.go", "\tsh.dequeue(job, r, q)\n\tsh.end(job, r, q, Removed, nil, sink)\n\treturn nil\n", "\treturn nil\n"},
	{"a job that an operator moves to a queue with three others is lost", "sched/operate.go", "\tif err == nil {\n\t\terr = sh.moveTo(", "\tif err == nil && target.unreserved() > 2 {\n\t\tsh.removeInAnyState(now, job, r, q, sink)\n\t} else if err == nil {\n\t\terr = sh.moveTo("},
	{"an operator cannot remove leased jobs", "sched/operate.go", "\tcase c.Verb == RemoveJobs:\n", "\tcase c.Verb == RemoveJobs && r.state == reserved && sh.holdingWatch(r).leased():\n\t\treturn nil\n\tcase c.Verb == RemoveJobs:\n"},
	{"an operation ends after a slice", "loop/admin/operations.go", "\t\tbegan = op.api.host.Yield(began)\n", "\t\tbegan, done = op.api.host.Yield(began), true\n"},
	{"the list of connections lacks those of the last loop", "loop/connections.go", "for ; loop < len(h.reactors); loop, slot", "for ; loop < len(h.reactors)-1; loop, slot"},
	{"a new priority is not journaled", "sched/operate.go", "\tr.priority = priority\n\tsh.enqueue(now, job, r, q, millis)\n\tsh.save(job, r, q)\n", "\tr.priority = priority\n\tsh.enqueue(now, job, r, q, millis)\n"},
	{"a new due time loses its milliseconds", "sched/operate.go", "sh.enqueue(now, job, r, q, uint32(wall-r.due*1000))", "sh.enqueue(now, job, r, q, 0)"},
	{"the delay of a job that is released to its tube is ignored", "loop/beanstalk/worker.go", "toPriority(r.Priority), int64(r.Delay)*1000, loop.Sink)", "toPriority(r.Priority), 0, loop.Sink)"},
	{"a time to run does not end", "sched/held.go", "\tif p.capabilities&NoGrace != 0 {\n\t\tgrace = 0\n", "\tif p.capabilities&NoGrace != 0 {\n\t\tgrace = 1 << 40\n"},
	{"a touch does not start the time to run anew", "loop/beanstalk/worker.go", "if h == nil || !h.broadcast && c.p.sched.Touch(c.s.Loop.Now, c.s.Peer(), h.run) != nil {", "if h == nil {"},
	{"a buried job is handed out", "sched/return.go", "\tsh.keepFailed(now, run.Record, r, q, use, sink)\n", "\t_ = use\n\tsh.release(now, run.Record, r, q, now.Wall, sink)\n\tsh.matchOrDefer(now, q, sink)\n"},
	{"a kick leaves all buried jobs but one", "sched/numbered_verbs.go", "\t\tkicked++\n\t\tmore = ", "\t\tif kicked++; ofFailed {\n\t\t\tbreak\n\t\t}\n\t\tmore = "},
	{"a delete of a buried job is not journaled", "sched/kept.go", "\tsh.dropSaved(r)\n\tsh.dropHistory(job, r)\n\tsh.freeBytes(r.bytes)\n\tsh.slab.free(job)\n", "\tif r.flags&numbered == 0 {\n\t\tsh.dropSaved(r)\n\t}\n\tsh.dropHistory(job, r)\n\tsh.freeBytes(r.bytes)\n\tsh.slab.free(job)\n"},
	{"a connection of beanstalkd's protocol that is lost keeps its jobs", "loop/reactor.go", "if s.SchedPeer != nil {\n\t\tr.server.sched.Disconnect", "if s.SchedPeer != nil && s.Label != \"beanstalk\" {\n\t\tr.server.sched.Disconnect"},
	{"a failed Faktory job is tried again at once", "loop/faktory/worker.go", "appendFailure(nil, f), -1, loop.Sink)", "appendFailure(nil, f), 0, loop.Sink)"},
	{"an ACK counts on the connection of the FETCH alone", "loop/faktory/worker.go", "\tif err == nil {\n\t\terr = c.p.sched.FinishLeased(", "\tif err == nil && token.Secret == c.secret {\n\t\terr = c.p.sched.FinishLeased("},
	{"a unique job is unique until it starts", "loop/faktory/unique.go", "l != nil && (l.untilStart || e == sched.Result) {", "l != nil {"},
}

// testCanary is a bug that Go tests of a package must find.
type testCanary struct {
	canary
	pkg, tests string // a directory and a pattern
}

// testCanaries are bugs that the simulation does not find: it does not know what each group of the journal held, no
// commit of it comes in the middle of a verb, and no job comes to a request between two of its steps. Of beanstalkd's
// protocol and Faktory's it plays the requests that README.md names. A few show what another test finds.
var testCanaries = []testCanary{
	{canary{"an incomplete journal group is kept", "loop/journal/chain.go", "\ts.logs[c.partialAt.log].end = c.partialAt.offset\n", "\t_ = c.partialAt.offset\n"}, "loop/journal", lostPower},
	{canary{"a journal group marks unsynced groups before it as synced", "loop/journal/commit.go", "prevSynced: j.options.Sync != Never && !j.log.unsynced(),", "prevSynced: j.options.Sync != Never,"}, "loop/journal", lostPower},
	{canary{"a finished job is not journaled", "sched/done.go", "\tsh.keep(job, r, q, use)\n\tsh.save(job, r, q)\n", "\tsh.keep(job, r, q, use)\n"}, "cmd/treadle", "TestLinearizablePolicies"},
	{canary{"a kept result loses its last byte", "sched/done.go", "sh.results[job] = arenaRef{bytes, uint32(len(data))}", "sh.results[job] = arenaRef{bytes, uint32(max(len(data), 1) - 1)}"}, "cmd/treadle", "TestLinearizablePolicies"},
	{canary{"a cron entry and its job are not journaled together", "sched/cron_run.go", "\tsh.beginAtomic()\n\tdefer sh.endAtomic()\n\tc.Handled = now.Wall\n", "\tc.Handled = now.Wall\n"}, "sched", "TestCronKill"},
	{canary{"a job that is on its way to a request that ends has failed", "sched/departed.go", "\tif w.peer.request {\n", "\tif w.peer.request && w.ended && len(w.held) > 99 {\n"}, "sched", "TestRequestHangsUp"},
	{canary{"a put is answered before the sync", "loop/beanstalk/conversation.go", "c.p.host.CommitGroup(queue)\n", "c.p.host.CommitGroup(queue)\n\twait = wait && group == 0\n"}, "loop", "TestBeanstalkAfterSync"},
	{canary{"a put is not journaled", "loop/beanstalk/space.go", "sched.Rules{Durable: true, Numbered: true}", "sched.Rules{Numbered: true}"}, "cmd/treadle", "TestLinearizable"},
	{canary{"a released job stands behind later numbers", "sched/index.go", "s.at(before).seq > r.seq {", "s.at(before).seq > r.seq && r.seq == 0 {"}, "sched", "TestNumberedAgainstModel"},
	{canary{"a reserve waits in the last second of a time to run", "loop/beanstalk/worker.go", "return c.held.soonest()-safetyMargin <= now", "return c.held.soonest() <= now"}, "loop", "TestBeanstalkGolden"},
	{canary{"the number of a job that is put is not its name", "sched/submit.go", "\tr.seq = seq\n", "\tr.seq = seq + 1\n"}, "loop", "TestBeanstalkGolden"},
	{canary{"a Faktory job is forgotten when its retries are used up", "sched/failed.go", "f != nil && r.count == 0 {", "f != nil && r.count >= 0 {"}, "loop", "TestFaktoryGolden"},
	{canary{"a reservation of Faktory is not journaled", "sched/lease_verbs.go", "\t\tsh.save(h.job, r, q)\n\t}\n\treturn true", "\t}\n\treturn true"}, "cmd/treadle", "TestLinearizable"},
	{canary{"a reservation of Faktory ends with its connection", "sched/held.go", "t != nil && sh.holdLeased(", "t != nil && w.ended && sh.holdLeased("}, "loop", "TestFaktoryGolden"},
	{canary{"the older reservation of a jid is lost", "sched/lease_name.go", "\tcase l.older != nil:\n", "\tcase l.older != nil && l.newer != nil:\n"}, "loop", "TestFaktoryGolden"},
	{canary{"a PUSH is answered before the sync", "loop/faktory/conversation.go", "c.p.host.CommitGroup(queue)\n", "c.p.host.CommitGroup(queue)\n\twait = wait && len(queue) == 0\n"}, "loop", "TestFaktoryAcknowledgedAfterSync"},
	{canary{"a restart forgets which Faktory jobs are unique", "loop/faktory/follow.go", "l.expiry > p.host.Now().Wall {", "l.expiry < p.host.Now().Wall {"}, "loop", "TestFaktoryRestart"},
	{canary{"a failed Faktory job loses its failure on another loop", "loop/mailbox.go", "if d.Effect != sched.Assign {", "if d.Effect == sched.Assign {"}, "loop", "TestFaktoryGolden"},
	{canary{"a leader answers before a majority has the group", "loop/cluster/leadership.go", "\tfor l.committed < l.proposed && !l.isLost {\n\t\tl.wake.Wait()\n\t}\n\tif l.committed < l.proposed {\n", "\tif l.isLost {\n"}, "cmd/treadle", "TestClusterHistories"},
	{canary{"an old leader answers after its time", "loop/cluster_run.go", "return s.holdsLease == nil || s.holdsLease()", "return s.holdsLease == nil || !s.stopping.Load()"}, "loop", "TestNoAnswerToStaleRead"},
	{canary{"a damaged note of a node is believed", "loop/journal/replica.go", "if string(b) != text+endOfNote(text) {", "if len(b) == 0 {"}, "loop/journal", "TestDamagedNote"},
	{canary{"a leader that hears of nobody serves on", "loop/cluster/leadership.go", "if lead == nil || !lead.expired(n.uptime()) {", "if lead == nil || lead.term > 0 {"}, "loop/cluster", "TestLease"},
	{canary{"a vote is answered before it is on the disk", "loop/cluster/storage.go", "\tif !sync {", "\tif !sync || len(entries) == 0 {"}, "loop/cluster", "TestStorageRestart"},
	{canary{"the tables of a killed node are damage", "loop/journal/survey.go", "node || !s.listed", "node && !s.listed"}, "loop/cluster", "TestApplyLosesPower"},
	{canary{"a large first record of a log is forgotten", "loop/journal/replica.go", "\tr.full = slices.DeleteFunc(r.full, func(l fullReplicaLog) bool { return fileNumber(l.name) < r.log.number }) // a large record fills its log\n", "\tr.full = nil\n"}, "loop/cluster", "TestStorageRemoves"},
	{canary{"a master that reconnects finds its own ids taken", "sched/departed.go", "if owner == nil || !owner.isDeparted() {", "if owner == nil || len(s.globalNames) > 0 {"}, "sched", "TestOwnerComesBack"},
	{canary{"a follower's client is taken for a program of this machine", "loop/forwarded.go", "RemoteAddr() net.Addr { return c.client }", "RemoteAddr() net.Addr { return c.port }"}, "loop", "TestForwardedHTTP"},
	{canary{"the log of a received store has the wrong name", "loop/journal/snapshot.go", "logName(log.number)", "logName(log.number + 1)"}, "loop/journal", "TestInstall"},
	{canary{"a leader with a slow disk keeps the lead", "loop/cluster/disk.go", "\t\tn.updateState(n.endLeadership)\n\t\tn.raft.TransferLeader(to)\n", ""}, "loop/cluster", "TestLeaderWithSlowDisk"},
	{canary{"a node with a wrong clock leads", "loop/cluster/node.go", " || n.clocks.wrong.Load() && !noSuccessor {", " {"}, "loop/cluster", "TestLeaderWithWrongClock"},
	{canary{"a request that the leader may have got is refused", "loop/follower_http.go", "\t\tpanic(http.ErrAbortHandler)\n", "\t\tnot.error = err\n"}, "cmd/treadle", "TestClusterFollower"},
	{canary{"a store forgets the nodes that were added", "loop/cluster/storage.go", "return versions[len(versions)-1].stored()", "return versions[0].stored()"}, "loop/cluster", "TestReplace"},
}

// lostPower are the tests of the journal that know what each group held.
const lostPower = "Test(PowerLoss|UnsyncedLost)"

// allCanaries returns those of both tables.
func allCanaries() []canary {
	all := slices.Clone(canaries)
	for _, c := range testCanaries {
		all = append(all, c.canary)
	}
	return all
}

// overlaid returns the file with the bug in it.
func (c *canary) overlaid(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", c.file))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), c.old); n != 1 {
		t.Fatalf("%s: what is to be replaced is %d times in %s: adapt the table", c.name, n, c.file)
	}
	return strings.Replace(string(text), c.old, c.new, 1)
}

// TestCanariesFit: every bug of the table can be planted still.
func TestCanariesFit(t *testing.T) {
	all := allCanaries()
	if len(all) < 10 {
		t.Errorf("%d planted bugs", len(all))
	}
	for i := range all {
		all[i].overlaid(t)
	}
}
