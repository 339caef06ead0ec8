package admin

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	codec "treadle/codec/admin"
	"treadle/sched"
)

// TestResultsAreBounded: the results of ended waits have a bound together until they are in answers. One that does not
// fit ends its wait with an error. A result that is alone may have any size, and other ends have no bytes.
func TestResultsAreBounded(t *testing.T) {
	i := &API{host: aloneHost{}}
	i.results.max, i.outgoing.Max = 10, 1<<20
	end := func(effect sched.Effect, size int) *jobEnd {
		wait := &jobEnd{came: make(chan struct{}, 1)}
		i.deliverEnd(&sched.Delivery{Effect: effect, Tag: i.waits.add(wait), Data: []byte(strings.Repeat("x", size))})
		<-wait.came
		return wait
	}
	answer := func(e *jobEnd) (status int) {
		w := httptest.NewRecorder()
		v, err := waitAnswer(codec.Submitted{Queue: "f"}, e)
		i.write(w, v, err)
		return w.Code
	}
	first, second := end(sched.Result, 8), end(sched.Result, 8)
	if first.lost || len(first.data) != 8 || !second.lost || second.data != nil {
		t.Errorf("%+v, %+v", first, second)
	}
	if e := end(sched.Failed, 1000); e.lost || e.data != nil {
		t.Errorf("%+v", e)
	}
	if _, err := waitAnswer(codec.Submitted{}, second); !errors.As(err, new(*lostResult)) {
		t.Errorf("the error is %v", err)
	}
	if got := answer(second); got != http.StatusInsufficientStorage {
		t.Errorf("the status is %d", got)
	}
	if e := end(sched.Result, 2); e.lost {
		t.Error("two bytes fit")
	} else if got := answer(e); got != http.StatusOK {
		t.Errorf("the status is %d", got)
	}
	if answer(first); i.results.used.Load() != 0 {
		t.Errorf("%d bytes are held", i.results.used.Load())
	}
	if large := end(sched.Result, 1000); large.lost || !end(sched.Result, 1).lost {
		t.Error("a large result is not taken, or another beside it is")
	}
}
