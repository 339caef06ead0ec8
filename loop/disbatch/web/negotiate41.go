package web

import (
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// The routes of 4.1 that answer with a page or with JSON, as the client wants.

// wantsPage reports whether a client prefers a page to JSON, with the original's reading of Accept: if it names pages
// with at least the weight of JSON.
func wantsPage(r *http.Request) bool {
	page, data := 0.0, 1.0
	for kind := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		kind, weight, found := strings.Cut(strings.TrimSpace(kind), ";q=")
		q, err := strconv.ParseFloat(weight, 64)
		if !found || err != nil {
			q = 1
		}
		switch kind {
		case "text/html":
			page = q
		case "application/json":
			data = q
		}
	}
	return page >= data
}

// either serves a page to clients that prefer one and JSON to all others. A path with an invalid task id is not found.
func (c *commandInterface) either(page http.HandlerFunc, data route) http.Handler {
	asJSON := c.json(data)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch id := r.PathValue("id"); {
		case id != "" && !hexTask.MatchString(id):
			void(w, r)
		case wantsPage(r):
			page(w, r)
		default:
			asJSON.ServeHTTP(w, r)
		}
	})
}

// tasksPage redirects a browser to the search page.
func (c *commandInterface) tasksPage(w http.ResponseWriter, r *http.Request) {
	query, form := r.URL.Query(), url.Values{}
	for name, as := range map[string]string{"queue": "queue", "status": "status", "node": "node", ".limit": "limit", ".skip": "skip"} {
		if v := query.Get(name); v != "" {
			form.Set(as, v)
		}
	}
	http.Redirect(w, r, "/search?"+form.Encode(), http.StatusSeeOther)
}

var hexTask = regexp.MustCompile(`\A[0-9a-f]{24}\z`)

// taskPage shows one task.
func (c *commandInterface) taskPage(w http.ResponseWriter, r *http.Request) {
	search := r.Clone(r.Context())
	search.URL.RawQuery = url.Values{"filter": {`{"_id": {"$oid": "` + r.PathValue("id") + `"}}`}, "output": {"1"}}.Encode()
	c.search(w, search, http.StatusNotFound)
}
