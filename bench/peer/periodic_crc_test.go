package peer

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"treadle/bench/load"
)

// crcFrame is a response in the CRC framing.
func crcFrame(payload string) string {
	frame := binary.BigEndian.AppendUint32([]byte("\x00RES"), uint32(len(payload)))
	frame = binary.BigEndian.AppendUint32(frame, crc32.ChecksumIEEE([]byte(payload)))
	return string(append(frame, payload...))
}

// TestCRCFraming compares the requests of both framings: they are the same but for the header with its checksum.
func TestCRCFraming(t *testing.T) {
	p, plain := newPeriodic(PeriodicOptions{CRC: true}), newPeriodic(PeriodicOptions{})
	f := func(slot uint32, id uint64, sent int64) {
		t.Helper()
		for _, pair := range [][2][]byte{
			{p.AppendSubmit(nil, slot, id, sent), plain.AppendSubmit(nil, slot, id, sent)},
			{p.AppendGrab(nil, slot), plain.AppendGrab(nil, slot)},
		} {
			got, want := pair[0], pair[1]
			payload := got[crcHeaderLen:]
			if string(got[:crcAt]) != string(want[:plainHeaderLen]) || string(payload) != string(want[plainHeaderLen:]) {
				t.Errorf("got %q, in the framing of 2018 %q", got, want)
			}
			if sum := binary.BigEndian.Uint32(got[crcAt:]); sum != crc32.ChecksumIEEE(payload) {
				t.Errorf("slot %d, id %d, time %d: checksum %08x, want %08x", slot, id, sent, sum, crc32.ChecksumIEEE(payload))
			}
		}
	}
	f(0, 0, 0)
	f(7, someID, someTime)
	f(63, 1999999, 61_234_567_890)
	f(0xfffffff0, 1<<48-1, 1<<62)
}

// TestCRCRequests compares whole requests with packets that were captured, and the WORK_DONE with its msgid and handle.
func TestCRCRequests(t *testing.T) {
	f := func(got []byte, want string) {
		t.Helper()
		if string(got) != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	f(newPeriodic(PeriodicOptions{CRC: true}).AppendGrab(nil, 2), "\x00REQ\x00\x00\x00\x05\x83\x13\xa5\x09\x00\x00\x00\x02\x01")
	f(newPeriodic(PeriodicOptions{CRC: true}).append(nil, 1, periodicCanDo, []byte("\x01f")), "\x00REQ\x00\x00\x00\x07\x9d\x55\x5b\xb2\x00\x00\x00\x01\x07\x01f")
	payload := "\x80\x00\x00\x09\x03\x01f\x01n"
	want := "\x00REQ" + crcFrame(payload)[4:]
	f(newPeriodic(PeriodicOptions{CRC: true}).AppendDone(nil, &load.Event{Slot: 9, Handle: []byte("\x01f\x01n")}), want)
}
