//go:build unix

package programs

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The user of a program may put links into its home, and Caddy must not follow them to what that user may not read or write.
func TestLinksInTheHomeOfAnotherUserLeadNowhere(t *testing.T) {
	t.Parallel()
	as := &owner{os.Geteuid(), os.Getegid()} // whom nothing is taken from here
	home, outside := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"file": secret, "folder": outside, "inside": "settings"} {
		if err := os.Symlink(to, filepath.Join(home, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(home, "settings"), []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(home, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "folder/secret", "../" + filepath.Base(outside) + "/secret", "pipe"} {
		if data, err := ReadConfig(home, name, as); err == nil {
			t.Errorf("%s was read: %q", name, data)
		}
	}
	if data, err := ReadConfig(home, "file", nil); err != nil || string(data) != "secret" {
		t.Errorf("the same user gets %q, %v", data, err)
	}
	if data, err := ReadConfig(home, "inside", as); err != nil || string(data) != "a" {
		t.Errorf("got %q, %v", data, err)
	}
	folders := OnceFolders{all: home, Home: home, owner: as}
	for _, name := range []string{"file", "folder/secret", "folder/new"} {
		if err := folders.Write(name, []byte("b")); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	if err := folders.Write("new/settings", []byte("b")); err != nil {
		t.Error(err)
	}
	if err := folders.HandOver(); err != nil {
		t.Error(err)
	}
	folders.all = filepath.Join(home, "folder")
	if err := folders.HandOver(); err == nil || !strings.Contains(err.Error(), "escapes") {
		t.Errorf("got %v", err)
	}
	if data, err := os.ReadFile(secret); err != nil || string(data) != "secret" {
		t.Errorf("the file outside is %q, %v", data, err)
	}
}
