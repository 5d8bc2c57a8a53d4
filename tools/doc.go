// Package tools gives the model of an Eino agent nine tools over the workspaces of its
// run: create_workspace, dispose_workspace, read_file, write_file, edit_file, grep, list_files, bash
// and git_diff.
//
// The run comes from the context, where the lifecycle hook or workspaces.ContextWithRun
// put it, never from the model: a run reaches only its own workspaces. Whatever goes wrong in a
// workspace or in the model's arguments is a result that says what to do next and begins with
// ErrorPrefix; only the end of the call's own context and Eino's interrupts are errors. The model sees
// every workspace at /workspace, wherever it really is.
//
// What the package does not do: it confines nothing. What a command may reach is
// the provider's matter, and grep, list_files and git_diff run inside the workspace like every
// other command. It asks nobody for permission and limits no use. It never repeats a call by itself.
//
// bash streams when the agent streams. The command goes on until it ends, times out, or the
// context ends; a reader that closes the stream early stops it at its next output.
package tools
