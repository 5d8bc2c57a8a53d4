// Package docker makes workspaces that are containers of a Docker engine: one hardened container each, with volumes of its
// own, that ends at the workspace's expiry even when nobody is left to remove it.
//
// What is enforced, and by what: no capabilities, no new privileges, the engine's default seccomp profile, a user that is
// not root and a read-only root file system ([Hardened], the default); cpu, memory and process limits by cgroups; nothing
// of the host's environment or file system inside; output, timeouts and the stop of commands by package remote.
//
// What is not: the network (choose [Options.Network]), the disk (a storage limit that is asked for is refused: the engine
// cannot bound a volume), and the kernel, which all containers share unless [Options.Runtime] is one with a kernel of its
// own. Who may speak to the engine is root on its host; so this process is, and no workspace ever is.
//
// An image needs sh, git and GNU coreutils 8.31 or newer. Create tries them out and names what is missing.
package docker
