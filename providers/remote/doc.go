// Package remote makes a workspace of any sandbox that can run a program and stream to and from it: a container, a pod, a
// machine. A provider implements Transport, which is three methods, and gets from New a Workspace
// that keeps the contract of package workspaces: timeouts and cancels that stop everything a command has started, exit
// codes that survive background jobs, files of exactly the bytes that were written.
//
// # How
//
// Starting a program in a container takes the better part of a call's time. So a shell is started beforehand and waits
// for one call on its standard input: a command, a read or a write. Another takes its place. Each call begins by winning
// a claim in the sandbox, so that a call whose session was lost can be tried in another without running twice,
// and a stop takes it, so that what has not begun never does.
//
// What is written to a command's output goes through the same pipes as the report of its end, which carries a
// number that nobody but this call knows. A command may lie about its own end; it cannot end another's.
//
// # What a sandbox needs
//
// sh, git, GNU coreutils 8.31 or newer, /proc, and a directory /tmp that can be written. Workspace.SelfTest tries it out
// and names what is missing or behaves wrongly; busybox does.
package remote
