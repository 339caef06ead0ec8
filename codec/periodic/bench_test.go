package periodic

import "testing"

// sinkInt keeps the compiler from dropping a benchmarked call.
var sinkInt int

func benchmarkJob() Job {
	return Job{Func: []byte("benchmark"), Name: []byte("job-0000000001"), Workload: make([]byte, 100)}
}

// benchmarkNext decodes a pipelined buffer of 64 frames, as one read of a busy connection yields.
func benchmarkNext(b *testing.B, fr Framing, cmd Command, args []byte) {
	var stream []byte
	for i := range 64 {
		stream = appendRequest(stream, fr, uint32(i), cmd, args)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(stream) / 64))
	var f Frame
	in := stream
	for b.Loop() {
		n, err := Next(in, fr, 1<<26, &f)
		if n == 0 || err != nil {
			b.Fatal(n, err)
		}
		sinkInt += len(f.Args)
		if in = in[n:]; len(in) == 0 {
			in = stream
		}
	}
}

func BenchmarkNextSubmitPlain(b *testing.B) {
	j := benchmarkJob()
	benchmarkNext(b, Plain, SubmitJob, AppendJob(nil, &j))
}

func BenchmarkNextSubmitCRC(b *testing.B) {
	j := benchmarkJob()
	benchmarkNext(b, CRC, SubmitJob, AppendJob(nil, &j))
}

func BenchmarkNextGrabPlain(b *testing.B) { benchmarkNext(b, Plain, GrabJob, nil) }

func BenchmarkNextGrabCRC(b *testing.B) { benchmarkNext(b, CRC, GrabJob, nil) }

func BenchmarkNextDonePlain(b *testing.B) {
	benchmarkNext(b, Plain, WorkDone, append(AppendStr8(nil, []byte("16 bytes' handle")), "result"...))
}

func BenchmarkNextPartial(b *testing.B) {
	j := benchmarkJob()
	packet := appendRequest(nil, Plain, 1, SubmitJob, AppendJob(nil, &j))
	b.ReportAllocs()
	var f Frame
	for b.Loop() {
		n, _ := Next(packet[:len(packet)-1], Plain, 1<<26, &f)
		sinkInt += n
	}
}

func BenchmarkParseJob(b *testing.B) {
	j := benchmarkJob()
	record := AppendJob(nil, &j)
	b.ReportAllocs()
	b.SetBytes(int64(len(record)))
	for b.Loop() {
		n, err := ParseJob(record, &j)
		if err != nil {
			b.Fatal(err)
		}
		sinkInt += n
	}
}

func BenchmarkParseJobBothOptions(b *testing.B) {
	j := benchmarkJob()
	j.Count, j.Timeout = 1, 60
	record := AppendJob(nil, &j)
	b.ReportAllocs()
	b.SetBytes(int64(len(record)))
	for b.Loop() {
		n, err := ParseJob(record, &j)
		if err != nil {
			b.Fatal(err)
		}
		sinkInt += n
	}
}

func benchmarkReply(b *testing.B, fr Framing) {
	out := make([]byte, 0, 64<<10)
	b.ReportAllocs()
	for b.Loop() {
		if len(out) > 60<<10 {
			out = out[:0]
		}
		out = AppendReply(out, fr, 1, Success)
	}
}

func BenchmarkAppendReplyPlain(b *testing.B) { benchmarkReply(b, Plain) }

func BenchmarkAppendReplyCRC(b *testing.B) { benchmarkReply(b, CRC) }

func benchmarkAssign(b *testing.B, fr Framing) {
	j := benchmarkJob()
	out := make([]byte, 0, 64<<10)
	b.ReportAllocs()
	for b.Loop() {
		if len(out) > 60<<10 {
			out = out[:0]
		}
		start := len(out)
		out = AppendMessage(BeginResponse(out, fr), 1, JobAssign)
		out = AppendJob(out, &j)
		End(out, start, fr)
	}
}

func BenchmarkAppendAssignPlain(b *testing.B) { benchmarkAssign(b, Plain) }

func BenchmarkAppendAssignCRC(b *testing.B) { benchmarkAssign(b, CRC) }
