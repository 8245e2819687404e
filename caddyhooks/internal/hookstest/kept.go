package hookstest

import (
	"fmt"
	"os"
	"path/filepath"
)

// Kept is a folder in the user's cache with what tests need and what takes long to get: the next run of the tests has it at hand. It is
// filled once for each state of its sources, which the sum tells apart.
func Kept(name string, sum []byte, fill func(dir string) error) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil { // no home
		cache, err = SharedDir()
	}
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "caddyhooks-tests")
	kept := filepath.Join(cache, fmt.Sprintf("%s-%x", name, sum))
	if _, err := os.Stat(kept); err == nil {
		return kept, nil
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(cache, name+"-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir) // unless it was renamed
	if err := fill(dir); err != nil {
		return "", err
	}
	if err := os.Rename(dir, kept); err != nil {
		if _, missing := os.Stat(kept); missing != nil {
			return "", err
		}
		// Another process was quicker.
	}
	return kept, nil
}
