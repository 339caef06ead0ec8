// Package interop runs the tests of loop/disbatch/store and loop/disbatch/node against FerretDB, an independent
// database with MongoDB's protocol. A test with MongoDB's own shell creates tasks there and reads the documents that
// the built program, TREADLE_BINARY, has written. The package is a module of its own: its dependencies do not ship.
package interop
