package admin

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	codec "treadle/codec/admin"
)

// Disbatch is the Disbatch site of which the server is a node. Its errors have a method HTTPStatus.
type Disbatch interface {
	// Site returns the queues and nodes.
	Site(ctx context.Context) (*codec.DisbatchSite, error)
	// Tasks searches tasks by the parameters of a request.
	Tasks(ctx context.Context, parameters url.Values) (*codec.DisbatchTasks, error)
	// Task returns the task of an id.
	Task(ctx context.Context, id string) (*codec.DisbatchTask, error)
	// Text returns the params, stdout or stderr of a task.
	Text(ctx context.Context, id, name string) (string, error)
}

var errNoSite = errors.New("this server is no node of a Disbatch site: --disbatch names its configuration")

// askSite answers with what ask returns of the site.
func (api *API) askSite(r *http.Request, ask func(site Disbatch, q url.Values) (any, error)) (any, error) {
	q, err := parameters(r)
	if err != nil {
		return nil, err
	}
	if api.o.Disbatch == nil {
		return nil, &notFound{errNoSite}
	}
	return ask(api.o.Disbatch, q)
}

func (api *API) getDisbatch(r *http.Request) (any, error) {
	return api.askSite(r, func(site Disbatch, _ url.Values) (any, error) { return site.Site(r.Context()) })
}

func (api *API) getDisbatchTasks(r *http.Request) (any, error) {
	return api.askSite(r, func(site Disbatch, q url.Values) (any, error) {
		return site.Tasks(r.Context(), url.Values{
			"queue": {q.Get("queue")}, "status": {q.Get("status")}, "node": {q.Get("node")}, "filter": {q.Get("filter")},
			"limit": {q.Get("limit")}, "after": {q.Get("after")},
		})
	})
}

func (api *API) getDisbatchTask(r *http.Request) (any, error) {
	return api.askSite(r, func(site Disbatch, q url.Values) (any, error) { return site.Task(r.Context(), q.Get("id")) })
}

// sendDisbatchText answers with the bytes of a task's payload or output.
func (api *API) sendDisbatchText(w http.ResponseWriter, r *http.Request) {
	text, err := api.askSite(r, func(site Disbatch, q url.Values) (any, error) {
		return site.Text(r.Context(), q.Get("id"), q.Get("name"))
	})
	if err != nil {
		api.write(w, nil, err)
		return
	}
	all := []byte(text.(string))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(pieceTime)) // fails only when the connection is closed
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.Itoa(len(all)))
	h.Set("Content-Disposition", `attachment; filename="`+r.URL.Query().Get("name")+`"`) // the site knows the name
	h.Set("X-Content-Type-Options", "nosniff")
	_, transfer := api.outgoing.Begin(context.Background(), w)
	defer transfer.End()
	_ = transfer.Send(w, all) // net/http closes the connection after fewer bytes than announced, which the peer notices
}
