//go:build windows || plan9 || solaris || aix || android

package bolt

import "os"

// unlock does nothing: the lock goes when the file is closed.
func unlock(*os.File) error { return nil }
