package safe

import (
	"strings"
	"unicode/utf8"
)

const (
	// TextMaxBytes bounds names, ids and status texts.
	TextMaxBytes = 256
	// ContentMaxBytes bounds what is only recorded when content is switched on.
	ContentMaxBytes = 4096

	ellipsis = "…"
)

// Text returns s as valid UTF-8 of at most TextMaxBytes.
func Text(s string) string { return bounded(s, TextMaxBytes) }

// Content returns s as valid UTF-8 of at most ContentMaxBytes.
func Content(s string) string { return bounded(s, ContentMaxBytes) }

func bounded(s string, limit int) string {
	// Cut first: replacing the invalid bytes of a long text would copy all of it.
	cut := len(s) > limit
	if cut {
		s = s[:limit]
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	if !cut && len(s) <= limit {
		return s
	}
	end := min(len(s), limit-len(ellipsis))
	for end > 0 && end < len(s) && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + ellipsis
}
