package periodic

import (
	"encoding/binary"
	"hash/crc32"
)

// stdlibFrom is the length in bytes from which the standard library, with its special instructions, is faster than
// tables. It uses them for multiples of 16 bytes and handles the rest byte by byte, as it does shorter messages. Most
// messages of a busy connection have 5 to 30 bytes.
const stdlibFrom = 64

// crcTables has for each byte value what it contributes to the checksum when 0 to 7 more bytes follow in the same step:
// the tables of the slicing-by-8 algorithm of Kounavis and Berry.
var crcTables = func() (t [8]crc32.Table) {
	t[0] = *crc32.IEEETable
	for i := range t[0] {
		for k := 1; k < len(t); k++ {
			t[k][i] = t[k-1][i]>>8 ^ t[0][byte(t[k-1][i])]
		}
	}
	return t
}()

// checksum is crc32.ChecksumIEEE.
func checksum(b []byte) uint32 {
	c := ^uint32(0)
	if n := len(b) &^ 15; n >= stdlibFrom {
		c, b = ^crc32.ChecksumIEEE(b[:n]), b[n:]
	}
	for ; len(b) >= 8; b = b[8:] {
		c ^= binary.LittleEndian.Uint32(b)
		c = crcTables[7][byte(c)] ^ crcTables[6][byte(c>>8)] ^ crcTables[5][byte(c>>16)] ^ crcTables[4][c>>24] ^
			crcTables[3][b[4]] ^ crcTables[2][b[5]] ^ crcTables[1][b[6]] ^ crcTables[0][b[7]]
	}
	if n := len(b); n >= 4 {
		c ^= binary.LittleEndian.Uint32(b)
		c = crcTables[(n-1)&7][byte(c)] ^ crcTables[(n-2)&7][byte(c>>8)] ^ crcTables[(n-3)&7][byte(c>>16)] ^ crcTables[(n-4)&7][c>>24]
		for i := 4; i < n; i++ {
			c ^= crcTables[(n-1-i)&7][b[i]]
		}
		return ^c
	}
	for _, x := range b {
		c = c>>8 ^ crcTables[0][byte(c)^x]
	}
	return ^c
}
