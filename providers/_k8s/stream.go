package k8s

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	gwebsocket "github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	remotecommandconsts "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport/websocket"

	"github.com/carrel-dev/carrel/providers/remote"
)

// client-go's own executor takes a connection that was cut for an exit code of 0, and prints.

const (
	pingPeriod = 10 * time.Second
	pongWait   = 35 * time.Second
	writeWait  = 10 * time.Second
	chunkBytes = 32 << 10
)

// stream runs an exec over one WebSocket and returns its exit code. The end of ctx closes the connection.
func stream(ctx context.Context, config *rest.Config, exec *url.URL, streams remote.Streams) (exit int, err error) {
	roundTripper, holder, err := websocket.RoundTripperFor(config)
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, exec.String(), nil)
	if err != nil {
		return 0, err
	}
	conn, err := websocket.Negotiate(roundTripper, holder, request, remotecommandconsts.StreamProtocolV5Name)
	if err != nil {
		return 0, err
	}
	var helpers sync.WaitGroup
	defer helpers.Wait()
	over, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(over, func() { conn.Close() })() // also before the helpers are waited for
	defer conn.Close()
	if closer, ok := streams.Stdin.(io.Closer); ok {
		defer closer.Close() // ends who copies it
	}

	extend := func(string) error { return conn.SetReadDeadline(time.Now().Add(pongWait)) }
	_ = extend("")
	conn.SetPongHandler(extend)
	helpers.Go(func() { ping(over, conn) })
	if streams.Stdin != nil {
		copying := func() { feed(conn, streams.Stdin) }
		if _, ok := streams.Stdin.(io.Closer); ok {
			helpers.Go(copying)
		} else {
			go copying() // the reader is the caller's and may block for as long as it likes
		}
	}
	return receive(conn, streams)
}

func ping(ctx context.Context, conn *gwebsocket.Conn) {
	ticker := time.NewTicker(pingPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if conn.WriteControl(gwebsocket.PingMessage, nil, time.Now().Add(writeWait)) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// feed sends what it reads, and at its end that it is.
func feed(conn *gwebsocket.Conn, from io.Reader) {
	buffer := make([]byte, 1+chunkBytes)
	buffer[0] = remotecommandconsts.StreamStdIn
	for {
		n, err := from.Read(buffer[1:])
		if n > 0 && conn.WriteMessage(gwebsocket.BinaryMessage, buffer[:1+n]) != nil {
			return
		}
		if err != nil {
			_ = conn.WriteMessage(gwebsocket.BinaryMessage, []byte{remotecommandconsts.StreamClose, remotecommandconsts.StreamStdIn})
			return
		}
	}
}

// receive takes the streams apart until the exit status comes. Without one nothing is known.
func receive(conn *gwebsocket.Conn, streams remote.Streams) (exit int, err error) {
	for {
		_, message, err := conn.NextReader()
		if err != nil {
			return 0, fmt.Errorf("the connection ended without an exit status: %w", err)
		}
		var channel [1]byte
		if _, err := io.ReadFull(message, channel[:]); err != nil {
			return 0, fmt.Errorf("what the API server sent is no output: %w", err)
		}
		switch channel[0] {
		case remotecommandconsts.StreamStdOut:
			_, err = io.Copy(streams.Stdout, message)
		case remotecommandconsts.StreamStdErr:
			_, err = io.Copy(streams.Stderr, message)
		case remotecommandconsts.StreamErr:
			said, err := io.ReadAll(io.LimitReader(message, 64<<10))
			if err != nil {
				return 0, err
			}
			if len(said) > 0 {
				return exitCode(said)
			}
		case remotecommandconsts.StreamClose:
		default:
			return 0, fmt.Errorf("what the API server sent is no output: channel %d", channel[0])
		}
		if err != nil {
			return 0, err
		}
	}
}

func exitCode(said []byte) (int, error) {
	var status metav1.Status
	if err := json.Unmarshal(said, &status); err != nil {
		return 0, fmt.Errorf("the exit status is not one: %.200q", said)
	}
	switch {
	case status.Status == metav1.StatusSuccess:
		return 0, nil
	case status.Reason == remotecommandconsts.NonZeroExitCodeReason && status.Details != nil:
		for _, cause := range status.Details.Causes {
			if cause.Type == remotecommandconsts.ExitCodeCauseType {
				return strconv.Atoi(cause.Message)
			}
		}
	}
	return 0, fmt.Errorf("%w: %s", errExec, status.Message)
}

// errExec: the exec itself failed, on the node.
var errExec = errors.New("the exec failed")
