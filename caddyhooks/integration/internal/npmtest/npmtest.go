// Package npmtest installs the npm packages that tests try the program with.
package npmtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Packages are the packages of a folder with a package.json and its lock file, installed once for all tests of a package. They
// are kept in the user's cache, so that the next run of the tests has them at hand. No script of a package is run.
func Packages(from string) func(testing.TB) (dir string) { return forTests(install(from)) }

// forTests is a way to what was installed for tests that may need more than Go.
func forTests(installed func() (string, error)) func(testing.TB) string {
	return func(t testing.TB) string {
		t.Helper()
		dir, err := installed()
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
}

func install(from string) func() (dir string, err error) {
	name := filepath.Base(from)
	return sync.OnceValues(func() (string, error) {
		lock, err := os.ReadFile(filepath.Join(from, "package-lock.json"))
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256(lock)
		return hookstest.Kept(name, sum[:], func(dir string) error {
			for _, file := range []string{"package.json", "package-lock.json"} {
				data, err := os.ReadFile(filepath.Join(from, file))
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, file), data, 0o600)
				}
				if err != nil {
					return err
				}
			}
			return Install(dir)
		})
	})
}

// Install installs what the lock file in a directory names. A download that stands still is begun anew after half a minute; npm itself would
// wait for five.
func Install(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline",
		"--fetch-timeout=30000", "--fetch-retries=8")
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("installing npm packages: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}
