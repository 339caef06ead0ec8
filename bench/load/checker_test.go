package load

import (
	"strings"
	"testing"
)

func TestCheckerAcceptsEachJobOnce(t *testing.T) {
	const total = 130 // more than two words of the bitmap
	c := newChecker(total)
	for i := range total {
		if err := c.take(uint64(i * 7 % total)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.check(); err != nil {
		t.Error(err)
	}
}

func TestCheckerReportsADuplicate(t *testing.T) {
	c := newChecker(100)
	if err := c.take(70); err != nil {
		t.Fatal(err)
	}
	if err := c.take(70); err == nil || !strings.Contains(err.Error(), "job 70 arrived a second time") {
		t.Errorf("got %v", err)
	}
}

func TestCheckerReportsALoss(t *testing.T) {
	c := newChecker(100)
	for id := range uint64(100) {
		if id == 65 || id == 80 {
			continue
		}
		if err := c.take(id); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.check(); err == nil || err.Error() != "2 of 100 jobs never arrived; the first is job 65" {
		t.Errorf("got %v", err)
	}
}

func TestCheckerReportsAStranger(t *testing.T) {
	if err := newChecker(100).take(100); err == nil {
		t.Error("job 100 of 0 to 99 was accepted")
	}
}
