package main

import (
	"cmp"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"treadle/loop"
	"treadle/loop/client"
)

// host returns the address of the server's Periodic protocol. The default one works without a file, unlike the socket.
func (c *cli) host() string {
	return cmp.Or(c.Host, os.Getenv("TREADLE_HOST"), os.Getenv("PERIODIC_PORT"), loop.DefaultPeriodic)
}

// setServer sets flag, an older name of -H, to the address for a protocol other than Periodic. It takes -H or the
// flag, else the protocol's variable, else TREADLE_HOST if that is a host alone, else standard. TREADLE_HOST with a
// port or a path is an address of Periodic.
func (c *cli) setServer(flag *string, variable, standard string) error {
	if c.Host != "" && *flag != "" {
		return badUsage("the server has two names, %q and %q: -H is enough", c.Host, *flag)
	}
	shared, _ := client.HostAlone(os.Getenv("TREADLE_HOST"))
	*flag = cmp.Or(c.Host, *flag, os.Getenv(variable), shared, standard)
	return nil
}

// httpBase returns the base URL for an address, and what makes requests there. A host alone gets the default port, a
// URL stays as it is, and https://host:port?ca=FILE has the certificates of client.Dial; errors name the setting.
func httpBase(address, setting, defaultPort string) (base string, requests *http.Client, err error) {
	base = address
	if rest, secured := strings.CutPrefix(address, "tls://"); secured {
		base = "https://" + rest
	}
	if rest, tcp := strings.CutPrefix(address, "tcp://"); tcp || !strings.Contains(address, "://") {
		if host, alone := client.HostAlone(rest); alone {
			rest = net.JoinHostPort(host, defaultPort)
		}
		base = "http://" + rest
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", nil, badUsage("%s: %q is neither a host nor host:port nor http://host:port nor https://host:port", setting, address)
	}
	if requests, err = client.HTTPFor(u); err != nil {
		return "", nil, badUsage("%s: %v", setting, err)
	}
	u.RawQuery = ""
	return strings.TrimSuffix(u.String(), "/"), requests, nil
}
