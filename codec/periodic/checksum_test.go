package periodic

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// TestChecksum: the own checksum is the standard library's, at every length that takes another way, and wherever the
// bytes lie.
func TestChecksum(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 300)
	for range 50 {
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		for n := range b {
			for at := range min(3, len(b)-n) {
				if got, want := checksum(b[at:at+n]), crc32.ChecksumIEEE(b[at:at+n]); got != want {
					t.Fatalf("%d bytes: %08x, want %08x", n, got, want)
				}
			}
		}
	}
}

func BenchmarkChecksum(b *testing.B) {
	for _, n := range []int{5, 17, 24, 143} {
		data := make([]byte, n)
		b.Run(fmt.Sprint("own/", n), func(b *testing.B) {
			for range b.N {
				checksum(data)
			}
		})
		b.Run(fmt.Sprint("library/", n), func(b *testing.B) {
			for range b.N {
				crc32.ChecksumIEEE(data)
			}
		})
	}
}
