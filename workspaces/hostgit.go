package workspaces

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// hostKillAfter is what a git on the host has to clean up behind itself once its fetch is cancelled.
const hostKillAfter = 500 * time.Millisecond

// A hostGit runs git on the host with an environment of its own: no configuration, no hooks, no
// prompt, nothing of ours but PATH.
type hostGit struct {
	path   string // absolute
	caFile string
}

// A gitFailure is a git on the host that did not succeed.
type gitFailure struct {
	code   int    // -1: it did not exit by itself
	stderr string // without the credential
	killed bool   // it could not clean up
	err    error  // why it did not exit by itself; nil where it did
}

func (e *gitFailure) Error() string {
	if e.err != nil {
		return "git: " + e.err.Error()
	}
	return fmt.Sprintf("git: exit code %d: %s", e.code, e.stderr)
}

func (e *gitFailure) Unwrap() error { return e.err }

// hostSettings hold for every git. Objects are checked; each fetch is one pack, which appears whole or
// not at all; a big file is never in memory as a whole. The host's identity (Kerberos) is not offered to whom
// the model names, and an identity is asked for only through the pipe of run.
var hostSettings = []string{
	"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.bigFileThreshold=16m", "gc.auto=0", "maintenance.auto=false",
	"protocol.version=2", "fetch.fsckObjects=true", "transfer.fsckObjects=true", "fetch.unpackLimit=1",
	"fetch.writeCommitGraph=false", "fetch.recurseSubmodules=false", "submodule.recurse=false",
	"http.followRedirects=false", "http.proxy=", "http.emptyAuth=false", "http.sslVerify=true",
	"http.lowSpeedLimit=1", "http.lowSpeedTime=60", "credential.helper=",
}

// credentialHelper answers from descriptor 3, a pipe: the credential is in no argument, variable or file.
const credentialHelper = `credential.helper=!f() { [ "$1" != get ] || cat <&3; }; f`

// run runs git in a bare repository of the cache, which may contact remote; a nil one is none. Its error is a
// *gitFailure. When ctx ends, all of git's processes are stopped; they have when run returns.
func (g hostGit) run(ctx context.Context, repository string, remote *hostRemote, stdin io.Reader, stdout io.Writer, args ...string) error {
	var settings []string
	for _, setting := range hostSettings {
		settings = append(settings, "-c", setting)
	}
	protocol, config := "none", "/dev/null"
	var credential Credential
	var inherited []*os.File
	if remote != nil {
		credential = remote.credential
		switch {
		case strings.HasPrefix(remote.url, "file:"):
			protocol, config = "file", trustingConfig(repository)
		default:
			protocol = "https"
		}
		if remote.pin != "" {
			settings = append(settings, "-c", "http.curloptResolve="+remote.pin)
		}
		if g.caFile != "" {
			// Without a directory of its own, curl would look into the system's besides.
			settings = append(settings, "-c", "http.sslCAInfo="+g.caFile, "-c", "http.sslCAPath="+noAuthorities(repository))
		}
		if credential.isSecret() {
			pipe, err := credential.pipe()
			if err != nil {
				return &gitFailure{code: -1, err: err}
			}
			defer pipe.Close()
			inherited = []*os.File{pipe}
			settings = append(settings, "-c", credentialHelper)
		}
	}
	cmd := exec.CommandContext(ctx, g.path, append(append(settings, "--git-dir="+repository), args...)...)
	cmd.Dir = repository
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "HOME=/dev/null", "XDG_CONFIG_HOME=/dev/null", "LC_ALL=C.UTF-8",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + config, "GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=",
		"GIT_ALLOW_PROTOCOL=" + protocol, "GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1",
	}
	var stderr Output
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = stdin, stdout, &stderr, inherited
	ownSession(cmd)
	cmd.WaitDelay = 2 * hostKillAfter
	var kill *time.Timer
	cmd.Cancel = func() error {
		kill = time.AfterFunc(hostKillAfter, func() { _ = killGroup(cmd.Process) })
		return terminateGroup(cmd.Process)
	}
	err := cmd.Run()
	if err == nil {
		if kill != nil {
			kill.Stop()
		}
		return nil
	}
	failure := &gitFailure{code: -1, stderr: strings.ReplaceAll(credential.redact(stderr.String()), repository, "(cache)")}
	var exit *exec.ExitError
	switch {
	case kill != nil:
		failure.killed, failure.err = !kill.Stop(), context.Cause(ctx)
	case errors.As(err, &exit) && exit.Exited():
		failure.code = exit.ExitCode()
	case cmd.Process == nil:
		failure.err = err
	default: // somebody else's signal, or a process that git left behind
		_ = killGroup(cmd.Process)
		failure.killed, failure.err = true, err
	}
	return failure
}

// output is run for a git that prints a few lines.
func (g hostGit) output(ctx context.Context, repository string, remote *hostRemote, args ...string) (string, error) {
	var out Output
	err := g.run(ctx, repository, remote, nil, &out, args...)
	return strings.TrimSuffix(out.String(), "\n"), err
}

// checkVersion refuses a git that would ignore http.curloptResolve, and so resolve the host
// again, to another address perhaps.
func (g hostGit) checkVersion(ctx context.Context, repository string) error {
	said, err := g.output(ctx, repository, nil, "version")
	if err != nil {
		return err
	}
	var major, minor int
	if _, err := fmt.Sscanf(said, "git version %d.%d", &major, &minor); err != nil {
		return fmt.Errorf("%w: host fetch needs git 2.37 or newer on this host; it says %s", ErrUnsupported, quoted(said))
	}
	if major < 2 || major == 2 && minor < 37 {
		return fmt.Errorf("%w: host fetch over https needs git 2.37 or newer on this host, which has %d.%d", ErrUnsupported, major, minor)
	}
	return nil
}
