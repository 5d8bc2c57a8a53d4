package tools

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestApplyEditT7(t *testing.T) {
	for _, c := range []struct {
		name, raw, old, new string
		all                 bool
		want                string
		lines               []int
	}{
		{"C01a LF old_string against CRLF", "alpha\r\nbeta\r\ngamma\r\n", "alpha\nbeta", "ALPHA\nbeta2", false, "ALPHA\r\nbeta2\r\ngamma\r\n", []int{1}},
		{"C01b within a line of CRLF", "a = 1\r\nb = 2\nc = 3\r\n", "b = 2", "b = 22", false, "a = 1\r\nb = 22\nc = 3\r\n", []int{2}},
		{"C01 more lines than before", "a\r\nb\r\n", "a", "a\na2\na3", false, "a\r\na2\r\na3\r\nb\r\n", []int{1}},
		{"C01 added at the end of a CRLF file without newline", "a\r\nb", "b", "b\nc", false, "a\r\nb\r\nc", []int{2}},
		{"C01 mixed endings in the span stay where lines stay", "a\r\nb\nc\r\nd\n", "a\nb\nc\nd", "a\nB\nc\nd", false, "a\r\nB\nc\r\nd\n", []int{1}},
		{"C01 mixed endings of replaced lines", "a\r\nb\nc\r\n", "a\nb\nc", "x\ny\nz", false, "x\r\ny\nz\r\n", []int{1}},
		{"C01 old_string begins with a newline", "a\r\nb\r\n", "\nb", "\nc", false, "a\r\nc\r\n", []int{1}},
		{"C01 a newline is deleted", "a\r\nb\r\n", "a\nb", "ab", false, "ab\r\n", []int{1}},
		{"C01 lone CR stays", "a\rb\r\nc\r\n", "c", "d", false, "a\rb\r\nd\r\n", []int{2}},
		{"CRLF in new_string for a CRLF file", "a\r\nb\r\n", "a\nb", "a\r\nx\r\nb", false, "a\r\nx\r\nb\r\n", []int{1}},
		{"CRLF in both", "a\r\nb\r\n", "a\r\nb", "a\r\nB", false, "a\r\nB\r\n", []int{1}},
		{"C02 no templates", "price=OLD;\n", "OLD", `$& $1 ${1} $$ \1 & %s`, false, `price=$& $1 ${1} $$ \1 & %s;` + "\n", []int{1}},
		{"C02 no templates, all", "price=OLD;\n", "OLD", `$& $1 ${1} $$ \1 & %s`, true, `price=$& $1 ${1} $$ \1 & %s;` + "\n", []int{1}},
		{"literal, no pattern", "a.c abc\n", "a.c", "x", false, "x abc\n", []int{1}},
		{"C03 all: left to right, without overlap", "x = 1\nx = 1\nx = 1\n", "x = 1\nx = 1", "y", true, "y\nx = 1\n", []int{1}},
		{"C03 aaa, all", "aaa", "aa", "b", true, "ba", []int{1}},
		{"all in CRLF", "a\r\nb\r\na\r\nb\r\n", "a\nb\n", "a\nc\n", true, "a\r\nc\r\na\r\nc\r\n", []int{1, 3}},
		{"C06 byte order mark", "\xEF\xBB\xBFhello\n", "hello", "hello2", false, "\xEF\xBB\xBFhello2\n", []int{1}},
		{"C06 byte order mark in both strings", "\xEF\xBB\xBFhello\n", "\uFEFFhello", "\uFEFFhello2", false, "\xEF\xBB\xBFhello2\n", []int{1}},
		{"C06 never doubled", "\xEF\xBB\xBFhello\n", "hello", "\uFEFFhello2", false, "\xEF\xBB\xBFhello2\n", []int{1}},
		{"C10a no final newline", "a\nb", "a", "A", false, "A\nb", []int{1}},
		{"C10b blank line at the end", "alpha\nbeta\n\n", "alpha", "ALPHA", false, "ALPHA\nbeta\n\n", []int{1}},
		{"the final newline can go", "a\nb\n", "b\n", "b", false, "a\nb", []int{2}},
		{"delete", "a\nb\nc\n", "b\n", "", false, "a\nc\n", []int{2}},
		{"invalid bytes elsewhere stay", "ok\n\xff\xfe\xe9\nhit\n", "hit", "HIT", false, "ok\n\xff\xfe\xe9\nHIT\n", []int{3}},
		{"wide characters", "中文\n漢字\n", "漢", "汉", false, "中文\n汉字\n", []int{2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw := []byte(c.raw)
			got, lines, err := applyEdit(raw, c.old, c.new, c.all)
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
			require.Equal(t, c.lines, lines)
			require.Equal(t, c.raw, string(raw), "the old content must stay")
		})
	}
	for _, c := range []struct {
		name, raw, old, new string
		all                 bool
		want                []string
	}{
		{"C03 overlapping matches count", "x = 1\nx = 1\nx = 1\n", "x = 1\nx = 1", "y", false, []string{"2 matches", "lines 1, 2", "replace_all"}},
		{"C03 aaa", "aaa", "aa", "b", false, []string{"2 matches"}},
		{"C04 empty", "abc", "", "X", false, []string{"old_string is empty"}},
		{"C04 empty, all", "abc", "", "X", true, []string{"old_string is empty"}},
		{"C04 empty on empty", "", "", "X", false, []string{"old_string is empty"}},
		{"the same", "a", "a", "a", false, []string{"the same"}},
		{"endings only", "a\r\nb\r\n", "a\nb", "a\r\nb", false, []string{"line endings only"}},
		{"empty file", "", "a", "b", false, []string{"not in the file", "empty"}},
		{"M12 done already", "one\nTWO\n", "two", "TWO", false, []string{"not in the file", "new_string is there already, at line 2", "applied before"}},
		{"M12 done already, CRLF", "one\r\nTWO\r\nthree\r\n", "two\nthree", "TWO\nthree", false, []string{"new_string is there already, at line 2"}},
		{"nearest: indentation", "func f() {\n\treturn 1\n}\n", "func f() {\n    return 1\n}", "x", false, []string{"white space only", "1\tfunc f() {\n2\t\treturn 1\n3\t}"}},
		{"nearest: one word", "a\nb\nthe quick brown fox jumps\nc\n", "the quick red fox jumps", "x", false, []string{"nearest place", "3\tthe quick brown fox jumps"}},
		{"nearest: most lines are there", "h\nalpha\nbeta\ngamma\nt\n", "alpha\nBETA!\ngamma", "x", false, []string{"nearest place", "2\talpha\n3\tbeta\n4\tgamma"}},
		{"nothing like it", "aaaa\nbbbb\n", "zzzzzzzz", "x", false, []string{"nothing like it"}},
		{"line numbers copied", "foo\nbar\n", "1\tfoo\n2\tbar", "x", false, []string{"numbers that read_file shows"}},
		{"CRLF old_string against LF", "a\nb\n", "a\r\nb", "x", false, []string{"not in the file", "CRLF line endings where the file has LF"}},
		{"only a byte order mark", "\xEF\xBB\xBFa", "\uFEFF", "x", false, []string{"byte order mark"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _, err := applyEdit([]byte(c.raw), c.old, c.new, c.all)
			require.Error(t, err)
			require.Nil(t, got)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// proves T7: refusals of the worst input a file can hold come soon.
func TestApplyEditIsLinear(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		as := strings.Repeat("a", 1<<20)
		_, _, _ = applyEdit([]byte(as), as[:1<<19], "b", false)
		_, _, _ = applyEdit([]byte(as), as[:1<<19]+"b", "c", false)
		_, _, _ = applyEdit([]byte(strings.Repeat("a\n", 1<<19)), strings.Repeat("a\n", 1<<18)+"b", "c", false)
		_, _, _ = applyEdit([]byte(strings.Repeat("a\r\n", 1<<18)), "a\n", "b\n", true)
		_, _, _ = applyEdit(bytes.Repeat([]byte("\r\n"), 1<<19), strings.Repeat("\n", 1<<18), "b", false)
	}()
	select {
	case <-done:
	case <-time.After(60 * time.Second):
		t.Fatal("still searching")
	}
}

// proves T7: an excerpt is bounded and valid, whatever the file holds.
func TestNotFoundIsBounded(t *testing.T) {
	line := strings.Repeat("\xffquick brown fox ", 50_000)
	_, _, err := applyEdit([]byte(strings.Repeat("x\n", 50)+line), "quick red fox", "y", false)
	require.Error(t, err)
	require.Less(t, len(err.Error()), 8_000)
	require.True(t, len(strings.ToValidUTF8(err.Error(), "")) == len(err.Error()))
}

func FuzzApplyEdit(f *testing.F) {
	f.Add([]byte("alpha\r\nbeta\r\n"), "alpha\nbeta", "A\nb", false)
	f.Add([]byte("\xEF\xBB\xBFa\n"), "a", "b", true)
	f.Add([]byte("aaa"), "aa", "", true)
	f.Add([]byte("a\r\r\nb"), "a", "\n", false)
	f.Add([]byte("a\r\nb\nc"), "\n", "\r\n", true)
	f.Fuzz(func(t *testing.T, raw []byte, old, new string, all bool) {
		before := bytes.Clone(raw)
		got, lines, err := applyEdit(raw, old, new, all)
		require.Equal(t, before, raw)
		if err != nil {
			require.Nil(t, got)
			require.NotEmpty(t, err.Error())
			return
		}
		require.NotEqual(t, before, got)
		require.NotEmpty(t, lines)
		if !all {
			require.Len(t, lines, 1)
		}
		require.Equal(t, bytes.HasPrefix(raw, byteOrderMark), bytes.HasPrefix(got, byteOrderMark) || bytes.HasPrefix(raw, byteOrderMark))
		if bytes.HasPrefix(raw, byteOrderMark) {
			require.True(t, bytes.HasPrefix(got, byteOrderMark))
			return
		}
		if !bytes.Contains(raw, []byte("\r")) {
			// Without CR and byte order mark an edit is a plain replacement.
			n := 1
			if all {
				n = -1
			}
			require.Equal(t, strings.Replace(string(raw), old, new, n), string(got))
		}
		if !strings.ContainsAny(old+new, "\r") {
			// As LF text it is a plain replacement as well.
			lf := func(b []byte) string { return strings.ReplaceAll(string(b), "\r\n", "\n") }
			if !strings.Contains(lf(raw), "\r") {
				n := 1
				if all {
					n = -1
				}
				require.Equal(t, strings.Replace(lf(raw), old, new, n), lf(got))
			}
		}
		if !bytes.Contains(bytes.ReplaceAll(raw, []byte("\r\n"), nil), []byte("\n")) && bytes.Contains(raw, []byte("\r\n")) && !strings.Contains(old+new, "\r") {
			require.NotContains(t, strings.ReplaceAll(string(got), "\r\n", ""), "\n", "a CRLF file stays CRLF")
		}
	})
}
