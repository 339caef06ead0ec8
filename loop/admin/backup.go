package admin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"treadle/loop/web"
)

// Backup is a copy of the server's data as of one moment, as an archive. It must be closed.
type Backup interface {
	// Size returns the number of bytes that WriteTo writes.
	Size() int64
	io.WriterTo
	io.Closer
}

// ErrNoBackup is wrapped by the error for a backup that cannot be taken now.
var ErrNoBackup = errors.New("no backup is taken")

// getBackup answers GET /backup with the archive. It ends when the client does not read for pieceTime, so that the copy
// does not keep the space of removed jobs for ever.
func (api *API) getBackup(w http.ResponseWriter, _ *http.Request) {
	began := time.Now()
	b, err := api.host.Backup()
	if errors.Is(err, ErrNoBackup) {
		err = &conflict{err}
	}
	if err != nil {
		api.write(w, nil, err)
		return
	}
	defer func() {
		if err := b.Close(); err != nil {
			api.host.Log().Warn("the copy of a backup cannot be removed; the next start removes it", "error", err)
		}
	}()
	h := w.Header()
	h.Set("Content-Type", "application/x-tar")
	h.Set("Content-Length", strconv.FormatInt(b.Size(), 10))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(pieceTime)) // fails only when the connection is closed
	_, transfer := api.outgoing.Begin(context.Background(), w)
	defer transfer.End()
	transfer.Resize(readPiece)
	if _, err = b.WriteTo(&backupWriter{w, transfer, api.host, began}); err != nil { // net/http closes the connection, which the peer notices
		api.host.Log().Warn("a backup has broken off", "error", err)
		return
	}
	api.host.Log().Info("a backup is taken", "bytes", b.Size(), "took", time.Since(began).Round(time.Millisecond))
}

// backupWriter sends a backup at a pace that leaves the processor to jobs.
type backupWriter struct {
	to       io.Writer
	transfer *web.Transfer
	host     Host
	began    time.Time // of the work since the last pause
}

// Write implements io.Writer.
func (w *backupWriter) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	w.transfer.Moved()
	w.began = w.host.Yield(w.began)
	return n, err
}
