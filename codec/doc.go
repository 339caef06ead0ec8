// Package codec is the room of the wire formats: one package below it for each protocol, and nothing in this one.
//
// A codec turns bytes into views and values into bytes. It knows no sockets, no clock and no scheduler, keeps no
// state between calls and owns no buffer: a decoder returns views into the caller's bytes, which die when those
// bytes change, and an encoder appends to the caller's slice. Decoders have the form Next(in, *Frame) (n, err):
// n == 0 without an error means that more bytes are needed, and an error means that the connection must be closed.
// The conversations in loop decide what a frame means, who may send it and how it is answered.
package codec
