package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// lookUp finds the file of a program in the PATH of its own environment. A name with a slash is a path, seen from its folder.
func lookUp(name string, env []string, dir string) (string, error) {
	if runtime.GOOS == "windows" {
		return exec.LookPath(name)
	}
	if strings.ContainsRune(name, '/') {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		return path, executable(path)
	}
	var path string
	for _, variable := range env {
		if value, ok := strings.CutPrefix(variable, "PATH="); ok {
			path = value
		}
	}
	if path == "" {
		return "", fmt.Errorf("the program %s was not found: there is no PATH in its environment", name)
	}
	var denied error
	for _, dir := range filepath.SplitList(path) {
		// A program in the working directory, of all places, would be another one than was meant.
		if !filepath.IsAbs(dir) {
			continue
		}
		file := filepath.Join(dir, name)
		err := executable(file)
		if err == nil {
			return file, nil
		}
		if denied == nil && !errors.Is(err, os.ErrNotExist) {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", fmt.Errorf("the program %s was not found in PATH (%s)", name, path)
}

// executable checks that a file could be a program. What this user may not see, another one may.
func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrPermission) && os.Geteuid() == 0:
		return nil
	case errors.Is(err, os.ErrNotExist):
		return &missingError{path}
	case err != nil:
		return fmt.Errorf("the program %s cannot be used: %w", path, err)
	case info.IsDir():
		return fmt.Errorf("%s is a folder, not a program", path)
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("the program %s may not be executed: permission denied", path)
	}
	return nil
}

type missingError struct{ path string }

func (e *missingError) Error() string        { return fmt.Sprintf("the program %s does not exist", e.path) }
func (e *missingError) Is(target error) bool { return target == os.ErrNotExist }
