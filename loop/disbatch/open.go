package disbatch

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Components of the original: users of the database, whose passwords are in the
// configuration's auth.
const (
	ComponentNode   = "disbatchd"
	ComponentWeb    = "disbatch_web"
	ComponentRunner = "task_runner"
	ComponentPlugin = "plugin"
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
	if c.dial != nil {
		o.SetDialer(c.dial)
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

// login is the setting that says as which user a component is known to the database.
func login(c *Config, component string, o *options.ClientOptions) string {
	var a attributes
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

// attributes are those of the original's driver that mean something here. The others
// are about that driver and are ignored.
type attributes struct {
	SSL        json.RawMessage `json:"ssl"` // true, or an object of tlsAttributes
	Username   string          `json:"username"`
	Password   string          `json:"password"`
	Source     string          `json:"db_name"` // where the user is known
	ReplicaSet string          `json:"replica_set_name"`
}

type tlsAttributes struct {
	Verify   *int   `json:"SSL_verify_mode"` // 0 trusts everybody
	CA       string `json:"SSL_ca_file"`
	Cert     string `json:"SSL_cert_file"`
	Key      string `json:"SSL_key_file"`
	HostName string `json:"SSL_hostname"`
}

func applyAttributes(o *options.ClientOptions, text json.RawMessage) error {
	var a attributes
	if len(text) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return err
	}
	if a.ReplicaSet != "" {
		o.SetReplicaSet(a.ReplicaSet)
	}
	if a.Username != "" {
		o.SetAuth(options.Credential{Username: a.Username, Password: a.Password, AuthSource: a.Source})
	}
	var t tlsAttributes
	switch string(a.SSL) {
	case "", "null", "false", "0", `""`:
		return nil
	case "true", "1":
	default:
		if err := json.Unmarshal(a.SSL, &t); err != nil {
			return fmt.Errorf("ssl: %w", err)
		}
	}
	config, err := t.config()
	if err != nil {
		return fmt.Errorf("ssl: %w", err)
	}
	o.SetTLSConfig(config)
	return nil
}

func (t *tlsAttributes) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.HostName}
	c.InsecureSkipVerify = t.Verify != nil && *t.Verify == 0
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("cannot read SSL_ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("SSL_ca_file: %s holds no certificate", t.CA)
		}
	}
	if t.Cert != "" {
		key := t.Key
		if key == "" {
			key = t.Cert // one file may hold both
		}
		pair, err := tls.LoadX509KeyPair(t.Cert, key)
		if err != nil {
			return nil, fmt.Errorf("SSL_cert_file: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
