// Package interop runs the server against clients that this project did not write.
// It is a module of its own: what it needs is no part of what ships. TREADLE_BINARY
// names the server to run, see `make interop`.
package interop
