package admin

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
)

// idBase is the base of the numbers in the ids of connections, which have up to 64 bits.
const idBase = 36

// maxViewed bounds the connections that are looked at for one page: each takes its turn in an event loop.
const maxViewed = 10_000

// getConnections answers with a page of the connections, by id. protocol=P and queue=Q leave others out. A page for
// which maxViewed connections were looked at may be short.
func (api *API) getConnections(r *http.Request) (any, error) {
	q, err := parameters(r)
	if err != nil {
		return nil, err
	}
	limit, err := limitOf(q.Get("limit"), defaultPage)
	if err != nil {
		return nil, err
	}
	from := uint64(0)
	if cursor := q.Get("after"); cursor != "" {
		if from, err = strconv.ParseUint(cursor, idBase, 64); err != nil {
			return nil, badf("the cursor %.100q is none that a page has", cursor)
		}
	}
	queue := string(protocol.Queue([]byte(q.Get("queue"))))
	page := &codec.Connections{Connections: []codec.Connection{}}
	for viewed := 0; viewed < maxViewed; {
		open := api.host.Connections(from, limit)
		for n := range open {
			c := &open[n]
			if p := q.Get("protocol"); (p == "" || p == c.Protocol) && (queue == "" || slices.Contains(c.Peer.Queues, queue)) {
				page.Connections = append(page.Connections, connectionOf(c))
			}
			from = c.ID + 1
			if len(page.Connections) == limit {
				break
			}
		}
		if len(open) < limit && len(page.Connections) < limit {
			return page, nil
		}
		if viewed += len(open); len(page.Connections) == limit {
			break
		}
	}
	page.Next = strconv.FormatUint(from, idBase)
	return page, nil
}

// connectionOf returns a connection as JSON has it.
func connectionOf(c *Connection) codec.Connection {
	shown := codec.Connection{
		ID: strconv.FormatUint(c.ID, idBase), Protocol: c.Protocol, Role: c.Role.String(), Remote: c.Remote, Since: c.Since, Idle: max(c.Idle, 0),
		Received: c.Received, Sent: c.Sent, Unsent: c.Unsent, MoreQueues: c.Peer.More, Waiting: c.Peer.Slots, Running: c.Peer.Running,
	}
	for _, queue := range c.Peer.Queues {
		shown.Queues = append(shown.Queues, strings.ToValidUTF8(protocol.Unescape(queue), "\ufffd"))
	}
	return shown
}

// errNoConnection answers a request about a connection that there is not.
var errNoConnection = errors.New("no connection has this id: it was closed, or the server was restarted")

// errNoQuiet answers a request to quiet a connection without a worker of a protocol that can be asked.
var errNoQuiet = errors.New("the connection has no worker that can be asked to stop: only Faktory's workers can be")

// connectionID reads the id of a connection.
func connectionID(text string) (uint64, error) {
	id, err := strconv.ParseUint(text, idBase, 64)
	if err != nil {
		return 0, badf("%.100q is no id of a connection", text)
	}
	return id, nil
}

// quietConnection asks the worker of a connection to take no more jobs.
func (api *API) quietConnection(r *http.Request) (any, error) {
	var q codec.Quiet
	if err := decodeBody(r, &q); err != nil {
		return nil, err
	}
	id, err := connectionID(q.ID)
	if err != nil {
		return nil, err
	}
	switch found, able := api.host.QuietConnection(id, q.End); {
	case !found:
		return nil, &notFound{errNoConnection}
	case !able:
		return nil, &conflict{errNoQuiet}
	}
	return struct{}{}, nil
}

// closeConnection closes a connection. The jobs of its worker are released as when the worker leaves.
func (api *API) closeConnection(r *http.Request) (any, error) {
	var c codec.Close
	if err := decodeBody(r, &c); err != nil {
		return nil, err
	}
	id, err := connectionID(c.ID)
	if err != nil {
		return nil, err
	}
	if !api.host.CloseConnection(id) {
		return nil, &notFound{errNoConnection}
	}
	api.host.Log().Info("an operator closes a connection", "id", c.ID)
	return struct{}{}, nil
}
