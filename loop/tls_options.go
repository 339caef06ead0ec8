package loop

import (
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"

	"treadle/loop/certs"
	"treadle/loop/protocol"
)

// TLSOptions are the settings of addresses tls://host:port. An address may have files of its own, as
// tls://host:port?cert=FILE&key=FILE&ca=FILE.
type TLSOptions struct {
	Cert string `name:"tls-cert" placeholder:"FILE" help:"Certificate of the addresses tls://host:port in PEM form, with those between it and the root; read again when it changes, as are --tls-key and --tls-ca (default: none)."`
	Key  string `name:"tls-key" placeholder:"FILE" help:"Key of --tls-cert (default: none)."`
	CA   string `name:"tls-ca" placeholder:"FILE" help:"Certificates that have signed those of clients: every client of an address tls://host:port must have one then (default: none, clients need no certificate)."`
	Min  string `name:"tls-min" enum:"1.2,1.3" default:"1.2" help:"Earliest version of TLS that is spoken: 1.2 or 1.3 (default: ${default})."`
}

// filesOf returns the files of an address: its own, and else those of the settings.
func (o *TLSOptions) filesOf(address string) (certs.Files, error) {
	files, err := certs.FilesOf(address)
	if files.Cert == "" {
		files.Cert, files.Key = o.Cert, o.Key
	}
	if files.CA == "" {
		files.CA = o.CA
	}
	return files, err
}

// least returns the earliest version of TLS.
func (o *TLSOptions) least() uint16 {
	if o.Min == "1.3" {
		return tls.VersionTLS13
	}
	return tls.VersionTLS12
}

// tlsAddresses returns the addresses tls://host:port, by their settings.
func (o *Options) tlsAddresses() map[string][]string {
	all := map[string][]string{
		"periodic": o.Periodic.Addresses(), "gloom-masters": o.Gloom.Masters, "gloom-slaves": o.Gloom.Slaves,
		"kts46": o.Kts46.Listen, "kts46-json": o.Kts46.JSON, "beanstalk": o.Beanstalk.Listen, "faktory": o.Faktory.Listen,
		"http": {o.HTTP},
	}
	for setting, addresses := range all {
		if all[setting] = slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return !strings.HasPrefix(a, "tls://") }); len(all[setting]) == 0 {
			delete(all, setting)
		}
	}
	return all
}

// httpListens returns the address of --http with its network.
func (o *Options) httpListens() string {
	if strings.HasPrefix(o.HTTP, "tls://") {
		return o.HTTP
	}
	return "tcp://" + o.HTTP
}

// validateTLS returns an *OptionError for certificates that cannot be used.
func (o *Options) validateTLS() error {
	if (o.TLS.Cert == "") != (o.TLS.Key == "") {
		return protocol.BadOption("tls-cert", "a certificate and its key go together: give --tls-cert and --tls-key")
	}
	addresses := o.tlsAddresses()
	if o.portsOpen { // with the certificates that they have: those on the disk may be of no use now
		return nil
	}
	if len(addresses) == 0 && (o.TLS.Cert != "" || o.TLS.CA != "") {
		return protocol.BadOption("tls-cert", "no address is tls://: write, for example, --periodic tls://0.0.0.0:5000")
	}
	for _, setting := range slices.Sorted(maps.Keys(addresses)) {
		for _, a := range addresses[setting] {
			files, err := o.TLS.filesOf(a)
			if err == nil && files.Cert == "" {
				err = fmt.Errorf("%s has no certificate: give --tls-cert and --tls-key, or write ?cert=FILE&key=FILE behind it", a)
			}
			if err == nil {
				_, err = certs.Open(files, o.TLS.least(), o.Log)
			}
			if err != nil {
				return &OptionError{Setting: setting, Err: err}
			}
		}
	}
	return nil
}
