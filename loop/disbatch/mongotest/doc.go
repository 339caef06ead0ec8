// Package mongotest is a fake MongoDB for tests and benchmarks. It implements the part of the wire protocol that
// the driver and the programs of this module use, keeps all data in memory under one lock, and injects faults. It
// proves nothing about MongoDB itself. Only tests and benchmarks import it.
package mongotest
