//go:build !unix || solaris || aix

package programs

// lockFolder cannot be done here.
func lockFolder(string) (release func(), ok bool) { return nil, false }
