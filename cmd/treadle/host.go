package main

import (
	"cmp"
	"net"
	"net/url"
	"os"
	"strings"

	"treadle/loop/client"
)

// defaultHost is the server's own default, which needs no file to exist.
const defaultHost = "tcp://127.0.0.1:5000"

// host returns the address of the server's Periodic protocol.
func (c *cli) host() string {
	return cmp.Or(c.Host, os.Getenv("TREADLE_HOST"), os.Getenv("PERIODIC_PORT"), defaultHost)
}

// setServer sets flag, an older name of -H, to the address of the server's other protocol: that of -H or
// of the flag, else that of the protocol's variable, else TREADLE_HOST if it is a host alone, else
// the default. TREADLE_HOST with a port or a path is an address of Periodic.
func (c *cli) setServer(flag *string, variable, standard string) error {
	if c.Host != "" && *flag != "" {
		return badUsage("the server has two names, %q and %q: -H is enough", c.Host, *flag)
	}
	shared, _ := client.HostAlone(os.Getenv("TREADLE_HOST"))
	*flag = cmp.Or(c.Host, *flag, os.Getenv(variable), shared, standard)
	return nil
}

// httpBase turns an address, which a setting has, into the URL of a server that speaks HTTP. A host
// alone has the default port, and a URL is left as it is.
func httpBase(address, setting, defaultPort string) (string, error) {
	base := address
	if rest, tcp := strings.CutPrefix(address, "tcp://"); tcp || !strings.Contains(address, "://") {
		if host, alone := client.HostAlone(rest); alone {
			rest = net.JoinHostPort(host, defaultPort)
		}
		base = "http://" + rest
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", badUsage("%s: %q is neither a host nor host:port nor http://host:port", setting, address)
	}
	return strings.TrimSuffix(base, "/"), nil
}
