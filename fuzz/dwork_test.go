package fuzz

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"treadle/codec/dwork"
	"treadle/codec/dwork/dworkpb"
)

// Longer inputs find nothing more, and keep the fuzzer busy making them shorter.
const dworkPayload = 1 << 8

// dworkPayloads returns every captured message; see the first lines of the file.
func dworkPayloads(f *testing.F) (payloads [][]byte) {
	f.Helper()
	text, err := os.ReadFile("testdata/dwork.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		side, message, _ := strings.Cut(line, " ")
		if side == "#" {
			continue
		}
		var m dworkpb.QueryMsg
		if err := prototext.Unmarshal([]byte(message), &m); err != nil {
			f.Fatal(err)
		}
		b, err := proto.Marshal(&m)
		if err != nil {
			f.Fatal(err)
		}
		payloads = append(payloads, b)
	}
	return payloads
}

// naiveDwork reads a message with protobuf's generated code and judges it by the words of the messaging API: a naive
// copy of Decode and DecodeReply. The message is nil when its bytes are not sound or a number has no name.
func naiveDwork(payload []byte) (m *dworkpb.QueryMsg, request, reply bool) {
	m = new(dworkpb.QueryMsg)
	if proto.Unmarshal(payload, m) != nil || dworkpb.QueryMsg_Type_name[int32(m.GetType())] == "" {
		return nil, false, false
	}
	for _, task := range m.Task {
		for _, entry := range task.Log {
			if dworkpb.TaskMsg_State_name[int32(entry.GetState())] == "" {
				return nil, false, false
			}
		}
	}
	var has string // which parts are there
	for _, p := range []struct {
		there bool
		name  string
	}{{len(m.Task) > 0, "t"}, {m.Name != nil, "a"}, {m.N != nil, "n"}, {m.Location != nil, "l"}} {
		if p.there {
			has += p.name
		}
	}
	is := func(legal ...string) bool {
		for _, parts := range legal {
			if has == parts {
				return true
			}
		}
		return false
	}
	switch m.GetType() {
	case dworkpb.QueryMsg_Create:
		return m, is("t"), false
	case dworkpb.QueryMsg_Steal:
		return m, is("l", "nl"), false
	case dworkpb.QueryMsg_Complete:
		return m, is("tl"), false
	case dworkpb.QueryMsg_Transfer:
		return m, is("tl"), is("t")
	case dworkpb.QueryMsg_Lookup:
		return m, is("a"), false
	case dworkpb.QueryMsg_NotFound:
		return m, false, is("", "t")
	case dworkpb.QueryMsg_OK:
		return m, is(""), true
	case dworkpb.QueryMsg_Exit:
		return m, is("l"), is("")
	}
	return m, false, is("")
}

// dropUnknown removes what no field is known for, in all parts.
func dropUnknown(m protoreflect.Message) {
	m.SetUnknown(nil)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.IsList() && f.Message() != nil {
			for i := range v.List().Len() {
				dropUnknown(v.List().Get(i).Message())
			}
		}
		return true
	})
}

// dworkAgain encodes what was decoded.
func dworkAgain(q *dwork.Query) []byte {
	out := dwork.AppendType(nil, q.Type)
	for task := range q.Tasks {
		var deps, log []byte
		for d := range task.Pred {
			deps = dwork.AppendPred(deps, d)
		}
		for d := range task.Succ {
			deps = dwork.AppendSucc(deps, d)
		}
		for e := range task.Log {
			log = dwork.AppendLog(log, e)
		}
		out = dwork.AppendTask(out, task.Name, task.Origin, deps, log)
	}
	if q.Name != nil {
		out = dwork.AppendName(out, q.Name)
	}
	if q.HasN {
		out = dwork.AppendN(out, q.N)
	}
	if q.Location != nil {
		out = dwork.AppendLocation(out, q.Location)
	}
	return out
}

// FuzzDwork holds the reader to protobuf's generated code: both take the same payloads, and what is decoded and encoded
// again are the bytes that the generated code gives for what it read.
func FuzzDwork(f *testing.F) {
	for _, p := range dworkPayloads(f) {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		if len(payload) > dworkPayload {
			return
		}
		var q, r dwork.Query
		m, request, reply := naiveDwork(payload)
		before := bytes.Clone(payload)
		errQ, errR := dwork.Decode(payload, &q), dwork.DecodeReply(payload, &r)
		if !bytes.Equal(payload, before) {
			t.Fatalf("%x was changed", before)
		}
		if (errQ == nil) != request || (errR == nil) != reply {
			t.Fatalf("%x: as a request %v, as a reply %v; protobuf reads %v, %v, %v", payload, errQ, errR, m, request, reply)
		}
		if errQ != nil {
			q = r
		}
		if errQ != nil && errR != nil {
			return
		}
		dropUnknown(m.ProtoReflect())
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if got := dworkAgain(&q); !bytes.Equal(got, want) {
			t.Fatalf("%x: encoded %x, protobuf %x", payload, got, want)
		}
		if q.Count != len(m.Task) {
			t.Fatalf("%x: %d tasks, protobuf %d", payload, q.Count, len(m.Task))
		}
	})
}

// FuzzDworkSaved: of whatever files the original hub's reader takes, each task stands once in the order or among the
// stuck, behind all that it waits for.
func FuzzDworkSaved(f *testing.F) {
	const six = "../codec/dwork/testdata/saved/six"
	names, err := os.ReadFile(six + dwork.SavedNames)
	if err != nil {
		f.Fatal(err)
	}
	tasks, err := os.ReadFile(six + dwork.SavedTasks)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(names, tasks)
	f.Fuzz(func(t *testing.T, names, tasks []byte) {
		saved, err := dwork.ReadSaved(names, tasks)
		if err != nil {
			return
		}
		order, stuck := saved.Order()
		seen := make(map[int]bool)
		for _, i := range order {
			for _, before := range saved.Tasks[i].After {
				if !seen[before] {
					t.Fatalf("%q comes before %q", saved.Tasks[i].Name, saved.Tasks[before].Name)
				}
			}
			seen[i] = true
		}
		edges := 0
		for _, i := range stuck {
			if seen[i] || !slices.ContainsFunc(saved.Tasks[i].After, func(before int) bool { return slices.Contains(stuck, before) }) {
				t.Fatalf("%q is not stuck", saved.Tasks[i].Name)
			}
		}
		for i := range saved.Tasks {
			edges += len(saved.Tasks[i].After)
		}
		if len(order)+len(stuck) != len(saved.Tasks) || len(seen) != len(order) || edges != saved.Edges {
			t.Fatalf("%d in order, %d stuck, %d tasks, %d and %d edges", len(order), len(stuck), len(saved.Tasks), edges, saved.Edges)
		}
	})
}
