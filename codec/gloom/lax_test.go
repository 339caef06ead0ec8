package gloom

import (
	"errors"
	"strings"
	"testing"
)

func TestParseLax(t *testing.T) {
	f := func(payload string, want Message) {
		t.Helper()
		if err := Parse([]byte(payload), &Message{}); !errors.Is(err, ErrInvalidJSON) {
			t.Fatalf("%q: Parse says %v", payload, err)
		}
		var m Message
		if err := ParseLax([]byte(payload), 1<<10, &m); err != nil || !sameMessage(&m, &want) {
			t.Fatalf("%q: %v, %s, want %s", payload, err, describe(&m), describe(&want))
		}
	}
	b := func(text string) []byte { return []byte(text) }
	f("{\"body\":\"a\nb\"}", Message{Body: b(`"a\nb"`)})
	f("{\"body\":\"\b\f\n\r\t\"}", Message{Body: b(`"\b\f\n\r\t"`)})
	f("{\"body\":\"\x00\x01\x1f\x7f\"}", Message{Body: b(`"\u0000\u0001\u001f` + "\x7f\"")})
	f("{\n\t\"id\" : \"\t\",\r\n\"type\":\"x\",\"x\ny\":[{\"\n\":1}]}", Message{ID: b(`"\t"`), Type: b(`"x"`)})
	f("{\"body\":\"\\\"\n\\\\\",\"id\":\"\\\\\n\"}", Message{Body: b(`"\"\n\\"`), ID: b(`"\\\n"`)})
	f("{\"action\":\"subm\nit\"}", Message{Action: b(`"subm\nit"`)})
}

// TestParseLaxRefuses: nothing else is forgiven, and what Parse takes is taken as it is.
func TestParseLaxRefuses(t *testing.T) {
	f := func(payload string, limit int, want error) {
		t.Helper()
		if err := ParseLax([]byte(payload), limit, &Message{}); !errors.Is(err, want) {
			t.Errorf("%.40q, limit %d: %v, want %v", payload, limit, err, want)
		}
	}
	f("{\"body\":\"\\\n\"}", 100, ErrInvalidJSON) // no escape is written so
	f("{\"body\":\"\n}", 100, ErrInvalidJSON)
	f("{\"body\":\"\n\",}", 100, ErrInvalidJSON)
	f("{\"body\":\x01}", 100, ErrInvalidJSON)
	f("{\"body\":\"\n\xff\"}", 100, ErrInvalidJSON)
	f("\"\n\"", 100, ErrNotObject)
	f("{}", 0, nil)
	f("{\"body\":\"\n\"}", 13, nil)
	f("{\"body\":\"\n\"}", 12, ErrInvalidJSON)
	f("{\"body\":\""+strings.Repeat("\x01", 100)+"\"}", 610, ErrInvalidJSON)
	f("{\"body\":\""+strings.Repeat("\x01", 100)+"\"}", 611, nil)
}
