package periodic

import (
	"slices"
	"strings"
	"testing"
)

// TestStatusRoundTrip checks that lines of each form are read as they were written, whatever is in the names.
func TestStatusRoundTrip(t *testing.T) {
	for form, want := range map[StatusForm]string{
		StatusPlain: ",1,2,3,8", StatusCRC: ",1,2,3,4,8", StatusDetails: ",1,2,3,4,5,6,8", StatusAllCounts: ",1,2,3,4,5,6,7,8",
	} {
		var text []byte
		var lines []StatusLine
		for i, name := range []string{"f", "", "a,b", "a\nb\n", "7,1"} {
			l := StatusLine{Func: name, Counts: [statusCounts]int64{1, 2, 3, 4, 5, 6, 7}, SchedAt: 8}
			if i > 0 {
				text = append(text, '\n')
			}
			start := len(text)
			text = AppendStatusLine(text, &l, form)
			if got := string(text[start:]); got != name+want {
				t.Errorf("form %d: %q is written, want %q", form, got, name+want)
			}
			clear(l.Counts[form:])
			lines = append(lines, l)
		}
		if got, err := ParseStatus(string(text), form); err != nil || !slices.Equal(got, lines) {
			t.Errorf("form %d: got %+v, %v; want %+v", form, got, err, lines)
		}
	}
}

// TestStatusMalformed checks that a text that does not end with a whole line is an error.
func TestStatusMalformed(t *testing.T) {
	for _, text := range []string{"f", "f,1,2,3", "f,1,2,3,x", "f,1,2,3,4\ng", "f,1,2,3,99999999999999999999"} {
		if lines, err := ParseStatus(text, StatusPlain); err == nil || !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("%q was read as %v, %v", text, lines, err)
		}
	}
}
