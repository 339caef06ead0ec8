package page

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxStreams bounds the pages that are updated while they are shown: each is rendered once a second.
	maxStreams = 100
	// streamShare is the divisor of the connections of the HTTP API that gives those that streams may take. A stream
	// stays for as long as its page is shown, and the other half stays free for requests that end.
	streamShare = 2
	// streamStep is the time between two updates of a page.
	streamStep = time.Second
	// streamTime is the time for a browser to take an update: a slower one is dropped, and comes again.
	streamTime = 5 * time.Second
	// quietSteps is the number of steps without a change after which a stream says that it is alive.
	quietSteps = 10
	// streamLife ends a stream, which the browser opens again: a client that never reads keeps its place no longer,
	// even when a page that hardly changes does not fill the buffers of the connection.
	streamLife = time.Hour
)

// streams are the pages that are updated.
type streams struct {
	mu   sync.Mutex
	open int
	all  map[string]*stream // by their addresses
}

// stream is a page that some browsers show. It is rendered once a second for all of them.
type stream struct {
	browsers int // guarded by streams.mu

	mu    sync.Mutex
	at    time.Time // of the last rendering
	cells map[string]cell
	ok    bool
}

// join returns the stream of an address; nil: there are too many. connections is the number of connections that the
// HTTP API may have.
func (s *streams) join(address string, connections int) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= min(maxStreams, connections/streamShare) {
		return nil
	}
	if s.all == nil {
		s.all = make(map[string]*stream)
	}
	shared := s.all[address]
	if shared == nil {
		shared = new(stream)
		s.all[address] = shared
	}
	s.open++
	shared.browsers++
	return shared
}

// leave ends a join.
func (s *streams) leave(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.all[address].browsers--; s.all[address].browsers == 0 {
		delete(s.all, address)
	}
}

// currentCells returns the cells of the page, rendered within the last second; false: the page cannot be shown.
func (o *stream) currentCells(s *Pages, r *http.Request, page pageFunc) (map[string]cell, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); now.Sub(o.at) > streamStep*9/10 {
		text, status := s.render(r, page)
		if r.Context().Err() != nil { // what failed is this request
			return nil, false
		}
		o.at, o.cells, o.ok = now, cellsOf(text), status == http.StatusOK
	}
	return o.cells, o.ok
}

// live sends all cells of a page, and then once a second those that change, as a stream of events. The parameter at is
// the address of the page.
func (s *Pages) live(w http.ResponseWriter, r *http.Request) {
	page, at, err := s.pageAt(r, r.URL.Query().Get("at"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	address := at.URL.RequestURI()
	shared := s.streams.join(address, s.maxAPIConns())
	if shared == nil {
		w.Header().Set("Retry-After", "30")
		http.Error(w, "too many pages are shown: this one is not updated", http.StatusServiceUnavailable)
		return
	}
	defer s.streams.leave(address)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy must pass each event on
	out := http.NewResponseController(w)
	tick := time.NewTicker(streamStep)
	defer tick.Stop()
	end := time.After(streamLife)
	var before map[string]cell
	for quiet := 0; ; {
		now, ok := shared.currentCells(s, at, page)
		if !ok {
			return // the page that is loaded next says why
		}
		changed := changedCells(before, now)
		if before == nil {
			changed = everyCell(now) // the page that the browser has may be older, by hours when it was not shown
		}
		if before = now; len(changed) > 0 || quiet == 0 {
			if !s.send(w, out, changed) {
				return
			}
			quiet = quietSteps
		} else {
			quiet--
		}
		select {
		case <-r.Context().Done():
			return
		case <-end:
			return
		case <-tick.C:
		}
	}
}

// send sends one event.
func (s *Pages) send(w http.ResponseWriter, out *http.ResponseController, changed [][2]string) bool {
	_ = out.SetWriteDeadline(time.Now().Add(streamTime)) // fails only when the connection is closed
	data, err := json.Marshal(changed)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	_, err = fmt.Fprintf(w, "data: %s\n\n", data)
	return errors.Join(err, out.Flush()) == nil
}

// pageAt returns the page at an address of this server, and the request of a browser that loads it.
func (s *Pages) pageAt(r *http.Request, address string) (pageFunc, *http.Request, error) {
	u, err := s.parsePage(address)
	if err != nil {
		return nil, nil, err
	}
	path := strings.TrimPrefix(u.Path, s.root)
	if path == "/" {
		path = "/{$}"
	}
	page := pageFuncs[path]
	if page == nil {
		return nil, nil, errNotHere
	}
	at := r.Clone(r.Context())
	at.URL, at.RequestURI = u, u.RequestURI()
	return page, at, nil
}

// cell is a part of a page that may change.
type cell struct {
	whole string // its HTML
	frame string // its HTML without the cells in it
	outer string // the name of the cell that it is in; empty: none
}

// liveMark begins the attribute with the name of a cell.
const liveMark = `data-live="`

// cellsOf returns the cells of a page by their names. The page is what the templates make: each < begins a tag.
func cellsOf(page []byte) map[string]cell {
	all := make(map[string]cell)
	type open struct {
		tag, name string // name: of a cell, or empty
		from      int    // where its content begins
		frame     strings.Builder
		last      int // the frame has the page up to here
	}
	var stack []*open
	outer := func() *open {
		for i := len(stack) - 1; i >= 0; i-- {
			if stack[i].name != "" {
				return stack[i]
			}
		}
		return nil
	}
	for at := bytes.IndexByte(page, '<'); at >= 0 && at < len(page); {
		length := bytes.IndexByte(page[at:], '>')
		if length < 0 {
			break
		}
		tag, end := page[at+1:at+length], at+length+1
		switch {
		case len(tag) == 0 || tag[0] == '!' || tag[len(tag)-1] == '/' || voidTag(tag):
		case tag[0] == '/':
			if len(stack) == 0 || stack[len(stack)-1].tag != string(tag[1:]) {
				break
			}
			o := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if o.name == "" {
				break
			}
			o.frame.Write(page[o.last:at])
			c := cell{whole: string(page[o.from:at]), frame: o.frame.String()}
			if in := outer(); in != nil {
				c.outer = in.name
				in.frame.Write(page[in.last:o.from])
				in.last = at
			}
			all[o.name] = c
		default:
			stack = append(stack, &open{tag: tagName(tag), name: liveName(tag), from: end, last: end})
		}
		next := bytes.IndexByte(page[end:], '<')
		if next < 0 {
			break
		}
		at = end + next
	}
	return all
}

func tagName(tag []byte) string {
	if end := bytes.IndexAny(tag, " \t\n"); end >= 0 {
		tag = tag[:end]
	}
	return string(tag)
}

// liveName returns the name of a cell whose first tag it is; empty: it is none.
func liveName(tag []byte) string {
	_, rest, found := bytes.Cut(tag, []byte(liveMark))
	name, _, _ := bytes.Cut(rest, []byte(`"`))
	if !found {
		return ""
	}
	return string(name)
}

// voidTag reports whether a tag has no end.
func voidTag(tag []byte) bool {
	switch tagName(tag) {
	case "meta", "link", "input", "br", "hr", "img":
		return true
	}
	return false
}

// everyCell returns the names and the HTML of all cells, each cell before the cells in it: a browser does not replace a
// cell that a person is using, but the others in it.
func everyCell(now map[string]cell) [][2]string {
	depth := func(name string) (n int) {
		for outer := now[name].outer; outer != ""; outer = now[outer].outer {
			n++
		}
		return n
	}
	all := make([][2]string, 0, len(now))
	for _, name := range slices.SortedFunc(maps.Keys(now), func(a, b string) int {
		return cmp.Or(cmp.Compare(depth(a), depth(b)), cmp.Compare(a, b))
	}) {
		all = append(all, [2]string{name, now[name].whole})
	}
	return all
}

// changedCells returns the names and the HTML of cells that have changed: those with another frame, and that are in
// none of these. A page has no place for a cell that it did not have before.
func changedCells(before, now map[string]cell) (changed [][2]string) {
	fresh := make(map[string]bool)
	for name, c := range now {
		if was, ok := before[name]; ok && was.frame != c.frame {
			fresh[name] = true
		}
	}
	for name, c := range now {
		within := false
		for outer := c.outer; outer != "" && !within; outer = now[outer].outer {
			within = fresh[outer]
		}
		if fresh[name] && !within {
			changed = append(changed, [2]string{name, c.whole})
		}
	}
	return changed
}
