package einotrace_test

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cloudwego/eino/callbacks"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/carrel-dev/carrel/providers/local"
	"github.com/carrel-dev/carrel/tools"
	"github.com/carrel-dev/carrel/workspaces"
)

// A fault is what a provider does instead of an operation.
type fault func(ctx context.Context, operation workspaces.OperationKind) (workspaces.Result, error)

// A faultyProvider is the local one until a fault is set.
type faultyProvider struct {
	workspaces.Provider
	fault atomic.Pointer[fault]
}

func (p *faultyProvider) Unwrap() workspaces.Provider { return p.Provider }

func (p *faultyProvider) instead(ctx context.Context, kind workspaces.OperationKind) (hit bool, result workspaces.Result, err error) {
	f := p.fault.Load()
	if f == nil {
		return false, result, nil
	}
	result, err = (*f)(ctx, kind)
	return err != nil || result.TimedOut, result, err
}

func (p *faultyProvider) Create(ctx context.Context, options workspaces.CreateOptions) (workspaces.Created, error) {
	if hit, _, err := p.instead(ctx, workspaces.OperationCreate); hit {
		return workspaces.Created{}, err
	}
	created, err := p.Provider.Create(ctx, options)
	created.Workspace = &faultyWorkspace{created.Workspace, p}
	return created, err
}

type faultyWorkspace struct {
	workspaces.Workspace
	provider *faultyProvider
}

func (w *faultyWorkspace) Unwrap() workspaces.Workspace { return w.Workspace }

func (w *faultyWorkspace) Exec(ctx context.Context, command workspaces.Command) (workspaces.Result, error) {
	if hit, result, err := w.provider.instead(ctx, workspaces.OperationExec); hit {
		return result, err
	}
	return w.Workspace.Exec(ctx, command)
}

func (w *faultyWorkspace) ReadFile(ctx context.Context, path string) ([]byte, error) {
	if hit, _, err := w.provider.instead(ctx, workspaces.OperationRead); hit {
		return nil, err
	}
	return w.Workspace.ReadFile(ctx, path)
}

func (w *faultyWorkspace) WriteFileAt(ctx context.Context, path, at string, data []byte) error {
	if hit, _, err := w.provider.instead(ctx, workspaces.OperationWrite); hit {
		return err
	}
	linker, _ := workspaces.As[workspaces.LinkWriter](w.Workspace)
	return linker.WriteFileAt(ctx, path, at, data)
}

func (w *faultyWorkspace) Dispose(ctx context.Context) error {
	if hit, _, err := w.provider.instead(ctx, workspaces.OperationDispose); hit {
		return err
	}
	return w.Workspace.Dispose(ctx)
}

// pairs counts the callbacks of tools.
type pairs struct{ starts, ends atomic.Int64 }

func (p *pairs) handler() callbacks.Handler {
	count := func(n *atomic.Int64, info *callbacks.RunInfo) {
		if info != nil && info.Component == "Tool" {
			n.Add(1)
		}
	}
	return callbacks.NewHandlerBuilder().
		OnStartFn(func(ctx context.Context, info *callbacks.RunInfo, _ callbacks.CallbackInput) context.Context {
			count(&p.starts, info)
			return ctx
		}).
		OnEndFn(func(ctx context.Context, info *callbacks.RunInfo, _ callbacks.CallbackOutput) context.Context {
			count(&p.ends, info)
			return ctx
		}).
		OnErrorFn(func(ctx context.Context, info *callbacks.RunInfo, _ error) context.Context {
			count(&p.ends, info)
			return ctx
		}).
		OnEndWithStreamOutputFn(func(ctx context.Context, info *callbacks.RunInfo, output *schema.StreamReader[callbacks.CallbackOutput]) context.Context {
			output.Close()
			count(&p.ends, info)
			return ctx
		}).Build()
}

// proves C59, O1, O2, O3: carrel's own tools, a manager and a provider that fails in each way. Every span ends once, carrel's
// hang below the tool's, which fails when its answer is an error; all carry the run and none any content.
func TestToolsC59O1O2O3(t *testing.T) {
	provider, err := local.New(local.Options{Root: t.TempDir()})
	require.NoError(t, err)
	arguments := map[string]string{
		tools.CreateWorkspace:  `{}`,
		tools.DisposeWorkspace: `{}`,
		tools.ReadFile:         `{"path":"SECRET.txt"}`,
		tools.WriteFile:        `{"path":"SECRET.txt","content":"SECRET"}`,
		tools.EditFile:         `{"path":"SECRET.txt","old_string":"SECRET","new_string":"SECRET too"}`,
		tools.Grep:             `{"pattern":"SECRET"}`,
		tools.ListFiles:        `{}`,
		tools.Bash:             `{"command":"echo SECRET; exit 3"}`,
		tools.GitDiff:          `{}`,
	}
	for _, named := range append(tools.Names(), "streamed "+tools.Bash) {
		name, streaming := strings.CutPrefix(named, "streamed ")
		runsCommands := slices.Contains([]string{tools.Grep, tools.ListFiles, tools.Bash, tools.GitDiff}, name)
		for how, c := range map[string]struct {
			// fault gets what cancels the run, and what is closed when the run is over.
			fault     func(ctx context.Context, kind workspaces.OperationKind, cancel func(), over <-chan struct{}) (workspaces.Result, error)
			arguments string // instead of the right ones
			toolError string // error.type of the tool's span
			ownError  string // error.type of carrel's
			fails     bool   // the run
		}{
			"success":          {},
			"validation error": {arguments: `{"SECRET":1}`, toolError: "invalid_input"},
			"gone": {
				fault: func(context.Context, workspaces.OperationKind, func(), <-chan struct{}) (workspaces.Result, error) {
					return workspaces.Result{}, workspaces.ErrGone
				},
				toolError: "gone", ownError: "gone",
			},
			"timeout": {
				fault: func(_ context.Context, kind workspaces.OperationKind, _ func(), _ <-chan struct{}) (workspaces.Result, error) {
					if kind == workspaces.OperationExec {
						return workspaces.Result{TimedOut: true, ExitCode: 124}, nil
					}
					return workspaces.Result{}, context.DeadlineExceeded // of a connection, say
				},
				// bash answers with the output so far; what cannot go on without the whole output fails.
				toolError: pick(name == tools.Bash, "", pick(runsCommands, "_OTHER", "deadline_exceeded")),
				ownError:  pick(runsCommands, "timeout", "deadline_exceeded"),
			},
			"cancelled": {
				fault: func(ctx context.Context, _ workspaces.OperationKind, cancel func(), over <-chan struct{}) (workspaces.Result, error) {
					cancel()
					select {
					case <-ctx.Done():
					case <-over: // a disposal outlives the caller's cancellation
					}
					return workspaces.Result{}, ctx.Err()
				},
				toolError: "cancelled", ownError: pick(name == tools.DisposeWorkspace, "", "cancelled"), fails: true,
			},
			"panic": {
				fault: func(context.Context, workspaces.OperationKind, func(), <-chan struct{}) (workspaces.Result, error) {
					panic("SECRET")
				},
				toolError: "_OTHER", ownError: "_OTHER",
			},
		} {
			t.Run(named+"/"+how, func(t *testing.T) {
				r, counted := record(t), &pairs{}
				faulty := &faultyProvider{Provider: provider}
				manager, err := workspaces.NewManager(faulty, workspaces.Options{Observer: r.observer, CollectInterval: -1})
				require.NoError(t, err)
				run, err := manager.Open("run-1")
				require.NoError(t, err)
				if name != tools.CreateWorkspace {
					acquired, err := run.Acquire(t.Context(), workspaces.AcquireOptions{})
					require.NoError(t, err)
					require.NoError(t, acquired.Workspace.WriteFile(t.Context(), "SECRET.txt", []byte("SECRET\n")))
				}
				prepared := len(r.spans.Ended())

				ctx, cancel := context.WithCancel(workspaces.ContextWithRun(context.Background(), run))
				defer cancel()
				over := make(chan struct{})
				if c.fault != nil {
					f := fault(func(ctx context.Context, kind workspaces.OperationKind) (workspaces.Result, error) {
						if kind == workspaces.OperationDispose && name != tools.DisposeWorkspace {
							return workspaces.Result{}, nil // the manager cleans up
						}
						return c.fault(ctx, kind, cancel, over)
					})
					faulty.fault.Store(&f)
				}
				all, err := tools.New(manager)
				require.NoError(t, err)
				graph := loop(t, script(calls(call("c1", name, cmp.Or(c.arguments, arguments[name]))), answer("done")), all...)
				_, err = invoke(ctx, graph, streaming, "go", compose.WithCallbacks(r.handler, counted.handler()))
				close(over)
				require.Equal(t, c.fails, err != nil, "%v", err)

				faulty.fault.Store(nil)
				require.NoError(t, run.Release(context.Background(), workspaces.Completed))
				require.NoError(t, manager.Close(context.Background()))
				spans := r.settle(t)[prepared:]
				require.Equal(t, int64(1), counted.starts.Load())
				require.Equal(t, int64(1), counted.ends.Load())
				require.NotContains(t, render(spans, false), "SECRET")

				toolSpan := r.find(t, "execute_tool "+name)
				require.Equal(t, c.toolError, value(toolSpan, "error.type"))
				require.Equal(t, c.toolError != "", toolSpan.Status().Code == codes.Error)
				var ownErrors []string
				for _, span := range spans {
					require.Equal(t, "run-1", value(span, "carrel.run.id"), span.Name())
					if !strings.HasPrefix(span.Name(), "carrel.") {
						continue
					}
					if !span.Parent().IsValid() {
						require.Equal(t, "carrel.dispose", span.Name(), "only the manager's clean-up is nobody's call")
						continue
					}
					require.True(t, hangsBelow(spans, span, toolSpan), span.Name())
					if kind := value(span, "error.type"); kind != "" {
						require.Equal(t, codes.Error, span.Status().Code)
						ownErrors = append(ownErrors, kind)
					}
				}
				if c.ownError == "" {
					require.Empty(t, ownErrors)
				} else {
					require.Equal(t, []string{c.ownError}, ownErrors)
				}
			})
		}
	}
}

func pick(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}

// hangsBelow says whether span is above's child, or a child of one.
func hangsBelow(spans []sdktrace.ReadOnlySpan, span, above sdktrace.ReadOnlySpan) bool {
	for span != nil {
		parent := span.Parent()
		if parent.Equal(above.SpanContext()) {
			return true
		}
		span = nil
		for _, other := range spans {
			if other.SpanContext().Equal(parent) {
				span = other
			}
		}
	}
	return false
}
