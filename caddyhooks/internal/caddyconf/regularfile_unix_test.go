//go:build unix

package caddyconf

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSecretsComeFromRegularFilesOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, link, huge := filepath.Join(dir, "pipe"), filepath.Join(dir, "link"), filepath.Join(dir, "huge")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink(pipe, link), os.WriteFile(huge, nil, 0o600), os.Truncate(huge, 1<<40)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		pipe:        "it is not a regular file",
		link:        "it is not a regular file",
		"/dev/zero": "it is not a regular file",
		dir:         "it is a directory",
		huge:        "it is larger than 1048576 bytes",
	} {
		want = "names the file " + path + ", which cannot be read: " + want
		if _, err := ResolveSecret("{file." + path + "}"); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A pipe may take the place of a file at any moment.
func TestAPipeInThePlaceOfAFileIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, file, secret := filepath.Join(dir, "pipe"), filepath.Join(dir, "file"), filepath.Join(dir, "secret")
	swapped := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		for {
			err := errors.Join(os.WriteFile(file, []byte("hush"), 0o600), os.Rename(file, secret), syscall.Mkfifo(pipe, 0o600), os.Rename(pipe, secret))
			select {
			case <-stop:
				swapped <- err
				return
			default:
			}
			if err != nil {
				swapped <- err
				return
			}
		}
	}()
	for range 2000 {
		data, err := ReadRegularFile(secret)
		if err == nil && string(data) != "hush" || err != nil && strings.Contains(err.Error(), "within") {
			t.Fatalf("got %q, %v", data, err)
		}
	}
	close(stop)
	if err := <-swapped; err != nil {
		t.Fatal(err)
	}
}

// One goroutine waits for a file that hangs, however many ask for it.
func TestAFileThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hangs")
	release, reads := make(chan struct{}), make(chan struct{}, 10)
	read := func(string) ([]byte, error) {
		reads <- struct{}{}
		<-release
		return []byte("hush"), nil
	}
	for range 3 {
		if _, err := readWithin(time.Millisecond, path, read); err == nil || err.Error() != "it was not read within 1ms" {
			t.Fatalf("got %v", err)
		}
	}
	close(release)
	if data, err := readWithin(time.Minute, path, read); err != nil || string(data) != "hush" {
		t.Errorf("got %q, %v", data, err)
	}
	if len(reads) > 2 { // the last one may have been another
		t.Errorf("the file was read %d times", len(reads))
	}
}
