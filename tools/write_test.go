package tools

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// proves T11: spelling. Links are proved end to end.
func TestRefuseGitT11(t *testing.T) {
	for _, at := range []string{".git", ".git/config", "a/.git/hooks/x", ".GIT/config", "sub/.Git", ".git/"} {
		require.Error(t, refuseGit("p", at), at)
	}
	for _, at := range []string{".gitignore", ".github/w.yml", "a.git/x", "git/.gitkeep", "..git", ".git2/x"} {
		require.NoError(t, refuseGit("p", at), at)
	}
}
