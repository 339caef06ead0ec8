package config

import (
	"context"
	"encoding/json"
	"net"
)

// Connection is how a component of a site reaches its database.
type Connection struct {
	Path       string          // of the configuration, for errors
	Component  string          // the program that connects
	MongoHost  string          // as in File
	Database   string          // as in File
	Attributes json.RawMessage // as in File
	Password   *string         // of the user with the component's name; nil: auth has none
	Schema     int             // dialect of new queues: 2016 or 2018
	Dial       dialer          // as in File
}

// dialer connects to an address.
type dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Connection returns how a component reaches the database.
func (f *File) Connection(component string) Connection {
	c := Connection{
		Path: f.Path, Component: component, MongoHost: f.MongoHost, Database: f.Database, Attributes: f.Attributes,
		Schema: int(f.Schema), Dial: f.Dial,
	}
	if password, ok := f.Auth[component]; ok {
		c.Password = &password
	}
	return c
}
