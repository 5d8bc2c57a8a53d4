package contracttest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func inputCases() []Case {
	return []Case{
		{ID: "C31-no-stdin", Rule: "Without stdin a command reads end of file at once; nothing waits for a person.", run: noStdinCase},
		{ID: "W11-stdin-whole", Rule: "Stdin arrives whole and ends, whatever its size and its chunks.", run: stdinWholeCase},
		{ID: "W11-stdin-unread", Rule: "A command that does not read its stdin ends as any other.", run: stdinUnreadCase},
		{ID: "W11-stdin-blocks", Rule: "A reader that blocks does not hold up the return of a command that has ended.", run: stdinBlocksCase},
	}
}

func noStdinCase(f *fixture) {
	w := f.workspace()
	for script, want := range map[string]string{
		"cat; echo rc=$?":               "rc=0\n",
		"read x; echo rc=$?":            "rc=1\n",
		"head -c 1 | wc -c | tr -d ' '": "0\n",
	} {
		result := f.soon(w, sh(script))
		require.Equal(f, want, result.Stdout, script)
		require.False(f, result.TimedOut, script)
	}
	result := f.soon(w, sh("git init -q x && cd x && touch f && git add f && git commit"))
	require.NotZero(f, result.ExitCode, "a commit without a message")
	require.NotEmpty(f, result.Stderr)
}

func stdinWholeCase(f *fixture) {
	w := f.workspace()
	for _, size := range []int{0, 1, 4096, 65_536, 65_537, 1 << 20} {
		data := pattern(size)
		for name, reader := range map[string]io.Reader{
			"at once":   bytes.NewReader(data),
			"in halves": iotest.HalfReader(bytes.NewReader(data)),
			"last":      iotest.DataErrReader(bytes.NewReader(data)),
		} {
			command := sh("sha256sum; printf '%s' end")
			command.Stdin = reader
			require.Equal(f, fmt.Sprintf("%x  -\nend", sha256.Sum256(data)), f.exec(w, command).Stdout, "%d bytes %s", size, name)
		}
	}
	command := sh("head -n 1")
	command.Stdin = iotest.OneByteReader(bytes.NewReader([]byte("first\nsecond\n")))
	require.Equal(f, "first\n", f.exec(w, command).Stdout)
}

// pattern is size bytes of every value, in no order that a mistake would keep.
func pattern(size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i ^ i>>8*7 ^ i>>16*13)
	}
	return data
}

func stdinUnreadCase(f *fixture) {
	w := f.workspace()
	for _, size := range []int{1, 1 << 20} {
		command := sh("exit 4")
		command.Stdin = bytes.NewReader(pattern(size))
		require.Equal(f, 4, f.soon(w, command).ExitCode)
	}
	// What is left of one command's stdin is not the next one's.
	require.Equal(f, "[]", f.shell(w, `printf '[%s]' "$(cat)"`))
}

func stdinBlocksCase(f *fixture) {
	w := f.workspace()
	reader, writer := io.Pipe()
	f.Cleanup(func() { writer.Close() })
	command := sh("echo on; exit 5")
	command.Stdin = reader
	result := f.soon(w, command)
	require.Equal(f, 5, result.ExitCode)
	require.Equal(f, "on\n", result.Stdout)
}
