package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// questionLimit bounds one question to the server over HTTP: a collection of a heap of gigabytes takes a while.
const questionLimit = time.Minute

// httpGet reads a page of the server over HTTP.
func httpGet(ctx context.Context, address, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, questionLimit)
	defer cancel()
	page, err := httpDo(ctx, http.MethodGet, address, path, "", http.NoBody)
	return string(page), err
}

// httpDo sends a body of a type to the server over HTTP, and returns the answer's.
func httpDo(ctx context.Context, method, address, path, kind string, body io.Reader) ([]byte, error) {
	reply, err := httpOpen(ctx, method, address, path, "Content-Type", kind, body)
	if err != nil {
		return nil, err
	}
	defer func() { _ = reply.Body.Close() }()
	return io.ReadAll(reply.Body)
}

// httpOpen sends a request with one header line to the server over HTTP. The reply's body is to be closed.
func httpOpen(ctx context.Context, method, address, path, header, value string, body io.Reader) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set(header, value)
	reply, err := http.DefaultClient.Do(request)
	if err == nil && reply.StatusCode != http.StatusOK {
		_ = reply.Body.Close() // the status says why
		return nil, fmt.Errorf("%s was answered %s", path, reply.Status)
	}
	return reply, err
}

// apiConn is a connection to the HTTP API, of a client that does no more than the server needs: on the two processors
// that both share, net/http's client takes more of them than the server. It has one user.
type apiConn struct {
	conn    net.Conn
	in      *bufio.Reader
	host    string
	request []byte
	answer  []byte
	release func() bool // ends the watch on the context
}

// dialAPI connects; the connection fails when ctx ends.
func dialAPI(ctx context.Context, host string) (*apiConn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	release := context.AfterFunc(ctx, func() { _ = conn.Close() })
	return &apiConn{conn: conn, in: bufio.NewReaderSize(conn, 16<<10), host: host, release: release}, nil
}

func (c *apiConn) close() {
	c.release()
	_ = c.conn.Close()
}

// post sends a body and returns the answer's, which is valid until the next call.
func (c *apiConn) post(path string, body []byte) ([]byte, error) {
	c.request = fmt.Appendf(c.request[:0],
		"POST /api/v1%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, c.host, len(body))
	if _, err := c.conn.Write(append(c.request, body...)); err != nil {
		return nil, err
	}
	status, length, err := c.header()
	if err != nil {
		return nil, err
	}
	c.answer = slices.Grow(c.answer[:0], length)[:length]
	if _, err := io.ReadFull(c.in, c.answer); err != nil {
		return nil, err
	}
	if status != "200" {
		return nil, fmt.Errorf("%s was answered %s: %s", path, status, c.answer)
	}
	return c.answer, nil
}

// header reads the header of an answer, for its status and the length of its body.
func (c *apiConn) header() (status string, length int, err error) {
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return "", 0, err
		}
		switch text, isLength := bytes.CutPrefix(line, []byte("Content-Length: ")); {
		case status == "":
			_, rest, _ := bytes.Cut(line, []byte(" "))
			status = string(rest[:min(len(rest), 3)])
		case isLength:
			if length, err = strconv.Atoi(string(bytes.TrimSpace(text))); err != nil {
				return "", 0, err
			}
		case len(line) == len("\r\n"):
			return status, length, nil
		}
	}
}
