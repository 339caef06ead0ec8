package disbatch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/mongo/options"
	"go.mongodb.org/mongo-driver/mongo/writeconcern"
)

// Components of the original: users of the database, whose passwords are in the
// configuration's auth.
const (
	ComponentNode   = "disbatchd"
	ComponentWeb    = "disbatch_web"
	ComponentRunner = "task_runner"
)

// Bounds of what is asked of the database. Every call ends with one of them.
const (
	// callTimeout is of one call, with the driver's own retries. A request to the command
	// interface has its own time, which may be longer.
	callTimeout = 10 * time.Second
	// connectTimeout is for finding a server that is there, and for connecting to it: a
	// request to the command interface waits no longer for a database that is away.
	connectTimeout = 5 * time.Second
	// maxConnections bounds the driver's pool: more calls at once than any node makes.
	maxConnections = 64
)

// clientOptions are the driver's options for a component of the configuration.
func clientOptions(c *Config, component string) (*options.ClientOptions, error) {
	address := c.MongoHost
	if !strings.Contains(address, "://") {
		address = "mongodb://" + address + "/"
	}
	o := options.Client().ApplyURI(address).SetAppName("treadle " + component)
	if o.WriteConcern != nil && journalOff(address) { // there is none where the address has a fault
		o.SetWriteConcern(&writeconcern.WriteConcern{W: o.WriteConcern.W, Journal: new(false)})
	}
	o.SocketTimeout = nil // it has no defined effect beside the time-out of a call
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
	if password, ok := c.Auth[component]; ok {
		o.SetAuth(options.Credential{Username: component, Password: password, AuthSource: c.Database})
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("mongohost: %w", err)
	}
	return o, nil
}

// journalOff says whether an address asks for writes without a journal, which the driver takes for no wish at all.
func journalOff(address string) bool {
	_, query, _ := strings.Cut(address, "?")
	said := strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' })
	return slices.ContainsFunc(said, func(option string) bool { return strings.EqualFold(option, "journal=false") })
}

// login is the setting that says as which user a component is known to the database.
func login(c *Config, component string, o *options.ClientOptions) string {
	var a credentials
	_ = json.Unmarshal(c.Attributes, &a) // the options are made of them already
	_, own := c.Auth[component]
	switch {
	case own || o.Auth == nil:
		return component + " of auth"
	case a.Username != "":
		return "username and password of attributes"
	}
	return "mongohost"
}
