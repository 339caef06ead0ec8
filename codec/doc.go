// Package codec has the wire formats: a package below it for each protocol, admin for the HTTP API, jsontext for JSON
// whose bytes matter, and nothing in this one.
//
// A codec turns bytes into views and values into bytes. It knows no sockets, no clock and no scheduler, and owns no
// buffer of the bytes. A decoder returns views into the caller's bytes, which are valid until those bytes change. An
// encoder appends to the caller's slice.
//
// The frames of a stream are decoded one by one, by a Next of each protocol. The signatures differ. The Next of
// periodic, gloom and faktory is a function. It returns the bytes that the frame takes up: 0 without an error means
// that more bytes are needed, and an error means that the connection must be closed. The Next of beanstalk is a method
// of Decoder, which records between calls how much it has still to skip of a job that is too large. dwork and kts46
// decode a whole message at a time.
//
// The packages of loop decide what a message means, which peers may send it and how it is answered.
package codec
