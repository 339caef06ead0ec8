// Package interop runs the tests of loop/disbatch and its node against FerretDB, a database that this
// project did not write and that speaks MongoDB's protocol, and has MongoDB's own shell make
// tasks there and read what the built program wrote. TREADLE_BINARY names that program. It
// is a module of its own: what it needs is no part of what ships.
package interop
