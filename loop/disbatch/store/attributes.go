package store

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/mongo/options"
	"go.mongodb.org/mongo-driver/mongo/readconcern"
	"go.mongodb.org/mongo-driver/mongo/writeconcern"

	"treadle/loop/disbatch/config"
)

// The attributes of a configuration are options of the original's driver. applyAttributes applies or refuses each of
// them by name, since a silently ignored option, such as a write concern, could cost tasks.

// credentials holds the attributes about the user.
type credentials struct {
	Username  string `json:"username"`
	Password  string `json:"password"`
	Source    string `json:"db_name"` // the database with the user
	Mechanism string `json:"auth_mechanism"`
}

// attribute applies the value of one attribute to the options of the driver.
type attribute func(o *options.ClientOptions, value json.RawMessage) error

// attributesByName holds the attributes that do not depend on others.
var attributesByName = map[string]attribute{
	"ssl": applySSL,
	"replica_set_name": func(o *options.ClientOptions, v json.RawMessage) error {
		name, err := textValue(v)
		if name != "" {
			o.SetReplicaSet(name)
		}
		return err
	},
	"app_name": func(o *options.ClientOptions, v json.RawMessage) error {
		name, err := textValue(v)
		o.SetAppName(name)
		return err
	},
	"connect_timeout_ms":          inMilliseconds((*options.ClientOptions).SetConnectTimeout),
	"timeout":                     inMilliseconds((*options.ClientOptions).SetConnectTimeout), // its former name
	"server_selection_timeout_ms": inMilliseconds((*options.ClientOptions).SetServerSelectionTimeout),
	"heartbeat_frequency_ms":      inMilliseconds((*options.ClientOptions).SetHeartbeatInterval),
	"local_threshold_ms":          inMilliseconds((*options.ClientOptions).SetLocalThreshold),
	"socket_timeout_ms":           inMilliseconds((*options.ClientOptions).SetTimeout), // the driver bounds the whole call
	"query_timeout":               inMilliseconds((*options.ClientOptions).SetTimeout), // its former name
	"retry_reads":                 ifTrue((*options.ClientOptions).SetRetryReads),
	"retry_writes":                ifTrue((*options.ClientOptions).SetRetryWrites),
	"read_concern_level": func(o *options.ClientOptions, v json.RawMessage) error {
		level, err := textValue(v)
		o.SetReadConcern(&readconcern.ReadConcern{Level: level})
		return err
	},
	"read_pref_mode": func(_ *options.ClientOptions, v json.RawMessage) error {
		if mode, err := textValue(v); err != nil || mode != "primary" {
			return errors.New("only primary can be used: a read must see the writes before it")
		}
		return nil
	},
}

// credentialAttributes and concernAttributes apply together. perlAttributes concern Perl values only and have no
// effect.
var (
	credentialAttributes = []string{"username", "password", "db_name", "auth_mechanism"}
	concernAttributes    = []string{"j", "w", "wtimeout"}
	perlAttributes       = []string{
		"auto_connect", "auto_reconnect", "bson_codec", "dt_type", "find_master", "inflate_dbrefs", "inflate_regexps",
		"server_selection_try_once", "socket_check_interval_ms",
	}
)

// applyAttributes sets the driver's options to a configuration's attributes, in the order of their names. It returns an
// error for an attribute that is not known or has a wrong value. Attributes that are null have no effect.
func applyAttributes(o *options.ClientOptions, text json.RawMessage) error {
	if len(text) == 0 {
		return nil
	}
	var attributes map[string]json.RawMessage
	if err := json.Unmarshal(text, &attributes); err != nil {
		return err
	}
	maps.DeleteFunc(attributes, func(_ string, value json.RawMessage) bool { return string(value) == "null" })
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		apply := attributesByName[name]
		switch {
		case apply != nil:
			if err := apply(o, attributes[name]); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		case !slices.Contains(slices.Concat(credentialAttributes, concernAttributes, perlAttributes), name):
			return fmt.Errorf("%s is not known: remove it, or say it in the address of mongohost", name)
		}
	}
	var c credentials
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	if c.Username != "" {
		o.SetAuth(options.Credential{Username: c.Username, Password: c.Password, AuthSource: c.Source, AuthMechanism: c.Mechanism})
	}
	return applyConcern(o, attributes)
}

// applyConcern applies the attributes of the write concern to that of the address.
func applyConcern(o *options.ClientOptions, attributes map[string]json.RawMessage) error {
	concern := new(writeconcern.WriteConcern)
	if fromAddress := o.WriteConcern; fromAddress != nil {
		// Without wtimeout: its effect together with the time-out of a call is undefined.
		concern.W, concern.Journal = fromAddress.W, fromAddress.Journal
	}
	if v, ok := attributes["j"]; ok {
		journal := isTrue(v)
		concern.Journal = &journal
	}
	if v, ok := attributes["w"]; ok {
		text, err := textValue(v)
		if err != nil {
			return fmt.Errorf("w: %w", err)
		}
		concern.W = text
		if n, err := strconv.Atoi(text); err == nil {
			concern.W = n
		}
	}
	switch wait, err := numberValue(attributes["wtimeout"]); {
	case concern.W == 0:
		return errors.New("w: 0 cannot be used: a write that nobody acknowledges loses tasks")
	case attributes["wtimeout"] != nil && err != nil:
		return fmt.Errorf("wtimeout: %w", err)
	case wait > 0 && needsReplicas(concern.W): // the server ignores wtimeout without replicas
		return errors.New("wtimeout cannot be used with w over 1: remove it, and set timeoutMS in the address of mongohost, which bounds a call with its replication")
	}
	o.SetWriteConcern(concern)
	return nil
}

// needsReplicas reports whether a write concern waits for more than one server: a number over 1, or a name such as
// majority. nil means 1.
func needsReplicas(w any) bool {
	n, isNumber := w.(int)
	return w != nil && (!isNumber || n > 1)
}

// inMilliseconds returns an attribute that sets a time. A time that is not positive keeps the driver's default.
func inMilliseconds(set func(*options.ClientOptions, time.Duration) *options.ClientOptions) attribute {
	return func(o *options.ClientOptions, v json.RawMessage) error {
		n, err := numberValue(v)
		if n > 0 {
			set(o, time.Duration(n)*time.Millisecond)
		}
		return err
	}
}

// ifTrue returns an attribute that sets a switch.
func ifTrue(set func(*options.ClientOptions, bool) *options.ClientOptions) attribute {
	return func(o *options.ClientOptions, v json.RawMessage) error {
		set(o, isTrue(v))
		return nil
	}
}

// isTrue reads a value in the sense of Perl.
func isTrue(v json.RawMessage) bool {
	var t config.Truth
	_ = t.UnmarshalJSON(v) // never fails
	return bool(t)
}

// textValue reads a string or a number as text.
func textValue(v json.RawMessage) (string, error) {
	var text string
	var number json.Number
	if json.Unmarshal(v, &text) == nil {
		return text, nil
	}
	if json.Unmarshal(v, &number) == nil {
		return number.String(), nil
	}
	return "", fmt.Errorf("%s is no text", v)
}

// maxMilliseconds bounds the time of an attribute: a day.
const maxMilliseconds = 24 * 60 * 60 * 1000

// numberValue reads an integer or a text of one.
func numberValue(v json.RawMessage) (int, error) {
	n, err := strconv.Atoi(string(bytes.Trim(v, `"`)))
	if err != nil || n > maxMilliseconds {
		return 0, fmt.Errorf("%s is no number up to %d", v, maxMilliseconds)
	}
	return n, nil
}

// tlsAttributes holds the members of the attribute ssl.
type tlsAttributes struct {
	Verify   *json.Number `json:"SSL_verify_mode"` // 0: accept every certificate
	CA       string       `json:"SSL_ca_file"`
	Cert     string       `json:"SSL_cert_file"`
	Key      string       `json:"SSL_key_file"`
	HostName string       `json:"SSL_hostname"`
}

// applySSL sets the TLS options: none if the attribute is false, the defaults if it is true, else those of its members.
func applySSL(o *options.ClientOptions, text json.RawMessage) error {
	var t tlsAttributes
	switch string(text) {
	case "false", "0", `""`, `"0"`:
		return nil
	case "true", "1", `"1"`:
	default:
		strict := json.NewDecoder(bytes.NewReader(text))
		strict.DisallowUnknownFields() // its error names the field
		if err := strict.Decode(&t); err != nil {
			return fmt.Errorf("%w: SSL_ca_file, SSL_cert_file, SSL_key_file, SSL_verify_mode and SSL_hostname can be used", err)
		}
	}
	settings, err := t.config()
	if err != nil {
		return err
	}
	o.SetTLSConfig(settings)
	return nil
}

// config reads the files of the attributes and returns the TLS options.
func (t *tlsAttributes) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.HostName}
	c.InsecureSkipVerify = t.Verify != nil && t.Verify.String() == "0"
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
