//go:build !unix || solaris || aix

package programs

// LockFolder cannot be done here.
func LockFolder(string) (release func(), ok bool) { return nil, false }
