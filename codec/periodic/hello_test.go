package periodic

import (
	"bytes"
	"errors"
	"hash/crc32"
	"testing"

	"pgregory.net/rapid"
)

func TestNextHelloBare(t *testing.T) {
	f := func(in string, fr Framing, role Role) {
		t.Helper()
		packet := unhex(t, in)
		for cut := range packet {
			var h Hello
			if n, err := NextHello(packet[:cut:cut], &h); n != 0 || err != nil {
				t.Fatalf("%s: after %d bytes %d, %v", in, cut, n, err)
			}
		}
		var h Hello
		n, err := NextHello(append(packet, "behind"...), &h)
		if err != nil || n != len(packet) || h.Framing != fr || h.Role != role || h.Name != nil || h.Token != nil {
			t.Fatalf("%s: %d, %v, %+v", in, n, err, h)
		}
		if got := AppendHello(nil, &h); !bytes.Equal(got, packet) {
			t.Fatalf("%s: written as %x", in, got)
		}
	}
	f("00524551 00000001 01", Plain, Client)
	f("00524551 00000001 02", Plain, Worker)
	f("00524551 00000001 a505df1b 01", CRC, Client)
	f("00524551 00000001 3c0c8ea1 02", CRC, Worker)
}

func TestBareHelloChecksums(t *testing.T) {
	f := func(want string) {
		t.Helper()
		role := want[len(want)-1:]
		if got := crc32.ChecksumIEEE([]byte(role)); string(bigEndian(got)) != want[:4] {
			t.Fatalf("the checksum of role %x is %08x", role, got)
		}
	}
	f(crcClient)
	f(crcWorker)
}

// bigEndian is the test's own way to write an integer.
func bigEndian(v uint32) []byte {
	return []byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}
}

func TestNextHelloDecidesAtTheFirstByteThatTells(t *testing.T) {
	f := func(in string, want error) {
		t.Helper()
		packet := unhex(t, in)
		for cut := range len(packet) + 1 {
			var h Hello
			n, err := NextHello(packet[:cut:cut], &h)
			if cut < len(packet) && (n != 0 || err != nil) {
				t.Fatalf("%s: after %d bytes %d, %v: too early", in, cut, n, err)
			}
			if cut == len(packet) && (n != 0 || !errors.Is(err, want)) {
				t.Fatalf("%s: %d, %v, want %v", in, n, err, want)
			}
		}
		var h Hello
		packet = append(packet, make([]byte, HelloLimit)...)
		if n, err := NextHello(packet, &h); n != 0 || !errors.Is(err, want) {
			t.Fatalf("%s and more: %d, %v, want %v", in, n, err, want)
		}
	}
	f("47", ErrMagic)       // an HTTP client's GET
	f("00524553", ErrMagic) // \0RES
	f("00524551 00000000", ErrHello)
	f("00524551 00000002", ErrHello) // no hello has 2 to 16 bytes
	f("00524551 00000010", ErrHello)
	f("00524551 00000ff5", ErrHelloSize) // with its header one byte over HelloLimit
	f("00524551 ffffffff", ErrHelloSize)
	f("00524551 00000001 00", ErrHello)
	f("00524551 00000001 03", ErrHello) // an authenticated role without its name
	f("00524551 00000001 4b", ErrHello) // the same, checksummed
	f("00524551 00000001 a506", ErrChecksum)
	f("00524551 00000001 a505df1b 02", ErrChecksum)
	f("00524551 00000001 3c0c8ea1 01", ErrChecksum)
	f("00524551 00000011 a505df1b 01", ErrHello) // a bare role that is not alone
	f("00524551 00000011 00000000 05", ErrHello)
	f("00524551 00000012 00000000 03 0000000000000002", ErrHello) // a name over the end
	f("00524551 00000012 00000000 03 ffffffffffffffff", ErrHello) // a negative length
	f("00524551 00000012 00000000 03 8000000000000000", ErrHello)
	f("00524551 00000012 00000000 03 0000000000000000 0000000000000002", ErrHello) // a token over the end
	f("00524551 00000012 00000000 03 0000000000000000 0000000000000000", ErrHello) // a token before the end
	f("00524551 00000012 00000000 03 0000000000000000 ffffffffffffffff", ErrHello)
	f("00524551 00000012 00000000 03 0000000000000001 61 0000000000000000", ErrChecksum)
}

func TestNamedHelloRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Hello{
			Framing: CRC,
			Role:    Role(rapid.IntRange(3, 4).Draw(t, "role")),
			Name:    rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "name"),
			Token:   rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "token"),
		}
		packet := AppendHello(nil, &want)
		for cut := range packet {
			var h Hello
			if n, err := NextHello(packet[:cut:cut], &h); n != 0 || err != nil {
				t.Fatalf("cut at %d: %d, %v", cut, n, err)
			}
		}
		var h Hello
		n, err := NextHello(append(packet, "behind"...), &h)
		if err != nil || n != len(packet) {
			t.Fatalf("%d, %v, want %d", n, err, len(packet))
		}
		if h.Framing != CRC || h.Role != want.Role || !bytes.Equal(h.Name, want.Name) || !bytes.Equal(h.Token, want.Token) {
			t.Fatalf("wrote %+v, read %+v", want, h)
		}
		if cap(h.Name) != len(h.Name) || cap(h.Token) != len(h.Token) {
			t.Fatal("an append to a view would write behind it")
		}
	})
}

// TestNamedHelloWhoseChecksumLooksLikeARole: the checksum of a named hello may begin with 01, 02, a5 or 3c: its size
// tells it from a bare one.
func TestNamedHelloWhoseChecksumLooksLikeARole(t *testing.T) {
	seen := map[byte]bool{}
	for i := 0; len(seen) < 4; i++ {
		want := Hello{Framing: CRC, Role: AuthClient, Name: bigEndian(uint32(i)), Token: []byte("t")}
		packet := AppendHello(nil, &want)
		switch packet[sumAt] {
		case 1, 2, crcClient[0], crcWorker[0]:
			seen[packet[sumAt]] = true
		default:
			continue
		}
		var h Hello
		if n, err := NextHello(packet, &h); n != len(packet) || err != nil || !bytes.Equal(h.Name, want.Name) {
			t.Fatalf("%x: %d, %v", packet, n, err)
		}
	}
}

func TestHelloLimit(t *testing.T) {
	f := func(token int, want error) {
		t.Helper()
		packet := AppendHello(nil, &Hello{Framing: CRC, Role: AuthClient, Token: make([]byte, token)})
		var h Hello
		if n, err := NextHello(packet, &h); !errors.Is(err, want) || (err == nil) != (n == len(packet)) {
			t.Fatalf("%d bytes: %d, %v, want %v", len(packet), n, err, want)
		}
	}
	f(HelloLimit-crcHeaderLen-minNamedHello, nil)
	f(HelloLimit-crcHeaderLen-minNamedHello+1, ErrHelloSize)
}

func TestNamedHelloChecksum(t *testing.T) {
	packet := AppendHello(nil, &Hello{Framing: CRC, Role: AuthClient, Name: []byte("name"), Token: []byte("token")})
	packet[len(packet)-1] ^= 1
	var h Hello
	if n, err := NextHello(packet, &h); n != 0 || !errors.Is(err, ErrChecksum) {
		t.Fatalf("%d, %v", n, err)
	}
}

func TestAppendHelloReply(t *testing.T) {
	f := func(got []byte, want string) {
		t.Helper()
		if !bytes.Equal(got, unhex(t, want)) {
			t.Fatalf("%x, want %s", got, want)
		}
	}
	f(AppendHelloReply(nil, Plain, 0x9feb684b), "00524553 00000004 9feb684b")
	f(AppendHelloReply([]byte{7}, CRC, 0x9feb684b), "07 00524553 00000004 2dfa6818 9feb684b")
	f(AppendHelloReplyData(nil, 0xd88e6519), "00524553 00000005 6d584e20 1ed88e6519")
}

func TestAppendHelloRefusesWhatPlainCannotSay(t *testing.T) {
	mustPanic(t, func() { AppendHello(nil, &Hello{Role: AuthWorker}) })
}
