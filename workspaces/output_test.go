package workspaces

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// reference is W2 in its own words, on the whole stream in memory.
func reference(raw []byte) (string, bool) {
	type char struct {
		text string
		raw  int
	}
	var chars []char
	for rest := raw; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		chars = append(chars, char{string(r), size})
		rest = rest[size:]
	}
	var b strings.Builder
	for _, c := range chars {
		b.WriteString(c.text)
	}
	if whole := b.String(); len(whole) <= OutputMaxBytes {
		return whole, false
	}
	var head strings.Builder
	i, headRaw := 0, 0
	for ; head.Len()+len(chars[i].text) <= OutputHeadBytes; i++ {
		head.WriteString(chars[i].text)
		headRaw += chars[i].raw
	}
	front, from := "", 0
	suffix, suffixRaw := 0, 0
	for j := len(chars); j >= i; j-- {
		if head.Len()+suffix > OutputMaxBytes-60 { // shorter ones fit anyway
			line := fmt.Sprintf("[%d bytes left out]\n", len(raw)-headRaw-suffixRaw)
			if !strings.HasSuffix(head.String(), "\n") {
				line = "\n" + line
			}
			if head.Len()+len(line)+suffix <= OutputMaxBytes {
				front, from = head.String()+line, j
			}
		}
		suffix += len(chars[j-1].text)
		suffixRaw += chars[j-1].raw
		if suffix > OutputMaxBytes {
			break
		}
	}
	b.Reset()
	for _, c := range chars[from:] {
		b.WriteString(c.text)
	}
	return front + b.String(), true
}

func checkOutput(t *testing.T, raw []byte, random *rand.Rand) {
	t.Helper()
	var o Output
	for rest := raw; len(rest) > 0; {
		n := min(len(rest), 1_000+random.IntN(60_000))
		o.Write(rest[:n])
		head := o.Head()
		require.LessOrEqual(t, len(head), OutputHeadBytes)
		rest = rest[n:]
		defer func() { require.True(t, strings.HasPrefix(o.String(), head)) }()
	}
	want, cut := reference(raw)
	got := o.String()
	require.True(t, utf8.ValidString(got))
	require.LessOrEqual(t, len(got), OutputMaxBytes)
	require.Equal(t, cut, o.Truncated())
	require.Equal(t, int64(len(raw)), o.Bytes())
	if got != want {
		t.Fatalf("differs: %d bytes, want %d", len(got), len(want))
	}
}

func TestOutputW2(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	a := func(n int) []byte { return []byte(strings.Repeat("a", n)) }
	for name, raw := range map[string][]byte{
		"empty":                          nil,
		"exact cap":                      a(65_536),
		"one over":                       a(65_537),
		"C32a rune across the cap":       append(a(65_535), "€€"...),
		"invalid bytes grow past":        []byte(strings.Repeat("\xff", 30_000)),
		"incomplete at the end":          append(a(10), 0xE2, 0x82),
		"wide":                           []byte(strings.Repeat("中", 40_000)),
		"four bytes":                     []byte("a" + strings.Repeat("😀", 40_000)),
		"lines":                          []byte(strings.Repeat("0123456\n", 40_000)),
		"line ends at the head":          append(append(a(16_383), '\n'), a(70_000)...),
		"continuation bytes at the seam": append(a(65_536-49_152), []byte(strings.Repeat("\x80", 120_000))...),
		"digits of the number change":    a(65_536 + 100_000 - 65),
	} {
		t.Run(name, func(t *testing.T) { checkOutput(t, raw, random) })
	}
	for i := range 12 {
		raw := make([]byte, 60_000+random.IntN(120_000))
		for j := range raw {
			switch i % 3 {
			case 0:
				raw[j] = byte(random.IntN(256))
			case 1:
				raw[j] = "€a"[random.IntN(4)]
			default:
				raw[j] = "😀é\n"[j%7]
			}
		}
		checkOutput(t, raw, random)
	}
}

func BenchmarkOutputFlood(b *testing.B) {
	chunk := []byte(strings.Repeat("y\n", 16<<10))
	b.SetBytes(int64(len(chunk)))
	var o Output
	for b.Loop() {
		o.Write(chunk)
	}
	_ = o.String()
}
