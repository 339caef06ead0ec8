package dwork

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// flat writes a file as tkrzw does.
func flat(records ...string) []byte {
	count := strconv.Itoa(len(records) / 2)
	head := "\x05class\x07TinyDBM\x0bnum_records" + string(rune(len(count))) + count
	out := append([]byte{flatMetadata, byte(len(head))}, head...)
	for _, r := range records {
		out = append(out, flatRecord)
		if len(r) >= 128 {
			out = append(out, byte(len(r)>>7|0x80))
		}
		out = append(append(out, byte(len(r)&0x7f)), r...)
	}
	return out
}

// numbers are eight bytes each.
func numbers(all ...int64) string {
	var out []byte
	for _, n := range all {
		out = binary.BigEndian.AppendUint64(out, uint64(n))
	}
	return string(out)
}

// shown is a graph in a line, in the order in which it would be made.
func shown(s Saved) string {
	order, stuck := s.Order()
	var out []string
	for _, i := range append(order, stuck...) {
		text := string(s.Tasks[i].Name)
		for _, before := range s.Tasks[i].After {
			text += "<" + string(s.Tasks[before].Name)
		}
		out = append(out, text)
	}
	return fmt.Sprintf("%s edges=%d stuck=%d odd=%d", strings.Join(out, " "), s.Edges, len(stuck), s.Unpaired)
}

// TestReadSaved reads files that tkrzw's TinyDBM has written, with the graph of t1 to t5 in which each waits for its
// half and its third, and graphs that only a hub in trouble leaves.
func TestReadSaved(t *testing.T) {
	f := func(names, tasks []byte, want string) {
		t.Helper()
		got, err := ReadSaved(names, tasks)
		if err != nil {
			t.Fatal(err)
		}
		if text := shown(got); text != want {
			t.Errorf("got  %s\nwant %s", text, want)
		}
	}
	var files [2][]byte
	for i, end := range []string{SavedNames, SavedTasks} {
		var err error
		if files[i], err = os.ReadFile("testdata/saved/six" + end); err != nil {
			t.Fatal(err)
		}
	}
	x := strings.Repeat("x", 300)
	onions := "chop \"onions\"\n"
	f(files[0], files[1], "t0 t1<t0 "+onions+"<t0<t1 "+x+"<t1 t4<t1<"+onions+" t5<t1<"+onions+" edges=8 stuck=0 odd=0")

	f(flat(), flat(), " edges=0 stuck=0 odd=0")
	// b is younger than what it comes before; c waits for a twice, and for one that is not there.
	f(flat("a", numbers(9), "b", numbers(3), "c", numbers(4)),
		flat(numbers(9), numbers(0, 3, 4, 4, 77), numbers(3), numbers(1), numbers(4), numbers(2)), "a b<a c<a edges=2 stuck=0 odd=0")
	// b is assigned, or was made again: it waits for none, whatever a says. c is complete; d has no name, e nothing
	// else.
	f(flat("a", numbers(1), "b", numbers(2), "c", numbers(3), "e", numbers(5)),
		flat(numbers(1), numbers(0, 2, 3), numbers(2), numbers(0), numbers(3), "", numbers(4), numbers(-1)), "a b edges=0 stuck=0 odd=3")
	// b and c wait for each other, d for c, s for itself.
	f(flat("a", numbers(1), "b", numbers(2), "c", numbers(3), "d", numbers(4), "s", numbers(5)),
		flat(numbers(1), numbers(0, 2), numbers(2), numbers(2, 3), numbers(3), numbers(1, 2, 4), numbers(4), numbers(1), numbers(5), numbers(1, 5)),
		"a b<a<c c<b d<c s<s edges=5 stuck=4 odd=0")
}

// TestReadSavedBroken: a file that was cut anywhere, or is another's, is refused by its name.
func TestReadSavedBroken(t *testing.T) {
	whole := flat("a", numbers(1), strings.Repeat("b", 200), numbers(2))
	for n := range whole {
		if _, err := ReadSaved(whole[:n], flat()); err == nil || !strings.HasPrefix(err.Error(), "_th.flat: not a whole file") {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	f := func(names, tasks []byte, want string) {
		t.Helper()
		if _, err := ReadSaved(names, tasks); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f(flat("a", "1"), flat(), "_th.flat: not")
	f(flat("a", numbers(1), "b", numbers(1)), flat(), "two tasks have one number")
	f(whole, flat("1", numbers(0)), "_tasks.flat: not")
	f(whole, flat(numbers(1), "123"), "_tasks.flat: not")
	f(whole, nil, "_tasks.flat: not a whole file of records, as the original hub saves when it is stopped, at byte 0")
	f(slices.Concat(flat("a", numbers(1)), whole[len(flat()):]), flat(), "3 of 1 records")
	f([]byte("\xfe\x00"), flat(), "no number of records")
	f([]byte("\xfe\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), flat(), "at byte 0")
}
