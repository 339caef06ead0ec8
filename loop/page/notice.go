package page

import (
	"crypto/rand"
	"net/http"
	"sync"
)

// notice is what came of an action. The page that the browser is sent to next shows it.
type notice struct {
	Text   string
	Failed bool
	Items  []string // more about it, a line each
}

// maxNotices bounds the notices that no page has shown yet: a browser that was sent to a page loads that at once.
const maxNotices = 1000

// notices holds notices by secret names, so that no link can have a page show a text of its maker.
type notices struct {
	mu    sync.Mutex
	all   map[string]*notice
	order []string // the oldest first
}

// noticeParameter names a notice in the address of a page.
const noticeParameter = "notice"

// put keeps a notice and returns its name.
func (n *notices) put(one *notice) string {
	name := rand.Text()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = make(map[string]*notice)
	}
	n.all[name] = one
	if n.order = append(n.order, name); len(n.order) > maxNotices {
		delete(n.all, n.order[0])
		n.order = n.order[1:]
	}
	return name
}

// named returns the notice that a request names; nil: it names none. A page that is loaded again shows it again.
func (n *notices) named(r *http.Request) *notice {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all[r.URL.Query().Get(noticeParameter)]
}
