package safe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

// proves O3: recorded text is valid UTF-8 and bounded.
func TestTextO3(t *testing.T) {
	long := strings.Repeat("a", TextMaxBytes)
	for name, c := range map[string]struct{ in, want string }{
		"empty":             {"", ""},
		"short":             {"main", "main"},
		"at the limit":      {long, long},
		"over":              {long + "b", long[:TextMaxBytes-len(ellipsis)] + ellipsis},
		"invalid":           {"a\xffb", "a\uFFFDb"},
		"rune at the cut":   {strings.Repeat("a", TextMaxBytes-4) + "€€", strings.Repeat("a", TextMaxBytes-4) + ellipsis},
		"invalid grows":     {strings.Repeat("a\xff", TextMaxBytes/2), strings.Repeat("a\uFFFD", 63) + "a" + ellipsis},
		"long and invalid":  {strings.Repeat("\xff", TextMaxBytes*2), "\uFFFD" + ellipsis},
		"wide and too long": {strings.Repeat("中", TextMaxBytes), strings.Repeat("中", 84) + ellipsis},
	} {
		t.Run(name, func(t *testing.T) {
			got := Text(c.in)
			require.Equal(t, c.want, got)
		})
	}
}

func FuzzTextO3(f *testing.F) {
	f.Add("a\xffb", 3)
	f.Add(strings.Repeat("€", 100), 7)
	f.Fuzz(func(t *testing.T, s string, repeat int) {
		s = strings.Repeat(s, 1+max(0, repeat)%100)
		for _, got := range []string{Text(s), Content(s)} {
			require.True(t, utf8.ValidString(got))
			require.LessOrEqual(t, len(got), ContentMaxBytes)
		}
		require.LessOrEqual(t, len(Text(s)), TextMaxBytes)
		if utf8.ValidString(s) && len(s) <= TextMaxBytes {
			require.Equal(t, s, Text(s))
		}
	})
}

// proves O3: error.type comes from a short list, never from a message.
func TestErrorTypeO3(t *testing.T) {
	wrapped := func(err error) error { return &workspaces.OpError{Op: "exec", Workspace: "ws", Err: err} }
	for want, errs := range map[string][]error{
		"":                  {nil},
		"gone":              {wrapped(fmt.Errorf("%w: oom-killed", workspaces.ErrGone)), errors.Join(context.Canceled, workspaces.ErrGone)},
		"expired":           {wrapped(workspaces.ErrExpired)},
		"disposed":          {wrapped(workspaces.ErrDisposed), errors.Join(workspaces.ErrDisposed, context.Canceled)},
		"run_ended":         {workspaces.ErrRunEnded},
		"closed":            {workspaces.ErrClosed},
		"limit_reached":     {workspaces.ErrLimitReached},
		"ref_held":          {workspaces.ErrRefHeld},
		"unsupported":       {workspaces.ErrUnsupported},
		"unavailable":       {workspaces.ErrUnavailable},
		"outcome_unknown":   {workspaces.ErrOutcomeUnknown},
		"too_large":         {workspaces.ErrTooLarge},
		"cancelled":         {context.Canceled, errors.Join(&workspaces.CheckoutError{}, context.Canceled)},
		"deadline_exceeded": {context.DeadlineExceeded},
		"checkout":          {wrapped(&workspaces.CheckoutError{Step: "fetch"}), errors.Join(&workspaces.CheckoutError{}, workspaces.ErrInvalidInput)},
		"invalid_input":     {workspaces.ErrInvalidInput},
		"invalid_config":    {workspaces.ErrInvalidConfig},
		"not_found":         {workspaces.ErrNotFound, &fs.PathError{Op: "open", Path: "f", Err: fs.ErrNotExist}},
		"exists":            {fs.ErrExist},
		"permission":        {fs.ErrPermission},
		ErrorOther:          {errors.New("user said gone")},
	} {
		for _, err := range errs {
			require.Equal(t, want, ErrorType(err), "%v", err)
		}
	}
}
