// Package lifecycle disposes the workspaces of an Eino run when the run has ended.
//
// A [Hook] is a callback handler: give it to an agent with adk.WithCallbacks, to a graph with compose.WithCallbacks.
//
//	hook := lifecycle.New(manager)
//	ctx = lifecycle.WithRunID(ctx, "")
//	events := lifecycle.Events(ctx, runner.Query(ctx, query, adk.WithCallbacks(hook)))
//
// The outermost graph, chain, workflow or agent that the hook sees owns the run. The hook opens it, puts its handle into
// the context of the tools and nodes below, and releases it when that component ends. Nested graphs, the agents of a
// workflow, an agent as a tool and the agents that are transferred to share the run and settle nothing.
//
// # What it guarantees
//
// A run that completed, failed or was cancelled, by a panic too, is released: its creates aborted, its commands
// stopped, its workspaces disposed. From Invoke that happens before it returns, or goes on in the background after ten
// seconds; for streams and agents it happens in the background, and [Events] waits for it. What still runs in
// such a run, a parallel node of a failed graph say, gets workspaces.ErrRunEnded and creates nothing.
//
// A run that is interrupted keeps its workspaces, and its running commands are stopped. Resumed under
// its id, it goes on in them, in another process too where the provider can find them again. Their lifetime
// goes on meanwhile: where people are asked, give workspaces.Limits a Lifetime that people need.
//
// A run whose context ends is cancelled. What does not heed that within ten seconds is left behind.
//
// # Which run
//
// The id is that of [WithRunID], else the one that the agent's session remembers, else a new one. Executions under one
// id share the run, and the last one to end settles it. In a run that somebody opened with
// [workspaces.Manager.Open] and [workspaces.ContextWithRun] the hook settles nothing: it ends when its opener releases
// it, after many turns of a chat, say.
//
// While the hook drains, on a closed manager, and for an id that breaks the rules no run is opened: tools get
// workspaces.ErrRunEnded, [OnError] and [Events] the reason.
//
// # What it does not see
//
// A handler cannot tell an ADK cancel (adk.WithCancel) from an interrupt: without [Events], the workspaces of a
// cancelled agent are kept until they expire. It does not see that the reader of a stream leaves early: the
// run ends with the producer, unless the context is cancelled. A panic that Eino does not catch, in a branch of a
// graph, reads as completed from Invoke; from Stream the hook hears nothing, and the run ends with its context.
//
// Eino takes an agent's instruction for a template once the session has a value; literal braces in it then fail the run. The
// hook writes one, [SessionKey], only where the id would be lost: when an agent is interrupted whose run the caller has
// not chosen the id of, and when an agent transfers to another one in a context without [WithRunID]. Name the run,
// under the same id when it is resumed, and nothing is written. A graph has no session, and an agent without a graph that
// interrupts itself (adk.Interrupt) is not noticed in time: to resume these in their workspaces, name their runs.
package lifecycle
