package loop

import (
	"errors"
	"time"

	"treadle/loop/admin"
)

// drain returns --drain in whole milliseconds.
func (s *Server) drain() time.Duration {
	return time.Duration(s.drainNanos.Load()).Round(time.Millisecond)
}

// Reload takes the settings with the tag reload, and the rules and cron entries of the file from next: all of
// them, or none with an error as of New. It leaves other settings as they are. It may be called once the
// server is ready.
func (s *Server) Reload(next Options) error {
	s.reloads.Lock() // a stop waits for it: the journal must be open
	defer s.reloads.Unlock()
	if s.stopping.Load() {
		return errors.New("the server is stopping")
	}
	next, err := next.Effective()
	if err != nil {
		return err
	}
	useCerts, err := s.tls.prepareReload()
	if err != nil {
		return err
	}
	for operators := range protocolsWith[*admin.API](s) {
		if err := operators.Reload(next.Admin.Rules, next.Admin.Cron); err != nil {
			return err
		}
	}
	useCerts()
	s.drainNanos.Store(int64(next.Drain))
	s.conns.setLimits(next.MaxConnections, next.MaxAPIConnections)
	if s.journal != nil {
		s.journal.journal.SetMinFree(uint64(next.MinFree))
	}
	return nil
}

// ReloadCertificates reads the certificates of the addresses with TLS again if they have changed: all of them, or none
// with an error.
func (s *Server) ReloadCertificates() error {
	use, err := s.tls.prepareReload()
	if err == nil {
		use()
	}
	return err
}
