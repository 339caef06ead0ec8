// Package fuzz has the tests that search for unknown faults: native fuzz targets for every codec and their corpora, and
// the bugs that are planted for the simulation, which is in fuzz/sim. It holds tests alone.
//
// Every target compares with an oracle: encoding what was decoded gives the same bytes, a stream gives the same frames
// however it is cut, or a simpler reader agrees. Seeds are packets captured from the reference servers, in testdata; an
// input that once failed stays in testdata/fuzz/FuzzX, where plain `go test` runs it. What only one package decodes has
// its targets there: ZMTP's frames, the journal's files, Disbatch's documents, the files of the command line. `make
// fuzz` finds all of them and runs each for a while. The targets that play sessions with a server in memory are in
// builds with the invariants tag, as is loop.Offline, which they play them with.
//
// # Files
//
//	X_test.go                codec X, as in gloom_test.go: its targets, and the simpler reader that they compare with
//	session_test.go          how a script is played: step, sessions, play and samePieceByPiece
//	session_service_test.go  connections in memory to the ports that goroutines of the server serve: dwork and kts46
//	session_X_test.go        protocol X: what its scripts do, the checks of the answers, and the target
//	canary_table_test.go     the planted bugs: canaries and testCanaries
//	canary_test.go           TestCanary, which builds the server with each bug and runs what must find it
//	readme_test.go           TestReadme, which holds README.md to the tables and to the tests that it names
//	testdata                 captured packets, and the inputs that once failed
//	sim                      the simulation
package fuzz
