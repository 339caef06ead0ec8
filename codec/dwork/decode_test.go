package dwork

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"treadle/codec/dwork/dworkpb"
)

const aTask = ` task { name: "a" origin: "h" } `

// TestRequests goes through the page's validation: what each type must and may have.
func TestRequests(t *testing.T) {
	f := func(message, want string) {
		t.Helper()
		var q Query
		got := ""
		if err := Decode(text(t, message), &q); err != nil {
			got = strings.TrimPrefix(err.Error(), "dwork: ")
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", message, got, want)
		}
	}
	f(`type: Create`+aTask, "")
	f(`type: Create`+aTask+aTask, "")
	f(`type: Create`, "Create without tasks")
	f(`type: Create name: ""`+aTask, "Create with name")
	f(`type: Create n: 0`+aTask, "Create with n")
	f(`type: Create location: ""`+aTask, "Create with location")

	for _, kind := range []string{"Complete", "Transfer"} {
		f(`type: `+kind+` location: "w"`+aTask, "")
		f(`type: `+kind+` location: ""`+aTask, "") // present, though empty
		f(`type: `+kind+` location: "w"`, kind+" without tasks")
		f(`type: `+kind+aTask, kind+" without location")
		f(`type: `+kind+` location: "w" name: "x"`+aTask, kind+" with name")
		f(`type: `+kind+` location: "w" n: 1`+aTask, kind+" with n")
	}

	f(`type: Steal location: "w"`, "")
	f(`type: Steal location: ""`, "")
	f(`type: Steal location: "w" n: -1`, "")
	f(`type: Steal`, "Steal without location")
	f(`type: Steal n: 1`, "Steal without location")
	f(`type: Steal location: "w"`+aTask, "Steal with tasks")
	f(`type: Steal location: "w" name: "x"`, "Steal with name")

	f(`type: Exit location: "w"`, "")
	f(`type: Exit`, "Exit without location")
	f(`type: Exit location: "w" n: 1`, "Exit with n")
	f(`type: Exit location: "w" name: "w"`, "Exit with name")
	f(`type: Exit location: "w"`+aTask, "Exit with tasks")

	f(`type: OK`, "")
	f(`type: OK location: "w"`, "OK with location")
	f(`type: OK name: "w"`, "OK with name")
	f(`type: OK n: 1`, "OK with n")
	f(`type: OK`+aTask, "OK with tasks")

	f(`type: Lookup name: "x"`, "")
	f(`type: Lookup`, "Lookup without name")
	f(`type: Lookup name: "x" location: "w"`, "Lookup with location")
	f(`type: Lookup name: "x" n: 1`, "Lookup with n")
	f(`type: Lookup name: "x"`+aTask, "Lookup with tasks")

	f(`type: NotFound`, "NotFound is no request")
	f(`type: Error`, "Error is no request")
}

// TestReplies is the same for what a server sends.
func TestReplies(t *testing.T) {
	f := func(message, want string) {
		t.Helper()
		var q Query
		got := ""
		if err := DecodeReply(text(t, message), &q); err != nil {
			got = strings.TrimPrefix(err.Error(), "dwork: ")
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", message, got, want)
		}
	}
	f(`type: OK`, "")
	f(`type: OK name: "dhub" n: 3`, "")
	f(`type: OK location: "w"`+aTask, "")
	f(`type: Transfer`+aTask, "")
	f(`type: Transfer`, "Transfer without tasks")
	f(`type: Transfer location: "w"`+aTask, "Transfer with location")
	f(`type: NotFound`, "")
	f(`type: NotFound`+aTask, "")
	f(`type: NotFound name: "a"`, "NotFound with name")
	f(`type: Exit`, "")
	f(`type: Exit location: "w"`, "Exit with location")
	f(`type: Error`, "")
	f(`type: Error name: "why"`, "Error with name")
	for _, kind := range []string{"Create", "Steal", "Complete", "Lookup"} {
		f(`type: `+kind, kind+" is no reply")
	}
}

// raw builds a message that protobuf's own encoder refuses to.
func raw(pieces ...any) (b []byte) {
	for _, p := range pieces {
		switch p := p.(type) {
		case int:
			b = append(b, byte(p))
		case string:
			b = protowire.AppendString(b, p)
		case []byte:
			b = protowire.AppendBytes(b, p)
		}
	}
	return b
}

func TestMalformed(t *testing.T) {
	f := func(payload []byte, want error) {
		t.Helper()
		var q Query
		if err := Decode(payload, &q); err != want {
			t.Errorf("%x: got %v, want %v", payload, err, want)
		}
	}
	const kind, create, task = 1 << 3, 0, 2<<3 | 2
	const name, origin, pred, succ, log = 1<<3 | 2, 2<<3 | 2, 4<<3 | 2, 5<<3 | 2, 6<<3 | 2
	sound := raw(name, "a", origin, "h")
	with := func(field int, part []byte) []byte {
		return raw(kind, create, task, append(raw(field, part), sound...))
	}

	f(nil, errNoType)
	f(raw(task, sound), errNoType)
	f(raw(kind, create, task, sound), nil)
	f(raw(kind, 9, task, sound), errUnknownType)
	f(raw(kind, 0x80, 0x80, 0x80, 0x80, 0x10, task, sound), nil)                                                        // 1<<32 is cut to 0, as in protobuf
	f(raw(kind, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01), errUnknownType)                            // -1
	f(raw(kind, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02), errWire)                                   // more than 64 bits
	f(raw(1<<3|2, "\x00"), errNoType)                                                                                   // a type of another kind
	f(raw(kind, create, task, raw(name, "a")), errNoOrigin)                                                             //
	f(raw(kind, create, task, raw(origin, "h")), errNoTaskName)                                                         //
	f(raw(kind, create, task, sound[:len(sound)-1]), errWire)                                                           // its length ends in a field
	f(raw(kind, create, task, 0x7f), errWire)                                                                           // its length goes beyond the end
	f(raw(kind, create, task, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f), errWire)                           // 2^63-1 bytes
	f(with(pred, raw(name, "b")), nil)                                                                                  //
	f(with(pred, raw(origin, "b")), errNoDepName)                                                                       // a location alone
	f(with(pred, raw(name)), errWire)                                                                                   //
	f(with(succ, raw(name, "b", origin, "")), nil)                                                                      //
	f(with(succ, nil), errNoDepName)                                                                                    //
	f(with(log, raw(kind, 1, 2<<3, 7)), nil)                                                                            //
	f(with(log, raw(2<<3, 7)), errNoState)                                                                              //
	f(with(log, raw(kind, 1)), errNoTime)                                                                               //
	f(with(log, raw(kind, 8, 2<<3, 7)), errUnknownState)                                                                //
	f(with(log, raw(kind, 1, 2<<3)), errWire)                                                                           //
	f(raw(kind, create, 0, 1, task, sound), errWire)                                                                    // field 0
	f(raw(kind, create, 0x80, 0x80, 0x80, 0x80, 0x10, 1, task, sound), errWire)                                         // field 1<<29
	f(raw(kind, create, 5<<3|4, task, sound), errWire)                                                                  // the end of no group
	f(raw(kind, create, 5<<3|6, task, sound), errWire)                                                                  // kind 6
	f(raw(kind, create, 5<<3|3, 1<<3, 7, 6<<3|4, task, sound), errWire)                                                 // another group's end
	f(raw(kind, create, 5<<3|3, 1<<3, 7, 5<<3|4, task, sound, 7<<3|5, 1, 2, 3, 4, 3<<3|1, 1, 2, 3, 4, 5, 6, 7, 8), nil) // unknown fields
}

// TestCut cuts a message that has everything at every byte: only between two fields of the message itself may the rest
// still be one.
func TestCut(t *testing.T) {
	whole := text(t, everything)
	ends := map[int]bool{}
	for f := (fields{rest: whole}); f.next(); {
		ends[len(whole)-len(f.rest)] = true
	}
	for i := range whole {
		var q Query
		if err := q.parse(bytes.Clone(whole[:i]), maxFields); (err == nil) != ends[i] {
			t.Errorf("cut at %d of %d: %v", i, len(whole), err)
		}
	}
	if len(ends) != 6 {
		t.Errorf("%d fields, want 6", len(ends))
	}
}

const everything = `type: OK ` +
	`task { name: "a" origin: "h" pred { name: "p" } pred { name: "q" location: "" } succ { name: "s" location: "w" } ` +
	`log { state: Stolen time: 1795239303402178 } log { state: Recorded time: -1 } } ` +
	`task { name: "" origin: "" } name: "" n: -2147483648 location: ""`

// TestUnknownFields puts fields that nobody knows everywhere: the message is read as without them.
func TestUnknownFields(t *testing.T) {
	unknown := raw(1<<3|5, 0, 0, 0, 0, 3<<3|2, "", 9<<3|3, 9<<3|4, 9<<3|2, "task", 0xf8, 0x7f, 1)
	dep := append(raw(1<<3|2, "p"), unknown...)
	log := append(raw(1<<3, 1, 2<<3, 7), unknown...)
	task := append(append(bytes.Clone(unknown), raw(1<<3|2, "a", 4<<3|2, dep, 6<<3|2, log, 2<<3|2, "h")...), unknown...)
	// The message itself knows field 3, a name.
	in := raw(5<<3|2, "x", 2<<3|2, task, 2<<3, 7, 9<<3|3, 9<<3|4, 1<<3, 0)
	var q Query
	if err := Decode(in, &q); err != nil {
		t.Fatal(err)
	}
	want := text(t, `type: Create task { name: "a" origin: "h" pred { name: "p" } log { state: Stolen time: 7 } }`)
	if got := rewrite(nil, &q); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

// TestManyFields refuses a request of one field more than it may have, wherever they stand, and no reply for that.
func TestManyFields(t *testing.T) {
	f := func(what string, most int, task func(n int) []byte) {
		t.Helper()
		var q Query
		if err := Decode(raw(1<<3, 0, 2<<3|2, task(most)), &q); err != nil {
			t.Errorf("%s, as many as there may be: %v", what, err)
		}
		more := task(most + 1)
		if err := Decode(raw(1<<3, 0, 2<<3|2, more), &q); err != errFields {
			t.Errorf("%s, one more: %v", what, err)
		}
		if err := DecodeReply(raw(1<<3, 3, 2<<3|2, more), &q); err != nil {
			t.Errorf("%s, in a reply: %v", what, err)
		}
	}
	name := raw(1<<3|2, "a", 2<<3|2, "h")
	const rest = maxFields - 4 // behind the type, the task and these two
	many := func(n int, field ...any) []byte { return bytes.Repeat(raw(field...), n) }
	f("unknown fields", rest, func(n int) []byte { return append(many(n, 15<<3, 1), name...) })
	f("successors", rest/2, func(n int) []byte { return append(many(n, 5<<3|2, raw(1<<3|2, "s")), name...) })
	f("log entries", rest/3, func(n int) []byte { return append(many(n, 6<<3|2, raw(1<<3, 1, 2<<3, 7)), name...) })
	f("a dependency's", rest-2, func(n int) []byte {
		return append(raw(4<<3|2, append(many(n, 15<<3, 1), raw(1<<3|2, "p")...)), name...)
	})
	f("a log entry's", rest-3, func(n int) []byte {
		return append(raw(6<<3|2, append(many(n, 15<<3, 1), raw(1<<3, 1, 2<<3, 7)...)), name...)
	})
	f("a group's", rest-1, func(n int) []byte {
		return append(append(append(raw(9<<3|3), many(n, 15<<3, 1)...), raw(9<<3|4)...), name...)
	})
}

// TestLastCounts reads fields that may be there once and are there twice.
func TestLastCounts(t *testing.T) {
	in := raw(1<<3, 0, 6<<3|2, "v", 4<<3, 1, 6<<3|2, "w", 4<<3, 2, 1<<3, 1)
	var q Query
	if err := Decode(in, &q); err != nil || q.Type != Steal || string(q.Location) != "w" || q.N != 2 {
		t.Errorf("got %v, %+v", err, q)
	}
}

// TestReuse decodes over a message that had everything: nothing of it is left.
func TestReuse(t *testing.T) {
	var q Query
	if err := q.parse(text(t, everything), maxFields); err != nil || q.Count != 2 {
		t.Fatal(err, q.Count)
	}
	if err := Decode(text(t, `type: OK`), &q); err != nil || q.Count != 0 || q.Name != nil || q.Location != nil || q.HasN || q.N != 0 {
		t.Errorf("got %v, %+v", err, q)
	}
	for task := range q.Tasks {
		t.Errorf("a task %q", task.Name)
	}
}

// TestRangesLeftEarly leaves each range after the first.
func TestRangesLeftEarly(t *testing.T) {
	var q Query
	if err := q.parse(text(t, everything), maxFields); err != nil {
		t.Fatal(err)
	}
	seen := ""
	for task := range q.Tasks {
		for d := range task.Pred {
			seen += string(d.Name)
			break
		}
		for e := range task.Log {
			seen += e.State.String()
			break
		}
		break
	}
	if seen != "pStolen" {
		t.Errorf("got %q", seen)
	}
}

// TestNumbers holds the constants and their names to the generated code.
func TestNumbers(t *testing.T) {
	for number, name := range dworkpb.QueryMsg_Type_name {
		if got := Type(number).String(); got != name {
			t.Errorf("type %d is %s, want %s", number, got, name)
		}
	}
	for number, name := range dworkpb.TaskMsg_State_name {
		if got := State(number).String(); got != name {
			t.Errorf("state %d is %s, want %s", number, got, name)
		}
	}
	if len(dworkpb.QueryMsg_Type_name) != len(typeNames) || len(dworkpb.TaskMsg_State_name) != len(stateNames) {
		t.Error("a type or a state is missing")
	}
	if got := fmt.Sprint(Type(-1), Type(9), State(-1), State(8)); got != "unknown type unknown type unknown state unknown state" {
		t.Error(got)
	}
}
