package docker

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestDemultiplex(t *testing.T) {
	long := strings.Repeat("0123456789", 10_000)
	for text, want := range map[string]struct {
		out, errs, fails string
	}{
		"": {},
		"\x01\x00\x00\x00\x00\x00\x00\x02ab\x02\x00\x00\x00\x00\x00\x00\x01c\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01d": {"abd", "c", ""},
		"\x01\x00\x00\x00\x00\x01\x86\xa0" + long: {out: long},
		"\x01\x00\x00\x00\x00\x00\x00\x02a":       {out: "a", fails: "unexpected EOF"},
		"\x01\x00\x00":                            {fails: "unexpected EOF"},
		"\x01\x00\x00\x00\xff\xff\xff\xffab":      {out: "ab", fails: "unexpected EOF"},
		"HTTP/1.1 500 Oh":                         {fails: "is no output"},
		"\x01\x00\x01\x00\x00\x00\x00\x00":        {fails: "is no output"},
		"\x03\x00\x00\x00\x00\x00\x00\x01x":       {fails: "is no output"},
	} {
		for _, from := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
			var out, errs bytes.Buffer
			err := demultiplex(bufio.NewReaderSize(from, 64), &out, &errs)
			require.Equal(t, want.out, out.String())
			require.Equal(t, want.errs, errs.String())
			if want.fails == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, want.fails)
			}
		}
	}
	require.ErrorIs(t, demultiplex(bufio.NewReader(iotest.ErrReader(io.ErrClosedPipe)), io.Discard, io.Discard), io.ErrClosedPipe)
}
