//go:build agents

package agents

import (
	"bytes"
	"os"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// filesWith are the files below a directory that hold a word.
func filesWith(t *testing.T, dir, word string) (found []string) {
	t.Helper()
	for _, file := range hookstest.FilesIn(t, dir) {
		if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
			continue
		}
		if data, err := os.ReadFile(file); err == nil && bytes.Contains(data, []byte(word)) {
			found = append(found, file)
		}
	}
	return found
}
