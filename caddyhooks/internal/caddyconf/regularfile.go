package caddyconf

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	// maxFile bounds the files that settings refer to.
	maxFile = 1 << 20

	// maxFileTime is how long a file is waited for: one of a network that is down may never answer.
	maxFileTime = 5 * time.Second
)

// fileReads has the reads under way, by path. A read that hangs is shared by everybody who asks for the same file meanwhile, so that
// there is one goroutine for each file at most.
var fileReads singleflight.Group

// ReadRegularFile reads a file of at most 1 MB. It waits for no writer of a pipe, and not longer than a few seconds for a file that
// hangs. Its errors do not name the path.
func ReadRegularFile(path string) ([]byte, error) {
	return readWithin(maxFileTime, path, readRegularFile)
}

func readWithin(limit time.Duration, path string, read func(path string) ([]byte, error)) ([]byte, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case result := <-fileReads.DoChan(path, func() (any, error) { return read(path) }):
		data, _ := result.Val.([]byte)
		return data, result.Err
	case <-timer.C:
		return nil, fmt.Errorf("it was not read within %v", limit)
	}
}

func readRegularFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = checkRegular(info) // to open a device may have effects
	}
	if err != nil {
		return nil, withoutPath(err)
	}
	// By now there may be a pipe. To open that does not wait for its writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer f.Close()
	if info, err = f.Stat(); err == nil {
		err = checkRegular(info)
	}
	if err != nil {
		return nil, withoutPath(err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	if err != nil {
		return nil, withoutPath(err)
	}
	return data, nil
}

func checkRegular(info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return errors.New("it is a directory")
	case !info.Mode().IsRegular():
		return errors.New("it is not a regular file")
	default:
		return nil
	}
}

func withoutPath(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}
