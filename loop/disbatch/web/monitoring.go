package web

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"treadle/loop/disbatch/store"
)

// Further routes of 4.1: the list of routes, and monitoring.

// staleBalance is how long queue balance may be silent before monitoring reports it.
const staleBalance = time.Minute

// getInfo returns the routes and extensions.
func (c *commandInterface) getInfo(routes map[string]route) route {
	return func(*http.Request, params) reply {
		byMethod := make(map[string][]string)
		for _, pattern := range slices.Sorted(maps.Keys(routes)) {
			method, path, _ := strings.Cut(pattern, " ")
			byMethod[method] = append(byMethod[method], path)
		}
		return success(object{"database": c.config.Database, "web_extensions": append([]string{}, c.config.WebExtensions...), "routes": byMethod})
	}
}

// getMonitoring tells a monitoring system whether nodes and queue balance run.
func (c *commandInterface) getMonitoring(r *http.Request, _ params) reply {
	if !c.config.Monitoring {
		disabled := object{"status": "OK", "message": "monitoring disabled"}
		return success(object{"disbatch": disabled, "queuebalance": disabled})
	}
	return success(object{"disbatch": c.checkNodes(r.Context()), "queuebalance": c.checkBalance(r.Context())})
}

// checkNodes reports whether a node is alive, with the seconds since the last report of each.
func (c *commandInterface) checkNodes(ctx context.Context) object {
	nodes, err := c.store.Nodes(ctx)
	switch {
	case err != nil:
		return object{"status": "CRITICAL", "message": c.databaseError("get current Disbatch nodes", err).why}
	case len(nodes) == 0:
		return object{"status": "WARNING", "message": "No Disbatch nodes found"}
	}
	seen, now := map[string]map[string]int64{}, time.Now()
	for i := range nodes {
		kind := "fresh"
		if c.late(&nodes[i], now) {
			kind = "stale"
		}
		if seen[kind] == nil {
			seen[kind] = make(map[string]int64)
		}
		seen[kind][nodes[i].Name] = int64(now.Sub(nodes[i].Timestamp).Seconds())
	}
	if seen["fresh"] == nil {
		return object{"status": "CRITICAL", "message": "No active Disbatch nodes found", "nodes": seen}
	}
	return object{"status": "OK", "message": "Disbatch is running on one or more nodes", "nodes": seen}
}

// checkBalance reports the state that queue balance has written, unless that is older than staleBalance.
func (c *commandInterface) checkBalance(ctx context.Context) object {
	if !c.balances() {
		return object{"status": "OK", "message": "queuebalance disabled"}
	}
	doc, err := c.store.Balance(ctx)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return object{"status": "CRITICAL", "message": c.databaseError("get the balance document", err).why}
	}
	status, message := store.Text(doc.Lookup("status")), store.Text(doc.Lookup("message"))
	quiet := time.Since(time.Unix(0, 0))
	if at := doc.Lookup("timestamp"); !store.Missing(at) {
		quiet = time.Since(store.Instant(at))
	}
	switch {
	case quiet > staleBalance:
		return object{"status": "CRITICAL", "message": fmt.Sprintf("queuebalanced not running for %ds", int64(quiet.Seconds()))}
	case status != "OK" && status != "WARNING" && status != "CRITICAL":
		return object{"status": "CRITICAL", "message": "queuebalanced unknown status", "result": object{"status": status, "message": message}}
	}
	return object{"status": status, "message": message}
}
