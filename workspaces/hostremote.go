package workspaces

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

const (
	// credentialMaxBytes bounds a credential: it must fit into the buffer of a pipe.
	credentialMaxBytes = 8192

	// usernameSecretBytes is from what length on a user name may be a token and is taken out of what
	// git says. A short one, "git" say, would take other words with it.
	usernameSecretBytes = 8
)

// A hostRemote is what one fetch contacts.
type hostRemote struct {
	url        string
	pin        string // of http.curloptResolve; empty for an address or a directory
	credential Credential
}

// remote says what to contact, with what credential, and under what key the cache has it. Its pin is not
// set yet.
func (f *hostFetcher) remote(ctx context.Context, runID, repository string) (remote *hostRemote, key string, err error) {
	remote = &hostRemote{url: repository}
	if strings.HasPrefix(repository, "file:") {
		return remote, digest("public", repository), f.checkDirectory(repository)
	}
	if f.options.Credential == nil {
		return remote, digest("public", repository), nil
	}
	credential, err := f.options.Credential(ctx, runID, repository)
	if err == nil {
		err = credential.check()
	}
	if err != nil {
		return nil, "", fmt.Errorf("credential for %s: %w", repository, err)
	}
	remote.credential = credential
	switch {
	case credential == Credential{}:
		return remote, digest("public", repository), nil
	case credential.Scope == "":
		return remote, digest("run", repository, runID), nil
	}
	return remote, digest("scope", repository, credential.Scope), nil
}

// checkDirectory refuses what is no directory of the host, a bundle say, and our own cache, where what other scopes
// may see lies.
func (f *hostFetcher) checkDirectory(repository string) error {
	parsed, err := url.Parse(repository)
	if err != nil {
		return fmt.Errorf("%w: repository: not a URL", ErrInvalidInput)
	}
	no := &CheckoutError{Step: "fetch", Repository: repository, ExitCode: 128, Stderr: parsed.Path + " is not a directory"}
	path, err := filepath.EvalSymlinks(parsed.Path)
	if err != nil {
		return no
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return no
	}
	cache, err := filepath.EvalSymlinks(f.cache.dir)
	if err != nil {
		return ignoreNotExist(err)
	}
	if below, err := filepath.Rel(cache, path); err == nil && filepath.IsLocal(below) {
		return no
	}
	return nil
}

// head asks for the remote's HEAD: its commit, empty where the remote is, and the full name of its branch, empty where it is
// detached.
func (f *hostFetcher) head(ctx context.Context, g generation, remote *hostRemote) (commit, name string, err error) {
	said, err := f.git.output(ctx, string(g), remote, "ls-remote", "--quiet", "--symref", remote.url, "HEAD")
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(said) {
		value, of, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if of != "HEAD" {
			continue
		}
		if target, ok := strings.CutPrefix(value, "ref: "); ok {
			name = target
		} else if isCommitID(value) {
			commit = value
		}
	}
	if commit != "" {
		return commit, name, nil
	}
	refs, err := f.git.output(ctx, string(g), remote, "ls-remote", "--quiet", remote.url)
	if err == nil && refs != "" {
		err = &gitFailure{code: 1, stderr: "the remote has commits but its HEAD names none: name a branch, a tag or a full commit id"}
	}
	return "", "", err
}

// shortID says of a failed fetch whether its ref may be a short commit id, which nobody can fetch.
func (f *hostFetcher) shortID(ctx context.Context, c *fetchedCommit, remote *hostRemote, g generation, err error) error {
	var failure *gitFailure
	if !isShortID(c.ref) || !errors.As(err, &failure) || failure.err != nil {
		return err
	}
	_, asked := f.git.output(ctx, string(g), remote, "ls-remote", "--quiet", "--exit-code", remote.url, "refs/heads/"+c.ref, "refs/tags/"+c.ref)
	if errors.As(asked, &failure) && failure.code == 2 {
		return shortIDError(c.url, c.ref)
	}
	return err
}

// isSecret says that there is something to authenticate with.
func (c Credential) isSecret() bool { return c.Username != "" || c.Password != "" }

// check says what git's credential protocol or HTTP cannot carry. It repeats nothing.
func (c Credential) check() error {
	switch {
	case strings.ContainsAny(c.Username+c.Password, "\n\r\x00"):
		return errors.New("a credential with a line break or a NUL byte")
	case strings.Contains(c.Username, ":"):
		return errors.New("a credential whose user name has a colon")
	case len(c.Username)+len(c.Password) > credentialMaxBytes:
		return fmt.Errorf("a credential of more than %d bytes", credentialMaxBytes)
	}
	return nil
}

// pipe returns the read end of a pipe that holds the credential as git's protocol has it, and then ends.
func (c Credential) pipe() (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(w, "username=%s\npassword=%s\n", c.Username, c.Password)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// redact takes the credential out of what git says, which may quote a server's answer. A token may be the user
// name as well as the password.
func (c Credential) redact(said string) string {
	secrets := []string{base64.StdEncoding.EncodeToString([]byte(c.Username + ":" + c.Password)), c.Password}
	if len(c.Username) >= usernameSecretBytes {
		secrets = append(secrets, c.Username)
	}
	var pairs []string
	for _, secret := range secrets {
		for _, spelled := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret)} {
			if c.isSecret() && spelled != "" {
				pairs = append(pairs, spelled, "[credential]")
			}
		}
	}
	return strings.NewReplacer(pairs...).Replace(said)
}
