package gloom

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"treadle/codec/jsontext"
	"treadle/codec/jsontext/jsontest"
)

// serverLimit is the server's default for the largest payload, in bytes.
const serverLimit = 64 << 20

// unhex turns a test's hex text, spaces allowed, into bytes.
func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatalf("bad hex in the test: %v", err)
	}
	return b
}

func TestNext(t *testing.T) {
	f := func(in string, limit int, want string, n int, err error) {
		t.Helper()
		payload, gotN, gotErr := Next(unhex(t, in), limit)
		if gotN != n || !errors.Is(gotErr, err) || !bytes.Equal(payload, unhex(t, want)) || (payload != nil) != (n > 0) {
			t.Fatalf("%s, limit %d: %x, %d, %v", in, limit, payload, gotN, gotErr)
		}
		if cap(payload) != len(payload) {
			t.Fatalf("%s: an append to the payload would write into the next frame", in)
		}
	}
	f("", 10, "", 0, nil)
	f("000000", 10, "", 0, nil)
	f("00000000", 10, "", 4, nil)
	f("00000000", 0, "", 4, nil)
	f("00000001", 10, "", 0, nil)
	f("00000001", 0, "", 0, ErrTooLarge)
	f("00000002 7b", 2, "", 0, nil)
	f("00000002 7b7d", 2, "7b7d", 6, nil)
	f("00000002 7b7d 00000003", 2, "7b7d", 6, nil)
	f("00000003 7b7d20", 2, "", 0, ErrTooLarge)
	f("00000000 00000002 7b7d", 2, "", 4, nil)
	f("00000100", 255, "", 0, ErrTooLarge)
	f("00010000", 65536, "", 0, nil)
	f("01000000", 1<<24, "", 0, nil)
	f("7fffffff", maxPayload, "", 0, nil)
	f("80000000", 1<<31-1, "", 0, ErrTooLarge)
	f("80000000", maxPayload, "", 0, nil)
	f("ffffffff", maxPayload-1, "", 0, ErrTooLarge)
	f("ffffffff", maxPayload, "", 0, nil)
	f("ffffff", 1, "", 0, nil) // not decided yet
}

func TestNextIsAView(t *testing.T) {
	in := unhex(t, "00000002 7b7d")
	payload, _, _ := Next(in, 10)
	in[4] = 'x'
	if string(payload) != "x}" {
		t.Fatalf("%q is a copy", payload)
	}
}

func TestNextLargePayload(t *testing.T) {
	in := make([]byte, HeaderLen+67108864)
	binary.BigEndian.PutUint32(in, 67108864)
	if payload, n, err := Next(in, serverLimit); len(payload) != 67108864 || n != len(in) || err != nil {
		t.Fatalf("at the limit: %d bytes, %d, %v", len(payload), n, err)
	}
	if payload, n, err := Next(in[:len(in)-1], serverLimit); payload != nil || n != 0 || err != nil {
		t.Fatalf("a byte short: %d bytes, %d, %v", len(payload), n, err)
	}
	binary.BigEndian.PutUint32(in, 67108865)
	if _, n, err := Next(in[:HeaderLen], serverLimit); n != 0 || !errors.Is(err, ErrTooLarge) {
		t.Fatalf("over the limit: %d, %v", n, err)
	}
}

func TestNeed(t *testing.T) {
	f := func(in string, want int) {
		t.Helper()
		if got := Need(unhex(t, in)); got != want {
			t.Fatalf("%s: %d, want %d", in, got, want)
		}
	}
	f("", 4)
	f("ffffff", 4)
	f("00000000", 4)
	f("00000001", 5)
	f("00000102 7b", 262)
	f("00000002 7b7d 00", 6)
	f("ffffffff", 4+maxPayload)
}

func TestNeedIsWhereNextDecides(t *testing.T) {
	in := AppendSubmit(nil, []byte(`"i"`), []byte(`"t"`), 0, []byte(`1`))
	for cut := range in {
		if _, n, err := Next(in[:cut], serverLimit); n != 0 || err != nil {
			t.Fatalf("cut at %d: %d, %v", cut, n, err)
		}
		if need := Need(in[:cut]); need <= cut || need != HeaderLen && need != len(in) {
			t.Fatalf("cut at %d of %d: needs %d", cut, len(in), need)
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	check := func(what string, do func()) {
		t.Helper()
		if n := testing.AllocsPerRun(100, do); n != 0 {
			t.Errorf("%s allocates %v times", what, n)
		}
	}
	buffer := make([]byte, 0, 4096)
	endless := unhex(t, "ffffffff")
	for what, payload := range map[string]string{"a submit": string(benchmarkSubmit), "nested": `{"body":` + jsontest.Nested(5000) + `}`,
		"escaped keys": `{"\u0061ction":"\u0073ubmit","\u0069d":"\ud83d\ude00","\\":1}`, "no object": `[1]`, "invalid": `{"action":`,
		"too deep": jsontest.Nested(jsontext.MaxNesting + 1), "not UTF-8": "{\"a\":\"\xff\"}"} {
		in := frame([]byte(payload))
		check("Next of "+what, func() { Next(in, serverLimit) })
		check("Next of a part of "+what, func() { Next(in[:len(in)-1], serverLimit) })
		check("Parse of "+what, func() { var m Message; Parse(in[HeaderLen:], &m); Action(&m); jsontext.Integer(m.Priority) })
		check("ParseReply of "+what, func() { var r Reply; ParseReply(in[HeaderLen:], &r) })
		check("Valid of "+what, func() { jsontext.Valid(in[HeaderLen:]) })
		check("AppendValue of "+what, func() { jsontext.AppendValue(make([]byte, 0, 30000), in[HeaderLen:]) })
	}
	check("Next of 4 GiB", func() { Next(endless, serverLimit); Next(endless, maxPayload); Need(endless) })
	id, typ, body := []byte(`"i\u0064"`), []byte(`"echo"`), benchmarkSubmit
	check("the server's frames", func() {
		buffer = AppendOK(buffer[:0])
		buffer = AppendSubmitted(buffer, id)
		buffer = AppendJob(buffer, id, typ, body)
		buffer = AppendResponse(buffer, id, body)
		buffer = AppendError(buffer, MissingField, []byte(`"job_type"`))
		buffer = AppendInvalid(buffer, body)
		buffer = AppendTooLarge(buffer)
	})
	check("the client's frames", func() {
		buffer = AppendJoin(buffer[:0], typ)
		buffer = AppendSubmit(buffer, id, typ, -7, body)
		buffer = AppendRespond(buffer, body)
	})
	check("Text", func() { jsontext.Text(buffer[:0], id); jsontext.Text(nil, typ) })
	check("AppendText", func() { buffer = jsontext.AppendText(buffer[:0], body) })
	check("a value in base64", func() { buffer, _ = jsontext.AppendValue(buffer[:0], endless) })
}
