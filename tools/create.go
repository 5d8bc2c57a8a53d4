package tools

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/workspaces"
)

//go:embed create.md
var createText string

type createArguments struct {
	Repo  string `json:"repo,omitempty" jsonschema:"minLength=1,maxLength=2048" jsonschema_description:"Repository: owner/name on GitHub or an https URL. Leave out for an empty git repository."`
	Ref   string `json:"ref,omitempty" jsonschema:"minLength=1,maxLength=255" jsonschema_description:"Branch, tag or full commit id. Leave out for the default branch."`
	Image string `json:"image,omitempty" jsonschema:"minLength=1,maxLength=512" jsonschema_description:"Container image to run in. Leave out for the default image."`
}

// created is the result of create_workspace.
type created struct {
	Workspace string  `json:"workspace"`
	Root      string  `json:"root"`
	Repo      *string `json:"repo"`
	Ref       *string `json:"ref"`
	Commit    *string `json:"commit"`
	ExpiresAt *string `json:"expires_at"`
	Reused    bool    `json:"reused"`
}

func create(ctx context.Context, run *workspaces.Run, a createArguments) (string, error) {
	if a.Repo == "" && a.Ref != "" {
		return "", refuse("ref %s needs a repo: name the repository too, or leave ref out", quote(a.Ref))
	}
	acquired, err := run.Acquire(ctx, workspaces.AcquireOptions{Repository: a.Repo, Ref: a.Ref, Image: a.Image})
	if err != nil {
		return "", withHeld(run, err)
	}
	info := acquired.Workspace.Info()
	result := created{
		Workspace: acquired.Workspace.ID(),
		Root:      workspaces.Root,
		Repo:      unlessEmpty(info.Repository),
		Ref:       unlessEmpty(info.Ref),
		Commit:    unlessEmpty(info.Commit),
		Reused:    acquired.Reused,
	}
	if !info.ExpiresAt.IsZero() {
		result.ExpiresAt = unlessEmpty(info.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return toJSON(result)
}

// withHeld adds the run's workspaces to an error that asks the model to choose among them.
func withHeld(run *workspaces.Run, err error) error {
	if !errors.Is(err, workspaces.ErrLimitReached) && !errors.Is(err, workspaces.ErrRefHeld) {
		return err
	}
	var list []string
	for _, ws := range run.Workspaces() {
		list = append(list, describe(ws))
	}
	if len(list) == 0 {
		return err
	}
	return refuse("%s The run holds: %s", explain(err), strings.Join(list, ", "))
}

func unlessEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func toJSON(v any) (string, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("result: %w", err)
	}
	return string(data), nil
}
