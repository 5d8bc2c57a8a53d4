package tools

import (
	"context"
	"time"

	"github.com/cloudwego/eino/schema"
)

const (
	// streamPause is the shortest time between two chunks.
	streamPause = 50 * time.Millisecond

	// streamSlowing makes the pause grow with the time: a chunk may come late by one part
	// in so many of it.
	streamSlowing = 64

	// streamChunks has room for every chunk that the longest command can send at that pace
	// (about 480), so that no send ever waits for the reader.
	streamChunks = 1024
)

// stream runs a command and sends its output to writer, which it closes.
func stream(ctx context.Context, r room, arguments bashArguments, writer *schema.StreamWriter[string]) {
	defer writer.Close()
	out := newOutput(r.root)
	sent := 0
	text, err := answer(ctx, Bash, func() (string, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		live := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(live)
			sent = sendHead(out, writer, ended, cancel)
		}()
		defer func() { close(ended); <-live }()
		return run(ctx, r, arguments, out)
	})
	if err != nil {
		writer.Send("", err)
		return
	}
	out.close()
	writer.Send((out.String() + text)[sent:], nil)
}

// sendHead sends the beginning of the output as it grows, until ended is closed, and returns how much
// that was. When the reader has closed the stream it calls abandon.
func sendHead(out *output, writer *schema.StreamWriter[string], ended <-chan struct{}, abandon func()) (sent int) {
	began := time.Now()
	for {
		select {
		case <-ended:
			return sent
		case <-out.grown:
		}
		head := out.Head()
		if len(head) > sent {
			if writer.Send(head[sent:], nil) {
				abandon()
				return sent
			}
			sent = len(head)
		}
		pause := time.NewTimer(max(streamPause, time.Since(began)/streamSlowing))
		select {
		case <-ended:
			pause.Stop()
			return sent
		case <-pause.C:
		}
	}
}
