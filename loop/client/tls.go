package client

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"strings"

	"treadle/loop/certs"
)

// dialTLS connects to host:port?ca=FILE&cert=FILE&key=FILE as connectTo. Its name of the address is without the files.
func dialTLS(ctx context.Context, target, setting string) (c net.Conn, name string, err error) {
	files, err := certs.FilesOf("tls://" + target)
	if err != nil {
		return nil, "", &AddressError{"tls://" + target, setting, err}
	}
	target, _, _ = strings.Cut(target, "?")
	name = "tls://" + target
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		return nil, "", &AddressError{name, setting, err}
	}
	config, err := files.Client(host)
	if err != nil {
		return nil, "", &AddressError{name, setting, err}
	}
	c, err = (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", target)
	if err != nil {
		return nil, name, &DialError{name, setting, simplify(err)}
	}
	return c, name, nil
}

// HTTPFor returns what makes requests to a URL, with the certificates of https://host:port?ca=FILE&cert=FILE&key=FILE.
func HTTPFor(u *url.URL) (*http.Client, error) {
	if u.Scheme != "https" || u.RawQuery == "" {
		return http.DefaultClient, nil
	}
	files, err := certs.FilesOf("tls://" + u.Host + "?" + u.RawQuery)
	if err != nil {
		return nil, err
	}
	config, err := files.Client(u.Hostname())
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}}, nil
}
