package tools

import (
	"bytes"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"unicode/utf8"
)

var byteOrderMark = []byte("\xEF\xBB\xBF")

// notText says what content looks like that is no UTF-8 text, and is empty for text. Text may
// hold some invalid bytes: a stray Latin-1 character makes no binary.
func notText(data []byte) string {
	switch {
	case bytes.HasPrefix(data, []byte{0xFF, 0xFE, 0, 0}), bytes.HasPrefix(data, []byte{0, 0, 0xFE, 0xFF}):
		return "UTF-32 text"
	case bytes.HasPrefix(data, []byte{0xFF, 0xFE}):
		return "UTF-16 text (little endian)"
	case bytes.HasPrefix(data, []byte{0xFE, 0xFF}):
		return "UTF-16 text (big endian)"
	}
	if bytes.IndexByte(data, 0) >= 0 {
		if order := utf16Order(data); order != "" {
			return "UTF-16 text (" + order + ", without byte order mark)"
		}
		return binary(data)
	}
	if invalid := invalidBytes(data); invalid*10 > len(data)*3 {
		if kind := binary(data); kind != "binary" {
			return kind
		}
		return "in another encoding than UTF-8, or binary"
	}
	return ""
}

// utf16Order tells text in UTF-16 by its zero bytes: nearly all in one of the two places.
func utf16Order(data []byte) string {
	var zeros [2]int
	for i, c := range data {
		if c == 0 {
			zeros[i%2]++
		}
	}
	pairs := len(data) / 2
	switch {
	case len(data)%2 != 0 || pairs == 0:
		return ""
	case zeros[1]*10 >= pairs*7 && zeros[0]*20 <= pairs:
		return "little endian"
	case zeros[0]*10 >= pairs*7 && zeros[1]*20 <= pairs:
		return "big endian"
	}
	return ""
}

func binary(data []byte) string {
	mime := http.DetectContentType(data)
	if mime == "application/octet-stream" || strings.HasPrefix(mime, "text/") {
		if bytes.HasPrefix(data, []byte("\x7fELF")) {
			return "binary (an ELF program or library)"
		}
		return "binary"
	}
	return fmt.Sprintf("binary (%s)", mime)
}

func invalidBytes(data []byte) int {
	n := 0
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == utf8.RuneError && size == 1 {
			n++
		}
		data = data[size:]
	}
	return n
}

// A text is the content of a file as read_file shows it, without byte order mark and with every
// CRLF as LF, and the way back to the bytes.
type text struct {
	body []byte
	crlf []int // where in body a newline stands for CRLF, ascending
	skip int   // length of the byte order mark
}

func newText(raw []byte) text {
	t := text{body: raw}
	if bytes.HasPrefix(raw, byteOrderMark) {
		t.skip = len(byteOrderMark)
		t.body = raw[t.skip:]
	}
	if !bytes.Contains(t.body, []byte("\r\n")) {
		return t
	}
	body := make([]byte, 0, len(t.body))
	for i, c := range t.body {
		if c == '\r' && i+1 < len(t.body) && t.body[i+1] == '\n' {
			t.crlf = append(t.crlf, len(body))
			continue
		}
		body = append(body, c)
	}
	t.body = body
	return t
}

// offset is where body[i] begins in the raw bytes.
func (t text) offset(i int) int { return t.skip + i + sort.SearchInts(t.crlf, i) }

// ending is how the newline at body[i] is written.
func (t text) ending(i int) string {
	if at := sort.SearchInts(t.crlf, i); at < len(t.crlf) && t.crlf[at] == i {
		return "\r\n"
	}
	return "\n"
}

// lineOf is the number of the line that body[i] is in, from 1.
func (t text) lineOf(i int) int { return 1 + bytes.Count(t.body[:i], []byte("\n")) }

// endings names what there is beside LF, for the model.
func (t text) endings() string {
	switch newlines := bytes.Count(t.body, []byte("\n")); {
	case len(t.crlf) == 0:
		return ""
	case len(t.crlf) == newlines:
		return "CRLF line endings"
	default:
		return "mixed line endings, LF and CRLF"
	}
}
