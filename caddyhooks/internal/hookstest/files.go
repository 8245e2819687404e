package hookstest

import (
	"io/fs"
	"path/filepath"
	"testing"
)

// FilesIn are the paths of all that is in a directory, with the directory itself.
func FilesIn(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		files = append(files, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
