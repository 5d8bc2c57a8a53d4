package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/docker/docker/api/types/image"

	"github.com/carrel-dev/carrel/workspaces"
)

// pull pulls an image. The engine reports a failure inside the stream that it answers with, so that is read to its end.
func (p *Provider) pull(ctx context.Context, name string) error {
	stream, err := p.client.ImagePull(ctx, name, image.PullOptions{RegistryAuth: p.settings.RegistryAuth})
	if err != nil {
		return fmt.Errorf("pull of image %q: %w", name, mapped(err))
	}
	defer stream.Close()
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	defer stop()
	for decoder := json.NewDecoder(stream); ; {
		var message struct {
			Error string `json:"error"`
		}
		err := decoder.Decode(&message)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%w: pull of image %q broke off: %w", workspaces.ErrUnavailable, name, err)
		case message.Error != "":
			return fmt.Errorf("pull of image %q: %.500s", name, message.Error)
		}
	}
}
