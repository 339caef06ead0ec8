// Package codec has the wire formats: a package below it for each protocol, jsontext for JSON whose bytes matter, and
// nothing in this one.
//
// A codec turns bytes into views and values into bytes. It knows no sockets, no clock and no scheduler, keeps no
// state between calls and owns no buffer. A decoder returns views into the caller's bytes, which are valid until those
// bytes change. An encoder appends to the caller's slice.
//
// The frames of a stream, those of Periodic and Gloom, are decoded by a function Next. It returns the bytes that the
// frame takes up: 0 without an error means that more bytes are needed, and an error means that the connection must be
// closed. dwork and kts46 decode a whole message at a time.
//
// The packages of loop decide what a message means, which peers may send it and how it is answered.
package codec
