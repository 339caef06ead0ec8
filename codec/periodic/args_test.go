package periodic

import (
	"bytes"
	"testing"
)

// mustPanic checks that do panics with a text that says whose fault it is.
func mustPanic(t *testing.T, do func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if text, ok := recover().(string); !ok || text[:4] != "BUG:" {
			t.Fatalf("no BUG panic: %q", text)
		}
	}()
	do()
}

func TestStr8(t *testing.T) {
	f := func(in, s, rest string, want bool) {
		t.Helper()
		got, left, ok := Str8([]byte(in))
		if string(got) != s || string(left) != rest || ok != want || cap(got) != len(got) {
			t.Fatalf("%q: %q, %q, %v", in, got, left, ok)
		}
	}
	f("\x00", "", "", true)
	f("\x01ab", "a", "b", true)
	f("\x03abc", "abc", "", true)
	f("\x03ab", "", "\x03ab", false)
	f("\xff", "", "\xff", false)
	f("", "", "", false)
}

func TestIntegers(t *testing.T) {
	in := unhex(t, "ff fe fd fc fb fa f9 f8 07")
	if v, rest, ok := Int64(in); v != -0x0001020304050608 || !bytes.Equal(rest, in[8:]) || !ok {
		t.Fatalf("Int64: %d, %x, %v", v, rest, ok)
	}
	if v, rest, ok := Uint32(in); v != 0xfffefdfc || !bytes.Equal(rest, in[4:]) || !ok {
		t.Fatalf("Uint32: %d, %x, %v", v, rest, ok)
	}
	if v, rest, ok := Int16(in); v != -2 || !bytes.Equal(rest, in[2:]) || !ok {
		t.Fatalf("Int16: %d, %x, %v", v, rest, ok)
	}
	if v, rest, ok := Int64(in[:7]); v != 0 || len(rest) != 7 || ok {
		t.Fatalf("Int64 of 7 bytes: %d, %x, %v", v, rest, ok)
	}
	if v, rest, ok := Uint32(in[:3]); v != 0 || len(rest) != 3 || ok {
		t.Fatalf("Uint32 of 3 bytes: %d, %x, %v", v, rest, ok)
	}
	if v, rest, ok := Int16(in[:1]); v != 0 || len(rest) != 1 || ok {
		t.Fatalf("Int16 of 1 byte: %d, %x, %v", v, rest, ok)
	}
}

func TestAppendStrings(t *testing.T) {
	f := func(got []byte, want string) {
		t.Helper()
		if string(got) != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	long := bytes.Repeat([]byte("x"), 256)
	f(AppendStr8([]byte("a"), []byte("bc")), "a\x02bc")
	f(AppendStr8(nil, nil), "\x00")
	f(AppendStr8(nil, long[:255]), "\xff"+string(long[:255]))
	f(AppendStr8String([]byte("a"), "bc"), "a\x02bc")
	f(AppendStr8String(nil, string(long[:255])), "\xff"+string(long[:255]))
	f(AppendStr32([]byte("a"), []byte("bc")), "a\x00\x00\x00\x02bc")
	f(AppendStr32(nil, long), "\x00\x00\x01\x00"+string(long))
	mustPanic(t, func() { AppendStr8(nil, long) })
	mustPanic(t, func() { AppendStr8String(nil, string(long)) })
}
