package store_test

import (
	"strings"
	"testing"
	"time"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/store"
)

// TestAttributes: applyAttributes applies every attribute or refuses it by name.
func TestAttributes(t *testing.T) {
	f := func(attributes, want string) {
		t.Helper()
		c, err := config.Parse([]byte(`{"attributes": {` + attributes + `}}`))
		must(t, err)
		_, err = store.ClientOptions(c.Connection(config.ComponentNode))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), "attributes: "+want) {
			t.Errorf("%s: %v, want %q", attributes, err, want)
		}
	}
	f(`"j": 1, "w": "majority", "wtimeout": 0, "dt_type": null, "bson_codec": {}, "server_selection_try_once": 1, "ssl": false`, "")
	f(`"w": 1, "wtimeout": "5000", "read_pref_mode": "primary", "ssl": {"SSL_verify_mode": "0"}`, "")
	f(`"w": 2, "wtimeout": 5000`, "wtimeout cannot be used with w over 1")
	f(`"w": "majority", "wtimeout": 1`, "wtimeout cannot be used")
	f(`"wtimeout": "soon"`, "wtimeout: ")
	f(`"w": 0`, "w: 0 cannot be used")
	f(`"w": []`, "w: [] is no text")
	f(`"read_pref_mode": "secondary"`, "read_pref_mode: only primary")
	f(`"connect_timeout_ms": "x"`, "connect_timeout_ms: ")
	f(`"heartbeat_frequency_ms": 1e300`, "heartbeat_frequency_ms: ")
	f(`"replicaSet": "rs0"`, "replicaSet is not known")
	f(`"max_time_ms": 5`, "max_time_ms is not known")
	f(`"ssl": {"SSL_ca_path": "/etc/ssl"}`, `ssl: json: unknown field "SSL_ca_path": SSL_ca_file`)

	c, err := config.Parse([]byte(`{"attributes": {"j": "0", "w": "2", "replica_set_name": "rs0", "connect_timeout_ms": 70, "socket_timeout_ms": 80, "server_selection_timeout_ms": 90, "retry_writes": 0, "retry_reads": 1,
		"heartbeat_frequency_ms": 5000, "local_threshold_ms": 7, "read_concern_level": "majority", "app_name": "site", "username": "u", "password": "p", "auth_mechanism": "SCRAM-SHA-1"}}`))
	must(t, err)
	o, err := store.ClientOptions(c.Connection(config.ComponentNode))
	must(t, err)
	if *o.WriteConcern.Journal || o.WriteConcern.W != 2 || *o.ReplicaSet != "rs0" || *o.ConnectTimeout != 70*time.Millisecond || *o.Timeout != 80*time.Millisecond || *o.ServerSelectionTimeout != 90*time.Millisecond ||
		*o.RetryWrites || !*o.RetryReads || *o.HeartbeatInterval != 5*time.Second || *o.LocalThreshold != 7*time.Millisecond || o.ReadConcern.Level != "majority" || *o.AppName != "site" || o.Auth.AuthMechanism != "SCRAM-SHA-1" {
		t.Errorf("the driver is told %+v", o)
	}

	// timeoutMS replaces wtimeoutMS and socketTimeoutMS: their combination is undefined.
	c, err = config.Parse([]byte(`{"mongohost": "mongodb://localhost/?w=2&journal=false&wtimeoutMS=5&socketTimeoutMS=6&timeoutMS=7"}`))
	must(t, err)
	o, err = store.ClientOptions(c.Connection(config.ComponentNode))
	must(t, err)
	if got := o.WriteConcern; got.W != 2 || got.Journal == nil || *got.Journal || got.WTimeout != 0 || o.SocketTimeout != nil || *o.Timeout != 7*time.Millisecond {
		t.Errorf("with times of the address the driver is told %+v, %+v", got, o)
	}
	c, err = config.Parse([]byte(`{"mongohost": "mongodb://localhost/?journal=false&timeoutMS=soon"}`))
	must(t, err)
	if _, err = store.ClientOptions(c.Connection(config.ComponentNode)); err == nil || !strings.Contains(err.Error(), "mongohost: ") {
		t.Errorf("an address with a fault: %v", err)
	}
}
