// Package gotool builds the programs in Go that tests try this one with. They are in modules of their own, so that the program
// does not depend on them.
package gotool

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Tools are the tools of a folder with a go.mod and a go.sum, and the folder's own programs, built once for all tests of a package.
// They are kept in the user's cache, so that the next run of the tests has them at hand.
func Tools(from string) func(testing.TB) (dir string) {
	name := filepath.Base(from)
	build := sync.OnceValues(func() (string, error) {
		sum, err := checksum(from)
		if err != nil {
			return "", err
		}
		return hookstest.Kept(name, sum, func(dir string) error {
			cmd := exec.Command("go", "install", "-mod=readonly", "tool", "./...")
			cmd.Dir = from
			cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-buildvcs=false", "GOWORK=off")
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("building %s: %w\n%s", name, err, bytes.TrimSpace(out))
			}
			return nil
		})
	})
	return func(t testing.TB) string {
		t.Helper()
		dir, err := build()
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
}

// checksum tells one state of a folder from another.
func checksum(dir string) ([]byte, error) {
	hash := sha256.New()
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(hash, "%s %d\n%s", path, len(data), data)
		return err
	})
	return hash.Sum(nil), err
}
