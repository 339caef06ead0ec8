// Package periodic translates between bytes and the frames of the Periodic protocol, in both of its framings: the one
// of the protocol text of August 2018 and the checksummed one of 2019 and later. It knows no sockets and no clock.
//
// Every decoder returns views into the caller's bytes, valid until those bytes change, and allocates nothing. A stream
// gives the same frames and the same error however it is cut into reads. Encoders append to the caller's slice. All
// integers on the wire are big-endian.
package periodic

import "errors"

// Framing is the form of a packet's header. A connection's first packet fixes it; see NextHello.
type Framing uint8

const (
	// Plain is the framing of 2018: magic4 size4.
	Plain Framing = iota
	// CRC is the framing of 2019 and later: magic4 size4 crc4, crc4 being the IEEE CRC-32 of the payload.
	CRC
)

// HeaderLen returns the bytes of a packet before its payload: 8 or 12.
func (f Framing) HeaderLen() int {
	if f == CRC {
		return crcHeaderLen
	}
	return plainHeaderLen
}

const (
	plainHeaderLen = 8
	crcHeaderLen   = 12
	sizeAt         = 4 // where a header's size field is
	sumAt          = 8 // where a CRC header's checksum is
	messageLen     = 5 // msgid4 cmd1: the shortest payload of a request
	msgIDLen       = 4 // the shortest payload of a response

	magicRequest  = "\x00REQ"
	magicResponse = "\x00RES"
	wordRequest   = 0x00524551 // magicRequest as the integer that is compared on the hot path
	wordResponse  = 0x00524553
)

const (
	// MaxPayload is the largest payload in bytes that any packet may announce, whatever the caller's limit. It is the
	// only bound of LOAD and DUMP. Clients that read the size as a signed integer fail above it.
	MaxPayload = 1<<31 - 1

	// HelloLimit is the most bytes that a connection's first packet may have, header included. It bounds what is
	// buffered for a peer before its handshake. The original has no limit on the name and the token; the longest in use
	// have a few hundred bytes.
	HelloLimit = 4096

	// MaxStr8 is the longest string that a length of one byte can announce: function names, job names, handles, keys.
	MaxStr8 = 255
)

// After an error of Next, NextResponse or NextHello the connection must be closed, since the start of the next packet
// is not known. The errors of ParseJob concern one record of a complete frame.
var (
	// ErrMagic means that the packet does not begin with the magic bytes of its direction.
	ErrMagic = errors.New("periodic: wrong magic bytes")
	// ErrHelloSize means that the first packet has more than HelloLimit.
	ErrHelloSize = errors.New("periodic: the first packet, with a name and a token, is over 4KiB")
	// ErrTooLarge means that the header announces more bytes than the limit.
	ErrTooLarge = errors.New("periodic: packet over the size limit")
	// ErrChecksum means that a CRC header's checksum is not that of the payload.
	ErrChecksum = errors.New("periodic: wrong checksum")
	// ErrHello means that the first packet has an unknown role, or that its lengths do not add up.
	ErrHello = errors.New("periodic: unknown handshake")
	// ErrShort means that the payload has no room for a message id and a command.
	ErrShort = errors.New("periodic: payload too short")
	// ErrTruncated means that the bytes end inside a job record; in a LOAD the rest may still arrive.
	ErrTruncated = errors.New("periodic: truncated job record")
	// ErrVersion means that a job record has a version over 3, so that its end is not known.
	ErrVersion = errors.New("periodic: unknown job version")
)
