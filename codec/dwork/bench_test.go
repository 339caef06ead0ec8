package dwork

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"treadle/codec/dwork/dworkpb"
)

// BenchmarkDecode is a Complete of 16 tasks: judged, and its names read.
func BenchmarkDecode(b *testing.B) {
	in := block(b, `type: Complete location: "w"`, 16)
	var q Query
	names := 0
	b.ReportAllocs()
	for b.Loop() {
		if err := Decode(in, &q); err != nil {
			b.Fatal(err)
		}
		for task := range q.Tasks {
			names += len(task.Name)
		}
	}
	if names == 0 {
		b.Fatal("no names")
	}
}

// BenchmarkDecodeGenerated is the same with protobuf's own code and a reused message.
func BenchmarkDecodeGenerated(b *testing.B) {
	in := block(b, `type: Complete location: "w"`, 16)
	var m dworkpb.QueryMsg
	names := 0
	b.ReportAllocs()
	for b.Loop() {
		if err := proto.Unmarshal(in, &m); err != nil {
			b.Fatal(err)
		}
		for _, task := range m.Task {
			names += len(task.GetName())
		}
	}
	if names == 0 {
		b.Fatal("no names")
	}
}

// BenchmarkDecodeSteal is the smallest request that is answered with tasks.
func BenchmarkDecodeSteal(b *testing.B) {
	in := text(b, `type: Steal n: 16 location: "worker-1"`)
	var q Query
	b.ReportAllocs()
	for b.Loop() {
		if err := Decode(in, &q); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAppendTransfer is the reply to a Steal of 16 tasks.
func BenchmarkAppendTransfer(b *testing.B) {
	name, origin := []byte("task-00000001"), []byte("host-1")
	var out, log []byte
	b.ReportAllocs()
	for b.Loop() {
		out = AppendType(out[:0], Transfer)
		log = AppendLog(log[:0], LogEntry{Stolen, 1795239303402178})
		for range 16 {
			out = AppendTask(out, name, origin, log)
		}
	}
}

// BenchmarkAppendTransferGenerated is the same with protobuf's own code and a reused message.
func BenchmarkAppendTransferGenerated(b *testing.B) {
	m := &dworkpb.QueryMsg{Type: dworkpb.QueryMsg_Transfer.Enum()}
	for range 16 {
		m.Task = append(m.Task, &dworkpb.TaskMsg{Name: proto.String("task-00000001"), Origin: proto.String("host-1"),
			Log: []*dworkpb.TaskMsg_LogMsg{{State: dworkpb.TaskMsg_Stolen.Enum(), Time: proto.Int64(1795239303402178)}}})
	}
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if out, err = (proto.MarshalOptions{}).MarshalAppend(out[:0], m); err != nil {
			b.Fatal(err)
		}
	}
}
