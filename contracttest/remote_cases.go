package contracttest

import (
	"context"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func remoteCases() []Case {
	reachable := []Capability{SharesHost} // a workspace sees what listens on this host's loopback
	return []Case{
		{ID: "C42-unauthorized", Rule: "A repository that wants a password fails in seconds and asks nobody.", Needs: reachable, run: unauthorizedCase},
		{ID: "C42-silent-remote", Rule: "A checkout from a remote that never answers ends with the caller's cancel and leaves nothing.", Needs: reachable, run: silentRemoteCase},
	}
}

// hostNames lists a directory of the host.
func (f *fixture) hostNames(dir string) []string {
	entries, err := os.ReadDir(dir)
	require.NoError(f, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func unauthorizedCase(f *fixture) {
	var asked, authorized atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "" {
			authorized.Add(1)
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="private"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	f.Cleanup(server.Close)
	authority := filepath.Join(f.TempDir(), "authority.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(f, os.WriteFile(authority, certificate, 0o644))

	acquired := make(chan error, 1)
	go func() {
		_, err := f.run().Acquire(f.Context(), workspaces.AcquireOptions{
			Repository: server.URL + "/owner/private",
			Env:        map[string]string{"GIT_SSL_CAINFO": authority},
		})
		acquired <- err
	}()
	err := within(f, 2*f.patience, "Acquire", func() error { return <-acquired })
	var failure *workspaces.CheckoutError
	require.ErrorAs(f, err, &failure)
	require.Positive(f, asked.Load(), "the server was reached: %s", failure.Stderr)
	require.Zero(f, authorized.Load())
	require.Empty(f, f.leftovers(f.deployment))
}

func silentRemoteCase(f *fixture) {
	f.tolerate()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(f, err)
	connected := make(chan net.Conn, 8)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				close(connected)
				return
			}
			connected <- connection
		}
	}()
	f.Cleanup(func() {
		listener.Close()
		for connection := range connected {
			connection.Close()
		}
	})
	m := f.manager(nil)
	run := f.open(m, runID)
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	acquired := make(chan error, 1)
	go func() {
		_, err := run.Acquire(ctx, workspaces.AcquireOptions{Repository: "https://" + listener.Addr().String() + "/owner/silent"})
		acquired <- err
	}()
	select {
	case connection := <-connected:
		defer connection.Close()
	case err := <-acquired:
		f.Fatalf("the acquire ended before it reached the remote: %v", err)
	}
	cancel()
	require.ErrorIs(f, within(f, f.patience, "Acquire", func() error { return <-acquired }), context.Canceled)
	f.eventually(f.patience+workspaces.StopTime, "nothing is left", func() bool { return len(f.leftovers(f.deployment)) == 0 })
	require.Zero(f, m.Live())
	require.Equal(f, "on\n", f.shell(f.acquire(run, workspaces.AcquireOptions{}), "echo on"))
}
