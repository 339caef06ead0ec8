package kts46

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

func call(values string) string {
	return "<methodCall><methodName>m</methodName><params><param><value>" + values + "</value></param></params></methodCall>"
}

func TestReadValues(t *testing.T) {
	f := func(values string, want any) {
		t.Helper()
		c, err := ReadCall(strings.NewReader(call(values)))
		if err != nil || c.Method != "m" || !reflect.DeepEqual(c.Params, []any{want}) {
			t.Errorf("%s: %#v, %v, want %#v", values, c, err, want)
		}
	}
	f("<string>a &lt;b&gt; &amp; &#233;\n</string>", "a <b> & é\n")
	f(" bare text ", " bare text ")
	f("", "")
	f("<string/>", "")
	f("<string><![CDATA[<x>]]></string>", "<x>")
	f("a<!-- no part of it -->b", "ab")
	f("\n <int> -7 </int>\n", int64(-7))
	f("<i4>7</i4>", int64(7))
	f("<i8>9000000000</i8>", int64(9000000000))
	f("<double>0.25</double>", 0.25)
	f("<boolean>1</boolean>", true)
	f("<boolean>0</boolean>", false)
	f("<nil/>", nil)
	f("<base64>\nYSA8Yj4g\n w6k=\n</base64>", "a <b> é")
	f("<dateTime.iso8601>20110105T01:48:24</dateTime.iso8601>", DateTime("20110105T01:48:24"))
	f("<array><data></data></array>", []any{})
	f("<array><data><value><int>1</int></value><value>x</value></data></array>", []any{int64(1), "x"})
	f("<struct><member><name>a</name><value><nil/></value></member></struct>", Struct{{"a", nil}})
	f(nested(maxDepth), nestedValue(maxDepth))
}

func nested(depth int) string {
	return strings.Repeat("<array><data><value>", depth) + "x" + strings.Repeat("</value></data></array>", depth)
}

func nestedValue(depth int) any {
	var v any = "x"
	for range depth {
		v = []any{v}
	}
	return v
}

func TestReadHeaders(t *testing.T) {
	for _, header := range []string{
		"", "<?xml version='1.0'?>\n", `<?xml version="1.0" encoding="UTF-8"?>`, `<?xml version="1.0" encoding="us-ascii"?>`, "<!-- hi -->\n", "\ufeff<?xml version='1.0'?>\n", "\ufeff",
	} {
		c, err := ReadCall(strings.NewReader(header + "<methodCall><methodName> hello </methodName></methodCall>\n"))
		if err != nil || c.Method != "hello" || len(c.Params) != 0 {
			t.Errorf("%q: %#v, %v", header, c, err)
		}
	}
}

func TestReadLatin1(t *testing.T) {
	for _, name := range []string{"iso-8859-1", "ISO-8859-1", "latin-1"} {
		text := "<?xml version='1.0' encoding='" + name + "'?>\n" + call("<string>s\xfcd \xff\x80&#1078;</string>")
		c, err := ReadCall(strings.NewReader(text))
		if err != nil || !reflect.DeepEqual(c.Params, []any{"süd ÿ\u0080ж"}) {
			t.Errorf("%s: %#v, %v", name, c, err)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	f := func(text, says string) {
		t.Helper()
		c, err := ReadCall(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.200s: %#v, %v, want an error that says %q", text, c, err, says)
		}
	}
	f("", "unexpected EOF")
	f("not xml", "no place")
	f("<methodCall>", "unexpected EOF")
	f("<methodCall></methodCall>", "no method")
	f("<methodCall>\ufeff<methodName>m</methodName></methodCall>", "no place")
	f("<!-- hi -->\ufeff<methodCall><methodName>m</methodName></methodCall>", "no place")
	f("<methodCall><params/></methodCall>", "params")
	f("<methodResponse/>", "methodResponse")
	f("<methodCall><methodName>m</methodName></methodCall><methodCall/>", "no place")
	f("<methodCall><methodName>m</methodName></methodCall>x", "no place")
	f("<methodCall><methodName>m</methodName><methodName>n</methodName></methodCall>", "no place")
	f("<methodCall><methodName>m</methodName><params><param/></params></methodCall>", "no value")
	f(`<?xml version="1.0" encoding="utf-16"?><methodCall/>`, "neither UTF-8")
	f(`<?xml version="1.1"?><methodCall/>`, "version")
	f(call("<int>1"), "syntax")
	f(call("<int>1.5</int>"), "no whole number")
	f(call("<int>99999999999999999999</int>"), "no whole number")
	f(call("<boolean>true</boolean>"), "no truth value")
	f(call("<double>NaN</double>"), "no number")
	f(call("<base64>aG*=</base64>"), "no base64")
	f(call("<bytes>aGk=</bytes>"), "not known")
	f(call("<int>1</int><int>2</int>"), "no place")
	f(call("x<int>1</int>"), "no place")
	f(call("<nil>x</nil>"), "no place")
	f(call("<array><value>1</value></array>"), "no place")
	f(call("<struct><member><name>a</name></member></struct>"), "lacks")
	f(call("<struct><member><value>a</value></member></struct>"), "lacks")
	f(call("<string>\x01</string>"), "illegal character")
	f(call("<string>\xff</string>"), "UTF-8")
	f(call("<string>&nbsp;</string>"), "entity")
	f(call(nested(maxDepth+1)), errLimit.Error())
	f(call("<array><data>"+strings.Repeat("<value/>", maxValues)+"</data></array>"), errLimit.Error())
}

// TestRecodings: a text is read in another encoding once. Each time it would grow, and again wherever it says that it
// is to be.
func TestRecodings(t *testing.T) {
	header := `<?xml version="1.0" encoding="iso-8859-1"?>`
	if c, err := ReadCall(strings.NewReader(strings.Repeat(header, 20) + call("\xe9"))); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("%d bytes of method %q, %v", len(fmt.Sprint(c.Params)), c.Method, err)
	}
}

// TestEntityBombs: no entity can be defined, so none can grow.
func TestEntityBombs(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("<?xml version='1.0'?><!DOCTYPE x [<!ENTITY e0 'ha'>")
	for i := range 20 {
		fmt.Fprintf(&bomb, "<!ENTITY e%d '&e%d;&e%d;'>", i+1, i, i)
	}
	bomb.WriteString("]>" + call("&e20;"))
	for _, text := range []string{
		bomb.String(),
		"<!DOCTYPE x SYSTEM 'file:///etc/passwd'>" + call("&x;"),
		"<methodCall><!ENTITY a 'b'><methodName>m</methodName></methodCall>",
	} {
		if c, err := ReadCall(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "document type") {
			t.Errorf("%.80s: %#v, %v", text, c, err)
		}
	}
}

func TestReadAnswer(t *testing.T) {
	f := func(text, says string) {
		t.Helper()
		if v, err := ReadAnswer(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, %v", text, v, err)
		}
	}
	f("<methodResponse/>", "empty")
	f("<methodResponse><params/></methodResponse>", "0 values")
	f("<methodResponse><fault><value>x</value></fault></methodResponse>", "says nothing")
	f("<methodCall/>", "no place")
	_, err := ReadAnswer(strings.NewReader(string(AppendFault(nil, &Fault{3, "<no>"}))))
	var fault *Fault
	if !errors.As(err, &fault) || *fault != (Fault{3, "<no>"}) {
		t.Errorf("a fault came back as %v", err)
	}
}

// TestWriteText: what XML has no place for does not make the answer unreadable.
func TestWriteText(t *testing.T) {
	for text, want := range map[string]string{"a\rb\tc\n": "a\rb\tc\n", "\x00\x1b": "\ufffd\ufffd", "\xff": "\ufffd", "\ufffe": "\ufffd", "😀]]>": "😀]]>"} {
		v, err := ReadAnswer(strings.NewReader(string(AppendAnswer(nil, text))))
		if err != nil || v != want {
			t.Errorf("%q came back as %q, %v; want %q", text, v, err, want)
		}
	}
}

// TestWriteDoubles: numbers are written as Python writes them.
func TestWriteDoubles(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.0", 36000: "36000.0", 3600000: "3600000.0", -1: "-1.0", 0.25: "0.25", 1e-4: "0.0001", 1e-5: "1e-05",
		1e15: "1000000000000000.0", 1e16: "1e+16", 1.5e300: "1.5e+300", math.NaN(): "nan", math.Inf(1): "inf", math.Inf(-1): "-inf",
	} {
		if got := string(AppendAnswer(nil, v)); !strings.Contains(got, "<double>"+want+"</double>") {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
}

func TestDateTime(t *testing.T) {
	want := time.Date(2011, 1, 5, 1, 48, 24, 0, time.UTC)
	for text, fraction := range map[DateTime]time.Duration{
		"20110105T01:48:24": 0, "20110105T01:48:24Z": 0, "2011-01-05T01:48:24": 0, "2011-01-05T01:48:24Z": 0,
		"20110105T01:48:24.720627": 720627 * time.Microsecond, "2011-01-05T01:48:24.5Z": 500 * time.Millisecond,
	} {
		if got, ok := text.Time(); !ok || !got.Equal(want.Add(fraction)) {
			t.Errorf("%s is %v, %v", text, got, ok)
		}
	}
	for _, text := range []DateTime{"", "abc", "5", "20110105", "20111305T01:48:24", "20110105 01:48:24", "20110105T01:48:24+01:00"} {
		if got, ok := text.Time(); ok {
			t.Errorf("%q is %v", text, got)
		}
	}
	zone := time.FixedZone("x", 3600)
	if got := NewDateTime(want.Add(999 * time.Millisecond).In(zone)); got != "20110105T01:48:24" {
		t.Error(got)
	}
	if got := Sig(want.In(zone)); got != "2011-01-05T01:48:24.000Z" {
		t.Error(got)
	}
}
