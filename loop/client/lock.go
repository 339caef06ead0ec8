package client

import (
	"context"
	"encoding/binary"
	"fmt"

	"treadle/codec/periodic"
)

// Acquire asks for a named lock, which at most count jobs hold at once, for a running job. False:
// the worker no longer holds the job; the server assigns it again when the lock is free. Acquire
// needs the CRC framing.
func (w *Worker) Acquire(ctx context.Context, a *Assignment, lock string, count int16) (bool, error) {
	err := checkName("lock", lock)
	var got []byte
	if err == nil {
		got, err = w.ask(ctx, periodic.Acquire, periodic.Acquired, func(dst []byte) []byte {
			dst = periodic.AppendStr8String(dst, lock)
			return append(binary.BigEndian.AppendUint16(dst, uint16(count)), a.handle...)
		})
	}
	if err == nil && len(got) != 1 {
		err = fmt.Errorf("the server answered %d bytes where 1 was expected", len(got))
	}
	if err != nil {
		return false, w.conn.describe(fmt.Sprintf("acquire the lock %q for %q %q", lock, a.Job.Func, a.Job.Name), err)
	}
	return got[0] == 1, nil
}

// Release gives a lock back before its job ends, which also releases it. The server sends no
// confirmation. Release needs the CRC framing.
func (w *Worker) Release(ctx context.Context, a *Assignment, lock string) error {
	err := checkName("lock", lock)
	if err == nil && w.conn.framing == periodic.Plain {
		err = errNeedsCRC
	}
	if err == nil {
		err = w.conn.send(ctx, w.conn.newID(), periodic.Release, func(dst []byte) []byte {
			return append(periodic.AppendStr8String(dst, lock), a.handle...)
		})
	}
	return w.conn.describe(fmt.Sprintf("release the lock %q", lock), err)
}
