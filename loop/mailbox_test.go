package loop

import (
	"math"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"

	"treadle/sched"
)

// scramble sets every field below v.
func scramble(t *testing.T, rng *rand.Rand, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			switch v.Type().Field(i).Name {
			case "Running", "Due": // only a journal and a DUMP need these
			default:
				scramble(t, rng, v.Field(i))
			}
		}
	case reflect.String:
		v.SetString(string(make([]byte, rng.IntN(300))))
	case reflect.Slice:
		v.SetBytes(make([]byte, rng.IntN(300)))
	case reflect.Int64, reflect.Int32:
		v.SetInt(int64(rng.Uint64()))
	case reflect.Uint64, reflect.Uint32, reflect.Uint16, reflect.Uint8:
		v.SetUint(rng.Uint64() >> (64 - v.Type().Bits()))
	default:
		t.Fatalf("a delivery has a %v, which the mail does not know", v.Type())
	}
}

// TestMail: every field of a delivery arrives as it was sent, however many deliveries a mailbox has.
func TestMail(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 5))
	var box mailbox
	for range 100 {
		sent := make([]sched.Delivery, 1+rng.IntN(20))
		for i := range sent {
			scramble(t, rng, reflect.ValueOf(&sent[i]).Elem())
			sent[i].Job.Ref.Seq = 0 // it is not sent
			if rng.IntN(2) == 0 {
				sent[i].Effect = sched.Assign
			}
			if wake := box.put(&sent[i], math.MaxInt); wake != (i == 0) {
				t.Fatalf("letter %d: wake is %v", i, wake)
			}
		}
		b := box.take()
		var got sched.Delivery // reused, as the reactor does
		for i := range sent {
			b = nextDelivery(b, &got)
			if sent[i].Effect != sched.Assign || len(sent[i].History) == 0 {
				sent[i].History = nil // of an assigned job alone
			}
			if !reflect.DeepEqual(got, sent[i]) {
				t.Fatalf("got  %+v\nwant %+v", got, sent[i])
			}
		}
		if len(b) > 0 || len(box.take()) > 0 {
			t.Fatalf("%d bytes are left", len(b))
		}
	}
}

// TestMailWhileReading: deliveries that are put while the mail is read neither change it nor get lost, and
// one of them wakes the reader.
func TestMailWhileReading(t *testing.T) {
	t.Parallel()
	const writers, each = 4, 5000
	var box mailbox
	wakes := make(chan struct{}, writers*each)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				if box.put(&sched.Delivery{To: sched.SessionID(w), Tag: uint64(i), Data: []byte("data")}, math.MaxInt) {
					wakes <- struct{}{}
				}
			}
		})
	}
	go func() { all.Wait(); close(wakes) }()
	var next [writers]uint64
	var d sched.Delivery
	for range wakes {
		for b := box.take(); len(b) > 0; {
			b = nextDelivery(b, &d)
			if d.Tag != next[d.To] || string(d.Data) != "data" {
				t.Fatalf("writer %d: letter %d came in place %d with %q", d.To, d.Tag, next[d.To], d.Data)
			}
			next[d.To]++
		}
	}
	if next != [writers]uint64{each, each, each, each} {
		t.Errorf("%v letters have arrived, want %d of each", next, each)
	}
}

// BenchmarkMailbox measures the cost of a delivery between two loops: put, and read again, a turn's worth
// at a time.
func BenchmarkMailbox(b *testing.B) {
	const turn = 64
	var box mailbox
	sent := sched.Delivery{To: 1, Effect: sched.Assign, Job: sched.Job{Queue: "function", Name: make([]byte, 12), Workload: make([]byte, 100)}}
	var got sched.Delivery
	b.ReportAllocs()
	for left := b.N; left > 0; left -= turn {
		for range min(left, turn) {
			box.put(&sent, math.MaxInt)
		}
		for mail := box.take(); len(mail) > 0; {
			mail = nextDelivery(mail, &got)
		}
	}
}

// TestFullMail: a large delivery without room reaches its session as an overflow. A small one always has
// room.
func TestFullMail(t *testing.T) {
	t.Parallel()
	const size = 290 << 10
	w := newMemServer(t, Options{MaxFrame: size, Gloom: GloomOptions{MaxFrame: size}, MaxOutbound: size, Loops: 2})
	large := sched.Delivery{To: 7, Effect: sched.Result, Data: make([]byte, size)}
	for range 20 {
		w.post(1, &large)
	}
	w.post(1, &sched.Delivery{To: 8, Effect: sched.Result, Data: []byte("small")})
	b := w.loops[1].inbox.take()
	if most := w.maxUnsent() + 2*size; len(b) > most {
		t.Errorf("the box has %d bytes, of %d", len(b), most)
	}
	var got sched.Delivery
	refused := 0
	for len(b) > 0 {
		if b = nextDelivery(b, &got); got.Effect == effectOverflow && got.To == 7 {
			refused++
		}
	}
	if refused == 0 || refused == 20 || got.To != 8 || string(got.Data) != "small" {
		t.Errorf("%d are refused, the last is for %d: %q", refused, got.To, got.Data)
	}
}
