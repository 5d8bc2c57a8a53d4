package tools

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/workspaces"
)

func decodeAs[A any](t *testing.T, arguments string) (A, error) {
	t.Helper()
	s, err := parameters[A]()
	require.NoError(t, err)
	var a A
	err = decode(arguments, s, &a)
	return a, err
}

// proves T5 and C63
func TestDecodeT5(t *testing.T) {
	t.Run("C63 no arguments in any spelling", func(t *testing.T) {
		for _, arguments := range []string{"", "{}", "null", "  \n", " { } ", `{"repo":null,"ref":null}`} {
			a, err := decodeAs[createArguments](t, arguments)
			require.NoError(t, err, arguments)
			require.Equal(t, createArguments{}, a)
		}
	})
	t.Run("C63 numbers as models write them", func(t *testing.T) {
		for spelled, want := range map[string]int{
			`"2"`: 2, `3.0`: 3, `1e3`: 1000, `"1e3"`: 1000, `" 7 "`: 7, `12`: 12, `"3.0"`: 3, `1.5e1`: 15, `null`: 0,
		} {
			a, err := decodeAs[readArguments](t, `{"path":"f","start_line":`+spelled+`}`)
			require.NoError(t, err, spelled)
			require.Equal(t, want, a.StartLine, spelled)
		}
		for _, spelled := range []string{`1.5`, `"two"`, `""`, `[1]`, `{}`, `true`, `1e30`, `"0x10"`, `"inf"`, `99999999999999999999999`, `1e99999999`} {
			_, err := decodeAs[readArguments](t, `{"path":"f","start_line":`+spelled+`}`)
			require.ErrorContains(t, err, "start_line", spelled)
			require.ErrorContains(t, err, "integer", spelled)
		}
	})
	t.Run("C63 booleans as models write them", func(t *testing.T) {
		for spelled, want := range map[string]bool{`true`: true, `"true"`: true, `"True"`: true, `false`: false, `"false"`: false, `null`: false} {
			a, err := decodeAs[editArguments](t, `{"path":"f","old_string":"a","new_string":"b","replace_all":`+spelled+`}`)
			require.NoError(t, err, spelled)
			require.Equal(t, want, a.ReplaceAll, spelled)
		}
		_, err := decodeAs[editArguments](t, `{"path":"f","old_string":"a","new_string":"b","replace_all":"yes"}`)
		require.ErrorContains(t, err, "replace_all must be true or false")
	})
	t.Run("bounds are those of the schema", func(t *testing.T) {
		_, err := decodeAs[readArguments](t, `{"path":"f","start_line":-1}`)
		require.ErrorContains(t, err, "start_line is -1, the minimum is 1")
		_, err = decodeAs[readArguments](t, `{"path":"f","start_line":0}`)
		require.ErrorContains(t, err, "the minimum is 1")
		_, err = decodeAs[bashArguments](t, `{"command":"x","timeout_seconds":1801}`)
		require.ErrorContains(t, err, "the maximum is 1800")
		_, err = decodeAs[readArguments](t, `{"path":"`+strings.Repeat("a", 4097)+`"}`)
		require.ErrorContains(t, err, "path has 4097 characters, at most 4096")
	})
	t.Run("absent and empty differ", func(t *testing.T) {
		a, err := decodeAs[writeArguments](t, `{"path":"f","content":""}`)
		require.NoError(t, err)
		require.Empty(t, a.Content)
		_, err = decodeAs[writeArguments](t, `{"path":"f"}`)
		require.ErrorContains(t, err, "required field content is missing")
		_, err = decodeAs[writeArguments](t, `{"path":"f","content":null}`)
		require.ErrorContains(t, err, "required field content is missing")
		_, err = decodeAs[createArguments](t, `{"repo":"a/b","ref":""}`)
		require.ErrorContains(t, err, "ref is empty") // C38: not silently the default branch
		_, err = decodeAs[editArguments](t, `{"path":"f","old_string":"","new_string":"X"}`)
		require.ErrorContains(t, err, "old_string is empty") // C04
	})
	t.Run("what is wrong is named, with the valid fields", func(t *testing.T) {
		for arguments, want := range map[string]string{
			`{"path":"f","startLine":2}`: `unknown field "startLine"`,
			`{"path":"f","path":"g"}`:    `field path is given more than once`,
			`{}`:                         `required field path is missing`,
			`{"path":5}`:                 `path must be a string, not a number`,
			`{"path":{"a":1}}`:           `path must be a string, not an object`,
			`{"path":"f"`:                `it ends too early, at or after field "path"`,
			`{"path":"f`:                 `at or after field "path"`,
			`{"path":"f"} {"path":"g"}`:  `more text after the JSON object`,
			`["f"]`:                      `expected a JSON object, got an array`,
			`"f"`:                        `expected a JSON object, got a string`,
			`{"path":f}`:                 `broken JSON`,
			"{\"path\":\"\xff\"}":        `not UTF-8`,
			`{"` + strings.Repeat("x", 500) + `":1,"path":"f"}`: `unknown field "xxxxxxxx`,
		} {
			_, err := decodeAs[readArguments](t, arguments)
			require.ErrorContains(t, err, want, arguments)
			require.ErrorContains(t, err, "path (string, required), start_line (integer), end_line (integer), workspace (string)")
			require.ErrorIs(t, err, workspaces.ErrInvalidInput)
			require.Less(t, len(err.Error()), 1000)
		}
	})
	t.Run("every problem at once", func(t *testing.T) {
		_, err := decodeAs[editArguments](t, `{"file":"f","old_string":1}`)
		for _, want := range []string{`unknown field "file"`, "old_string must be a string", "required field path", "required field new_string"} {
			require.ErrorContains(t, err, want)
		}
	})
	t.Run("content arrives as it was sent", func(t *testing.T) {
		for _, content := range []string{"<a href=\\\"x\\\">&amp;</a>", "\\u2028", "$& \\\\1 %s", "caf\\u00e9\\r\\n\\r\\n", "\\u0000"} {
			a, err := decodeAs[writeArguments](t, `{"path":"f","content":"`+content+`"}`)
			require.NoError(t, err)
			want := strings.NewReplacer(`\"`, `"`, `\u2028`, "\u2028", `\\`, `\`, `\u00e9`, "é", `\r`, "\r", `\n`, "\n", `\u0000`, "\x00").Replace(content)
			require.Equal(t, want, a.Content)
		}
	})
	t.Run("M3 a field taken out of the schema is unknown", func(t *testing.T) {
		s, err := parameters[createArguments]("image")
		require.NoError(t, err)
		var a createArguments
		require.ErrorContains(t, decode(`{"image":"x"}`, s, &a), `unknown field "image"`)
	})
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"", "null", `{"path":"f","start_line":"2"}`, `{"path":1e999}`, `{"path":"\ud800"}`, `{"a":{"b":[1]}}`, `{"path":"f","path":null}`} {
		f.Add(seed)
	}
	s, err := parameters[readArguments]()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, arguments string) {
		var a readArguments
		if err := decode(arguments, s, &a); err != nil {
			require.ErrorIs(t, err, workspaces.ErrInvalidInput)
			return
		}
		require.NotEmpty(t, a.Path)
		require.GreaterOrEqual(t, a.StartLine, 0)
	})
}
