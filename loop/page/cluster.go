package page

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	codec "treadle/codec/admin"
)

// clusterNode is a node of the cluster as the page has it.
type clusterNode struct {
	codec.ClusterNode
	Role string // the role, or unreachable
}

// Lag writes how many entries the node lacks.
func (n *clusterNode) Lag() string {
	if n.Behind == nil {
		return "–"
	}
	return number(*n.Behind)
}

// Contacted writes how long ago the node has heard of the leader.
func (n *clusterNode) Contacted() string {
	if n.Contact < 1000 {
		return "under 1 s ago"
	}
	return span(n.Contact/1000) + " ago"
}

// Clock writes how far the clock of the node is from that of the node that has asked. The time that its answer took is
// a part of that.
func (n *clusterNode) Clock() string {
	switch away := time.Duration(n.Ahead) * time.Millisecond; {
	case away >= time.Second:
		return span(int64(away.Seconds())) + " ahead"
	case away <= -time.Second:
		return span(int64(-away.Seconds())) + " behind"
	}
	return "within 1 s"
}

// DiskWrite writes the average time of a write of late.
func (n *clusterNode) DiskWrite() string {
	return strconv.FormatFloat(float64(n.Write)/1000, 'f', 1, 64) + " ms"
}

type clusterData struct {
	*codec.Cluster
	Rows      []clusterNode
	Answering int
	Away      string // why the server that has the other pages cannot be reached; empty: this is it
}

// cluster shows the nodes of the cluster.
func (s *Pages) cluster(r *http.Request) (*view, error) {
	d := &clusterData{Cluster: new(codec.Cluster)}
	if err := s.api.get(r, d.Cluster, "/cluster"); err != nil {
		return nil, err
	}
	for _, n := range d.Nodes {
		row := clusterNode{n, n.Role}
		if row.Role == "" {
			row.Role = "unreachable"
		} else {
			d.Answering++
		}
		d.Rows = append(d.Rows, row)
	}
	return &view{name: "cluster", title: "Cluster", area: "/cluster", data: d}, nil
}

// Away returns how to answer a request for a page, or a file of it, while the server that has the pages cannot be
// reached: with the cluster as this node sees it, on a page that loads itself again. It returns nil for other requests.
// The API of the Pages is that of the node. Its overview is an error that says why.
func (s *Pages) Away(r *http.Request) http.HandlerFunc {
	path, below := strings.CutPrefix(r.URL.Path, s.root)
	file, isAsset := strings.CutPrefix(path, "/assets/")
	switch {
	case !below || r.Method != http.MethodGet || strings.HasPrefix(r.URL.Path, apiRoot+"/"):
		return nil
	case isAsset:
		r.SetPathValue("file", file)
		return s.guarded(s.serveAsset)
	case strings.Contains(r.Header.Get("Accept"), "text/html"):
		return s.guarded(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, (*Pages).away) })
	}
	return nil
}

// away is the page of Away.
func (s *Pages) away(r *http.Request) (*view, error) {
	v, err := s.cluster(r)
	if err != nil {
		return nil, err
	}
	if _, err := s.currentOverview(r); err != nil {
		v.data.(*clusterData).Away = err.Error()
	}
	v.title, v.status, v.static, v.reload = "No leader", http.StatusServiceUnavailable, true, true
	return v, nil
}
