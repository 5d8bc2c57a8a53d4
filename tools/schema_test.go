package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/eino/components/tool"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

var update = flag.Bool("update", false, "write the golden files")

func infoOf(t *testing.T, tl tool.BaseTool) (name, text string, schema []byte) {
	t.Helper()
	info, err := tl.Info(context.Background())
	require.NoError(t, err)
	s, err := info.ToJSONSchema()
	require.NoError(t, err)
	schema, err = json.Marshal(s)
	require.NoError(t, err)
	return info.Name, info.Desc, schema
}

// proves section 6: a golden schema per tool, and C63: what is required.
func TestSchemasGolden(t *testing.T) {
	required := map[string][]string{
		CreateWorkspace: nil, DisposeWorkspace: nil, ReadFile: {"path"}, WriteFile: {"path", "content"},
		EditFile: {"path", "old_string", "new_string"}, Grep: {"pattern"}, ListFiles: nil, Bash: {"command"}, GitDiff: nil,
	}
	check := func(t *testing.T, tl tool.BaseTool, suffix string) {
		name, _, schema := infoOf(t, tl)
		var pretty bytes.Buffer
		require.NoError(t, json.Indent(&pretty, schema, "", "  "))
		pretty.WriteByte('\n')
		golden := filepath.Join("testdata", name+suffix+".json")
		if *update {
			require.NoError(t, os.WriteFile(golden, pretty.Bytes(), 0o644))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		require.Equal(t, string(want), pretty.String(), "run go test ./tools -update when the change is meant")

		require.NotContains(t, string(schema), "$ref")
		require.NotContains(t, string(schema), "$schema")
		require.NotContains(t, string(schema), `"null"`)
		var parsed struct {
			Type                 string
			AdditionalProperties *bool
			Required             []string
			Properties           map[string]struct {
				Type, Description string
				MaxLength         *int
				Minimum           *int
			}
		}
		require.NoError(t, json.Unmarshal(schema, &parsed))
		require.Equal(t, "object", parsed.Type)
		require.NotNil(t, parsed.AdditionalProperties)
		require.False(t, *parsed.AdditionalProperties)
		require.Equal(t, required[name], parsed.Required)
		for field, p := range parsed.Properties {
			require.NotEmpty(t, p.Description, field)
			switch p.Type {
			case "string":
				require.NotNil(t, p.MaxLength, field)
			case "integer":
				require.NotNil(t, p.Minimum, field)
			default:
				require.Equal(t, "boolean", p.Type, field)
			}
		}
	}
	tools, err := build(false, nil)
	require.NoError(t, err)
	require.Len(t, tools, 9)
	for i, tl := range tools {
		name, _, _ := infoOf(t, tl)
		require.Equal(t, Names()[i], name)
		t.Run(name, func(t *testing.T) { check(t, tl, "") })
	}
	t.Run("M3 image only with AllowImage", func(t *testing.T) {
		tools, err := build(true, []string{CreateWorkspace})
		require.NoError(t, err)
		check(t, tools[0], ".image")
	})
}

// proves section 6: all nine with their texts stay under 2,500 tokens.
func TestTokenBudget(t *testing.T) {
	tools, err := build(true, nil)
	require.NoError(t, err)
	total := 0
	for _, tl := range tools {
		name, text, schema := infoOf(t, tl)
		require.NotEmpty(t, strings.TrimSpace(text))
		t.Logf("%-18s text %4d schema %4d", name, len(text), len(schema))
		total += len(name) + len(text) + len(schema)
	}
	t.Logf("%d bytes, %d tokens", total, total/4)
	require.Less(t, total/4, 2500)
}

// The bounds in the schemas and texts are those of the library.
func TestSchemaBoundsAreTheConstants(t *testing.T) {
	s, err := parameters[bashArguments]()
	require.NoError(t, err)
	timeout, _ := s.Properties.Get("timeout_seconds")
	most, err := timeout.Maximum.Int64()
	require.NoError(t, err)
	require.Equal(t, int64(workspaces.ExecTimeoutMax/time.Second), most)
	require.Equal(t, 5*time.Minute, workspaces.ExecTimeout) // "300 when left out"
	for _, field := range []string{"content"} {
		s, err := parameters[writeArguments]()
		require.NoError(t, err)
		p, _ := s.Properties.Get(field)
		require.Equal(t, uint64(workspaces.FileMaxBytes), *p.MaxLength)
	}
}

func TestNewRefusesWhatItDoesNotKnow(t *testing.T) {
	_, err := New(nil)
	require.ErrorIs(t, err, workspaces.ErrInvalidConfig)
	_, err = build(false, []string{Bash, "bish"})
	require.ErrorIs(t, err, workspaces.ErrInvalidConfig)
	require.ErrorContains(t, err, `"bish"`)
	_, err = build(false, []string{Bash, Bash})
	require.ErrorIs(t, err, workspaces.ErrInvalidConfig)
}

// A tool's Info may be changed by whoever gets it.
func TestInfoIsACopy(t *testing.T) {
	tools, err := build(false, []string{Bash})
	require.NoError(t, err)
	info, err := tools[0].Info(context.Background())
	require.NoError(t, err)
	info.Name = "other"
	name, _, _ := infoOf(t, tools[0])
	require.Equal(t, Bash, name)
	require.True(t, slices.Contains(Names(), name))
}
