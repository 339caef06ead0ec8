package main

import (
	"fmt"
	"net"
	"sync/atomic"
)

// functionsServed is how many functions a worker serves in the rows with many of them.
const functionsServed = 10

const (
	// functionPrefix and four digits are a function's name: as long as queueName, so that a frame is as long as in the
	// rows with one, and with its first letter, which stays in the template.
	functionPrefix = "b"
	functionDigits = len(queueName) - len(functionPrefix)
	// functionStride is a prime: neighbouring jobs go to functions of different workers, and all come in turn.
	functionStride = 617
)

// functions is the Periodic protocol with jobs of many functions. The workers share them out among themselves, in the
// order in which they are greeted.
type functions struct {
	*periodic
	total  int
	run    int // neighbouring jobs of one function
	hired  atomic.Int64
	served int
}

// newFunctions has so many functions, whose jobs come in runs of so many; with one function all workers serve that.
func newFunctions(total, run int) *functions {
	return &functions{periodic: newPeriodic(), total: total, run: max(1, run), served: min(total, functionsServed)}
}

func functionName(i int) string { return fmt.Sprintf("%s%0*d", functionPrefix, functionDigits, i) }

func (f *functions) greet(conn net.Conn, as role) error {
	if err := periodicHello(conn, as); err != nil || as != working {
		return err
	}
	return canDo(conn, f.servedBy(int(f.hired.Add(1)-1))...)
}

// servedBy names the functions of a worker; the workers are numbered from 0.
func (f *functions) servedBy(worker int) []string {
	var names []string
	for i := range f.served {
		names = append(names, functionName((worker*f.served+i)%f.total))
	}
	return names
}

func (f *functions) appendSubmit(dst []byte, slot uint32, id uint64, sent int64) []byte {
	start := len(dst)
	dst = f.periodic.appendSubmit(dst, slot, id, sent)
	name := dst[start+periodicArgsAt+1+len(functionPrefix):]
	number := id / uint64(f.run) * functionStride % uint64(f.total)
	for i := functionDigits - 1; i >= 0; i-- {
		name[i] = byte('0' + number%10)
		number /= 10
	}
	return dst
}

func (f *functions) pending(conn net.Conn) (int, error) { return periodicPending(conn, functionPrefix) }
