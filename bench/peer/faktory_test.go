package peer

import (
	"bufio"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFaktoryRedis: Faktory's Redis gets its settings, and has begun its file of changes when the jobs come.
func TestFaktoryRedis(t *testing.T) {
	f := func(answer, want string) {
		t.Helper()
		s := &Server{directory: t.TempDir()}
		listener, err := net.Listen("unix", filepath.Join(s.directory, "redis.sock"))
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		asked := make(chan string, 100)
		go func() {
			defer close(asked)
			for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
				line, _ := bufio.NewReader(conn).ReadString('\n')
				asked <- strings.TrimSpace(line)
				switch {
				case strings.HasPrefix(line, "CONFIG"):
					_, _ = conn.Write([]byte(answer))
				case len(asked) == len(redisSynced)+1: // the first look
					_, _ = conn.Write([]byte("$60\r\n# Persistence\r\naof_rewrite_in_progress:1\r\n"))
				default:
					_, _ = conn.Write([]byte("$60\r\n# Persistence\r\naof_rewrite_in_progress:0\r\n"))
				}
				_ = conn.Close()
			}
		}()
		err = faktoryProgram(redisSynced).prepare(t.Context(), s)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			return
		}
		_ = listener.Close()
		var got []string
		for line := range asked {
			got = append(got, line)
		}
		if err != nil || !slices.Equal(got, append(slices.Clone(redisSynced), "INFO persistence", "INFO persistence")) {
			t.Errorf("Redis was asked %q: %v", got, err)
		}
	}
	f("+OK\r\n", "")
	f("-ERR unknown", "ERR")
}
