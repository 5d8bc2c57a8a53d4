// Package local gives no isolation: a workspace is a temporary directory of the host, and its
// commands run as our own user, with everything that user may do. It is for development and
// tests. Whatever a model runs here can read the host's files and our own memory, reach the
// network, and touch other workspaces.
//
// # What it guarantees
//
// A workspace is the folder work below Root/<id>, beside the HOME and TMPDIR of its commands.
// They get PATH from the host's environment and nothing else, standard streams and no other
// descriptor, default signal dispositions, and a session of their own without a terminal.
//
// ReadFile and WriteFile stay below the workspace, also when a link is swapped during
// the call. A link is what the kernel makes of it: an absolute one is followed only
// while it names the workspace's real directory, and /workspace, which does not exist
// on the host, is no such name.
//
// A timeout, a cancel and Dispose stop everything a command started. Its processes are found by
// session, group, ancestry and a variable in their environment. What sheds all of
// these (env -i setsid) is found by its age and its working directory, when the workspace has no
// other command and no job of an earlier one; else it runs until Dispose. Dispose also
// ends what works in, or was started from, the workspace's folder; of that it spares processes with
// a terminal and those that somebody else started, which may be a person's own.
//
// A file beside the folder, written first and removed last, says whose it is and when it
// expires; our process holds a lock on it. Collect goes by it.
//
// # What it does not
//
// Of the limits only Lifetime is enforced. An explicit limit on cpu, memory, storage or pids is
// refused, a default one has no effect, and nobody counts who ran out of memory:
// Result.OOMKilled is never set. A fork bomb can use up the user's processes, and ours with them.
//
// Processes do not end at the workspace's expiry by themselves, and a workspace of a process that
// died is not found again. What is left goes with the next collection of a process with
// the same Root and deployment. A process that was written to dodge the stop, forking faster
// than the process table can be read and shedding group, session and environment, can outlive
// Dispose.
//
// A background job's output is drained by our process: it gets SIGPIPE once we are gone. Where our
// process is the first of a container, that container needs an init that reaps.
//
// Exec passes ignored signals on to a child. So that commands start with default dispositions, a
// signal that our process ignores is, from the first workspace on, caught and dropped instead.
//
// # Systems
//
// Linux and macOS; elsewhere the package is empty and its importers do not build. On macOS, which
// shows neither the environment nor the working directory of another process, a
// command's processes are found by session, group and ancestry alone, and a collection ends
// none: a job that a dead process of ours left behind there runs on.
package local
