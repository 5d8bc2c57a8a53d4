package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/require"

	"github.com/carrel-dev/carrel/tools"
)

// The test program plays the agent's own: child says how.
const child = "REPRO_AGENT_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(child) {
	case "":
		os.Exit(m.Run())
	case "main":
		main()
	case "without the fix":
		c, err := parse(os.Args[1:], os.Stderr)
		if err == nil {
			err = run(context.Background(), c, withoutTheFix, os.Stdout)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// withoutTheFix is the scripted model that changes a comment where it is to mend the loop.
func withoutTheFix(_ context.Context, c config) (model.ToolCallingChatModel, string, error) {
	m := newScriptedModel(c.repository)
	for i, s := range m.steps {
		m.steps[i] = func(results []string) (*schema.Message, error) {
			message, err := s(results)
			if err == nil && len(message.ToolCalls) > 0 && message.ToolCalls[0].Function.Name == tools.EditFile {
				return say("I change a comment.", tools.EditFile, arguments{"path": "lib/count.sh", "old_string": "# Counting", "new_string": "# counting"}), nil
			}
			return message, err
		}
	}
	return m, "scripted, without the fix", nil
}

// agent is the program, started with a temporary directory of its own.
func agent(t *testing.T, how string, env []string, args ...string) (command *exec.Cmd, tmp string) {
	t.Helper()
	tmp = t.TempDir()
	command = exec.CommandContext(t.Context(), os.Args[0], args...)
	command.Env = append(os.Environ(), child+"="+how, "TMPDIR="+tmp, "OPENAI_API_KEY=")
	command.Env = append(command.Env, env...)
	return command, tmp
}

// finish runs the program to its end; nothing may be left in its temporary directory.
func finish(t *testing.T, command *exec.Cmd, tmp string) (stdout, stderr string, exit int) {
	t.Helper()
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	require.NoError(t, command.Start())
	_ = command.Wait() // the exit code says it
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
	return out.String(), errs.String(), command.ProcessState.ExitCode()
}

// requireSession wants the failing run before the passing one, each with its exit code, then the diff.
func requireSession(t *testing.T, stdout string) {
	t.Helper()
	for _, want := range []string{
		"> create_workspace", "> write_file", "FAIL  tests/no-final-newline.test.sh", "[sh: exit code 1]",
		"> edit_file", "all tests passed", "[sh: exit code 0]", "answer:", "diff:", "+++ b/lib/count.sh", "+++ b/tests/no-final-newline.test.sh",
	} {
		want = regexp.MustCompile(`\bsh: exit`).ReplaceAllString(want, "SHELL: exit")
		at := strings.Index(strings.NewReplacer("[bash: ", "[SHELL: ", "[sh: ", "[SHELL: ").Replace(stdout), want)
		require.GreaterOrEqual(t, at, 0, "%s is missing, or too early, in what is left of the output:\n%s", want, stdout)
		stdout = stdout[at:]
	}
}

func TestDemo(t *testing.T) {
	command, tmp := agent(t, "main", nil)
	stdout, stderr, exit := finish(t, command, tmp)
	require.Zero(t, exit, stderr)
	require.Contains(t, stdout, "model: scripted")
	requireSession(t, stdout)
}

// The same in a container without network, into which the repository of this host comes.
func TestDemoInContainer(t *testing.T) {
	image := os.Getenv("CARREL_TEST_SANDBOX_IMAGE")
	if image == "" {
		t.Skip("docker: no engine with a test image; make test and make engines-up have one where they can")
	}
	command, tmp := agent(t, "main", nil, "-provider", "docker", "-image", image)
	stdout, stderr, exit := finish(t, command, tmp)
	require.Zero(t, exit, stderr)
	require.Contains(t, stdout, "provider: docker")
	requireSession(t, stdout)
	id := regexp.MustCompile(`"workspace":"(ws-[0-9a-f]+)"`).FindStringSubmatch(stdout)
	require.NotNil(t, id)
	left, err := exec.Command("docker", "ps", "--all", "--quiet", "--filter", "label=carrel.dev/workspace="+id[1]).CombinedOutput()
	require.NoError(t, err, "%s", left)
	require.Empty(t, string(left))
}

func TestDemoWithoutTheFixFails(t *testing.T) {
	command, tmp := agent(t, "without the fix", nil)
	stdout, stderr, exit := finish(t, command, tmp)
	require.Equal(t, 1, exit, stdout)
	require.Contains(t, stderr, "all tests passing after the fix")
	require.NotContains(t, stdout, "answer:")
}

func TestFlags(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"unknown provider":       {[]string{"-provider", "moon"}, `no provider "moon"`},
		"unknown flag":           {[]string{"-moon"}, "-moon"},
		"argument":               {[]string{"moon"}, `unexpected argument "moon"`},
		"repository, no report":  {[]string{"-repo", "a/b"}, "needs a -report"},
		"report that is no file": {[]string{"-report", "moon.md"}, "moon.md"},
		"no model":               {[]string{"-repo", "a/b", "-report", "it is broken"}, "OPENAI_API_KEY"},
	} {
		t.Run(name, func(t *testing.T) {
			command, tmp := agent(t, "main", nil, test.args...)
			_, stderr, exit := finish(t, command, tmp)
			require.NotZero(t, exit)
			require.Contains(t, stderr, test.want)
		})
	}
}

// A chatServer speaks OpenAI's chat API and answers with what script says.
type chatServer struct {
	*httptest.Server
	calls, streamed atomic.Int64
}

type wireMessage struct {
	Role      string     `json:"role"`
	Content   string     `json:"content"`
	ToolCalls []wireCall `json:"tool_calls,omitempty"`
}

type wireCall struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func newChatServer(t *testing.T, script func(conversation []*schema.Message) (*schema.Message, error)) *chatServer {
	s := &chatServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Messages []wireMessage `json:"messages"`
			Tools    []any         `json:"tools"`
			Stream   bool          `json:"stream"`
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil || r.URL.Path != "/v1/chat/completions" || len(request.Tools) != len(tools.Names()) {
			http.Error(w, fmt.Sprintf("not what an agent with nine tools asks: %s %v, %d tools", r.URL.Path, err, len(request.Tools)), http.StatusBadRequest)
			return
		}
		s.calls.Add(1)
		var conversation []*schema.Message
		for _, m := range request.Messages {
			conversation = append(conversation, &schema.Message{Role: schema.RoleType(m.Role), Content: m.Content})
		}
		answer, err := script(conversation)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		message := wireMessage{Role: "assistant", Content: answer.Content}
		reason := "stop"
		for i, call := range answer.ToolCalls {
			wire := wireCall{Index: i, ID: call.ID, Type: "function"}
			wire.Function.Name, wire.Function.Arguments = call.Function.Name, call.Function.Arguments
			message.ToolCalls = append(message.ToolCalls, wire)
			reason = "tool_calls"
		}
		if !request.Stream {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"id": "1", "object": "chat.completion", "model": "m",
				"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": reason}}})
			return
		}
		s.streamed.Add(1)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, delta := range deltas(message) {
			chunk(w, delta, nil)
		}
		chunk(w, wireMessage{}, reason)
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(s.Close)
	return s
}

// deltas cuts a message as servers do: the text in two, the arguments of each call in two.
func deltas(m wireMessage) []wireMessage {
	half := len(m.Content) / 2
	all := []wireMessage{{Role: "assistant", Content: m.Content[:half]}, {Content: m.Content[half:]}}
	for _, call := range m.ToolCalls {
		first, second := call, wireCall{Index: call.Index}
		half := len(call.Function.Arguments) / 2
		first.Function.Arguments = call.Function.Arguments[:half]
		second.Function.Arguments = call.Function.Arguments[half:]
		all = append(all, wireMessage{ToolCalls: []wireCall{first}}, wireMessage{ToolCalls: []wireCall{second}})
	}
	return all
}

func chunk(w io.Writer, delta wireMessage, reason any) {
	data, _ := json.Marshal(map[string]any{"id": "1", "object": "chat.completion.chunk", "model": "m",
		"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": reason}}})
	fmt.Fprintf(w, "data: %s\n\n", data)
}

func (s *chatServer) env() []string {
	return []string{"OPENAI_API_KEY=k", "OPENAI_BASE_URL=" + s.URL + "/v1", "OPENAI_MODEL=m"}
}

var repositoryLine = regexp.MustCompile(`Repository: (\S+)`)

// session plays the scripted session over the wire.
func session(conversation []*schema.Message) (*schema.Message, error) {
	for _, m := range conversation {
		if found := repositoryLine.FindStringSubmatch(m.Content); found != nil {
			return newScriptedModel(found[1]).Generate(context.Background(), conversation)
		}
	}
	return nil, fmt.Errorf("nobody named a repository")
}

func TestOpenAI(t *testing.T) {
	for name, stream := range map[string]bool{"invoke": false, "stream": true} {
		t.Run(name, func(t *testing.T) {
			server := newChatServer(t, session)
			command, tmp := agent(t, "main", server.env(), fmt.Sprintf("-stream=%t", stream))
			stdout, stderr, exit := finish(t, command, tmp)
			require.Zero(t, exit, stdout+stderr)
			require.Contains(t, stdout, "model: m\n")
			requireSession(t, stdout)
			require.EqualValues(t, 9, server.calls.Load())
			require.Equal(t, stream, server.streamed.Load() == server.calls.Load())
		})
	}
}

func TestModelThatFails(t *testing.T) {
	server := newChatServer(t, func([]*schema.Message) (*schema.Message, error) { return nil, fmt.Errorf("no such model") })
	command, tmp := agent(t, "main", server.env())
	_, stderr, exit := finish(t, command, tmp)
	require.Equal(t, 1, exit)
	require.Contains(t, stderr, "no such model")
}

// Ctrl-C in the middle of a command ends the run, the command and what it started, and leaves nothing.
func TestInterrupt(t *testing.T) {
	for name, stream := range map[string]bool{"invoke": false, "stream": true} {
		t.Run(name, func(t *testing.T) {
			marker := fmt.Sprintf("7%d%d", os.Getpid(), len(strconv.FormatBool(stream)))
			server := newChatServer(t, func(conversation []*schema.Message) (*schema.Message, error) {
				if m := conversation[len(conversation)-1]; m.Role != schema.Tool {
					message, err := session(conversation)
					return message, err
				}
				return say("", tools.Bash, arguments{"command": "setsid sleep " + marker + " & sleep " + marker}), nil
			})
			command, tmp := agent(t, "main", server.env(), fmt.Sprintf("-stream=%t", stream))
			var stdout, stderr bytes.Buffer
			command.Stdout, command.Stderr = &stdout, &stderr
			require.NoError(t, command.Start())
			require.Eventually(t, func() bool { return sleepers(t, marker) >= 2 }, time.Minute, 20*time.Millisecond)
			require.NoError(t, command.Process.Signal(syscall.SIGINT))
			require.Error(t, command.Wait())
			require.Equal(t, 1, command.ProcessState.ExitCode(), stdout.String()+stderr.String())
			require.Zero(t, sleepers(t, marker))
			left, err := os.ReadDir(tmp)
			require.NoError(t, err)
			require.Empty(t, left)
			require.Contains(t, stderr.String(), context.Canceled.Error())
		})
	}
}

// sleepers counts the processes that sleep for marker seconds.
func sleepers(t *testing.T, marker string) int {
	t.Helper()
	all, err := exec.Command("ps", "-eo", "args").Output()
	require.NoError(t, err)
	n := 0
	for line := range strings.Lines(string(all)) {
		if strings.TrimSpace(line) == "sleep "+marker {
			n++
		}
	}
	return n
}

func TestTrace(t *testing.T) {
	var spans atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/v1/traces" {
			spans.Add(int64(bytes.Count(body, []byte("carrel.exec"))))
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer collector.Close()
	command, tmp := agent(t, "main", nil, "-trace", collector.URL)
	stdout, stderr, exit := finish(t, command, tmp)
	require.Zero(t, exit, stdout+stderr)
	require.Positive(t, spans.Load())
}
