package tools

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// contentOf takes numbers and notes off a page.
func contentOf(page string) (content []string, notes []string) {
	for line := range strings.SplitSeq(page, "\n") {
		if strings.HasPrefix(line, "[") {
			notes = append(notes, line)
			continue
		}
		_, text, _ := strings.Cut(line, "\t")
		content = append(content, text)
	}
	return content, notes
}

func TestPageT8(t *testing.T) {
	t.Run("whole file", func(t *testing.T) {
		require.Equal(t, "1\ta\n2\tb", pageOf([]byte("a\nb\n"), "f", 1, 0))
	})
	t.Run("no final newline", func(t *testing.T) {
		require.Equal(t, "1\ta\n2\tb\n[no newline at the end of the file]", pageOf([]byte("a\nb"), "f", 1, 0))
	})
	t.Run("C11a a line beyond the cap", func(t *testing.T) {
		data := []byte(strings.Repeat("a", 70_000) + "\ntail\n")
		content, notes := contentOf(pageOf(data, "f", 1, 0))
		require.Len(t, content, 1)
		require.Len(t, content[0], 65_536)
		require.Contains(t, notes[0], "line 1 is cut inside, after 65536 of 70000 characters")
		require.Contains(t, notes[0], "sed -n 1p 'f' | tail -c +65537")
		require.Contains(t, notes[1], "lines 1-1 of 2; continue with start_line 2")
		require.Equal(t, "2\ttail\n[lines 2-2 of 2]", pageOf(data, "f", 2, 2))
	})
	t.Run("C11b characters, not bytes", func(t *testing.T) {
		content, notes := contentOf(pageOf([]byte(strings.Repeat(strings.Repeat("中", 100)+"\n", 300)), "f", 1, 0))
		require.Len(t, content, 300)
		require.Empty(t, notes)
	})
	t.Run("C11c wide characters in one line", func(t *testing.T) {
		page := pageOf([]byte(strings.Repeat("中", 70_000)), "f", 1, 0)
		content, notes := contentOf(page)
		require.Len(t, content[0], 196_608)
		require.True(t, utf8.ValidString(page))
		require.Contains(t, notes[0], "tail -c +196609")
	})
	t.Run("a line of exactly the cap is whole", func(t *testing.T) {
		content, notes := contentOf(pageOf([]byte(strings.Repeat("a", 65_536)+"\n"), "f", 1, 0))
		require.Len(t, content[0], 65_536)
		require.Empty(t, notes)
	})
	t.Run("a long line further down begins the next page", func(t *testing.T) {
		data := []byte("a\n" + strings.Repeat("b", 70_000) + "\nc\n")
		require.Equal(t, "1\ta\n[lines 1-1 of 3; continue with start_line 2]", pageOf(data, "f", 1, 0))
		content, notes := contentOf(pageOf(data, "f", 2, 0))
		require.Len(t, content[0], 65_536)
		require.Contains(t, notes[1], "continue with start_line 3")
	})
	t.Run("2000 lines", func(t *testing.T) {
		content, notes := contentOf(pageOf([]byte(strings.Repeat("x\n", 5000)), "f", 11, 4000))
		require.Len(t, content, 2000)
		require.Equal(t, []string{"[lines 11-2010 of 5000; continue with start_line 2011]"}, notes)
	})
	t.Run("C12 ranges", func(t *testing.T) {
		data := []byte("x\n\n\n\ny\n")
		require.Equal(t, "2\t\n3\t\n4\t\n[lines 2-4 of 5]", pageOf(data, "f", 2, 4))
		require.Equal(t, "[f has 5 lines; line 10 is past its end]", pageOf(data, "f", 10, 20))
		require.Equal(t, "[f is empty: 0 lines]", pageOf(nil, "f", 1, 0))
		require.Equal(t, "5\ty\n[lines 5-5 of 5]", pageOf(data, "f", 5, 20))
	})
	t.Run("C01 C06 endings and byte order mark are not shown", func(t *testing.T) {
		require.Equal(t, "1\thello\n2\tb\n[CRLF line endings, shown as LF; edit_file keeps them]", pageOf([]byte("\xEF\xBB\xBFhello\r\nb\r\n"), "f", 1, 0))
		require.Contains(t, pageOf([]byte("a\r\nb\n"), "f", 1, 0), "[mixed line endings")
	})
	t.Run("a few invalid bytes", func(t *testing.T) {
		page := pageOf([]byte("caf\xe9 au lait\n"), "f", 1, 0)
		require.Equal(t, "1\tcaf\\xE9 au lait\n[1 bytes are not UTF-8, shown as \\xNN; edit_file cannot match them]", page)
	})
}

// proves T7, T8 and C01: what read_file shows can be used as old_string.
func TestShownTextCanBeEdited(t *testing.T) {
	for _, raw := range []string{"a\r\nb\r\nc\r\n", "\xEF\xBB\xBFa\nb\nc", "a\r\nb\nc\r\n", " a\t\n\n\tb\n"} {
		content, _ := contentOf(pageOf([]byte(raw), "f", 1, 0))
		_, lines, err := applyEdit([]byte(raw), strings.Join(content, "\n"), "new", false)
		require.NoError(t, err, "%q", raw)
		require.Equal(t, []int{1}, lines)
	}
}

// proves C14
func TestNotTextC14(t *testing.T) {
	utf16 := func(s string) (out []byte) {
		for _, c := range []byte(s) {
			out = append(out, c, 0)
		}
		return out
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"UTF-16 with byte order mark": {[]byte{0xFF, 0xFE, 0x68, 0, 0x69, 0, 0x0A, 0}, "UTF-16 text (little endian)"},
		"UTF-16 without":              {[]byte{0x68, 0, 0x69, 0, 0x0A, 0}, "UTF-16 text (little endian, without"},
		"UTF-16 big endian":           {[]byte{0, 0x68, 0, 0x69, 0, 0x0A}, "UTF-16 text (big endian, without"},
		"UTF-16 big endian with":      {[]byte{0xFE, 0xFF, 0, 0x68}, "UTF-16 text (big endian)"},
		"long UTF-16":                 {utf16(strings.Repeat("some text\r\n", 100)), "UTF-16"},
		"UTF-32":                      {[]byte{0xFF, 0xFE, 0, 0, 0x68, 0, 0, 0}, "UTF-32"},
		"ZIP":                         {[]byte{0x50, 0x4B, 3, 4, 0, 1}, "application/zip"},
		"PNG":                         {[]byte("\x89PNG\r\n\x1a\n\x00\x00"), "image/png"},
		"ELF":                         {[]byte("\x7fELF\x02\x01\x01\x00\x00"), "ELF"},
		"a NUL":                       {[]byte("abc\x00def"), "binary"},
		"another encoding":            {[]byte("\x82\xa0\x82\xa2\x82\xa4\n"), "another encoding"},
		"empty":                       {nil, ""},
		"UTF-8":                       {[]byte("héllo 中文\n"), ""},
		"byte order mark":             {[]byte("\xEF\xBB\xBFhello\n"), ""},
		"some Latin-1":                {[]byte("na\xefve caf\xe9 au lait\n"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := notText(c.data)
			if c.want == "" {
				require.Empty(t, got)
				return
			}
			require.Contains(t, got, c.want)
		})
	}
}

func FuzzPage(f *testing.F) {
	f.Add([]byte("a\r\nb\n\xff"), 1, 0)
	f.Add([]byte("\n\n"), 2, 2)
	f.Fuzz(func(t *testing.T, data []byte, start, end int) {
		if start < 1 || end != 0 && end < start {
			return
		}
		page := pageOf(data, "f", start, end)
		require.NotEmpty(t, page)
		require.True(t, utf8.ValidString(page))
	})
}
