package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/mongo/options"
	"go.mongodb.org/mongo-driver/mongo/writeconcern"

	"treadle/loop/disbatch/config"
)

// Bounds of calls. Every call ends with one of them.
const (
	// callTimeout bounds one call with the driver's own retries, unless its context has a deadline, which may be later.
	callTimeout = 10 * time.Second
	// connectTimeout bounds the selection of a server and the connection to it. No call waits longer for a database that does
	// not answer.
	connectTimeout = 5 * time.Second
	// maxConnections bounds the driver's pool. It exceeds the concurrent calls of any program of a site.
	maxConnections = 64
)

// clientOptions returns the driver's options of a connection.
func clientOptions(c config.Connection) (*options.ClientOptions, error) {
	address := c.MongoHost
	if !strings.Contains(address, "://") {
		address = "mongodb://" + address + "/"
	}
	o := options.Client().ApplyURI(address).SetAppName("treadle " + c.Component)
	if o.WriteConcern != nil && journalOff(address) { // nil if the address has a fault
		o.SetWriteConcern(&writeconcern.WriteConcern{W: o.WriteConcern.W, Journal: new(false)})
	}
	o.SocketTimeout = nil // its effect beside the time-out of a call is undefined
	if o.Timeout == nil {
		o.SetTimeout(callTimeout)
	}
	if o.ConnectTimeout == nil {
		o.SetConnectTimeout(connectTimeout)
	}
	if o.ServerSelectionTimeout == nil {
		o.SetServerSelectionTimeout(connectTimeout)
	}
	if o.MaxPoolSize == nil {
		o.SetMaxPoolSize(maxConnections)
	}
	if c.Dial != nil {
		o.SetDialer(c.Dial)
	}
	if err := applyAttributes(o, c.Attributes); err != nil {
		return nil, fmt.Errorf("attributes: %w", err)
	}
	if c.Password != nil {
		o.SetAuth(options.Credential{Username: c.Component, Password: *c.Password, AuthSource: c.Database})
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("mongohost: %w", err)
	}
	return o, nil
}

// journalOff reports whether an address has journal=false, which the driver treats as unset.
func journalOff(address string) bool {
	_, query, _ := strings.Cut(address, "?")
	parameters := strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' })
	return slices.ContainsFunc(parameters, func(option string) bool { return strings.EqualFold(option, "journal=false") })
}

// login returns the name of the setting with the user.
func login(c config.Connection, o *options.ClientOptions) string {
	var a credentials
	_ = json.Unmarshal(c.Attributes, &a) // clientOptions has checked them
	switch {
	case c.Password != nil || o.Auth == nil:
		return c.Component + " of auth"
	case a.Username != "":
		return "username and password of attributes"
	}
	return "mongohost"
}
