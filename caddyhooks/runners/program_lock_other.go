//go:build !unix || solaris || aix

package runners

// lockFolder cannot be done here.
func lockFolder(string) (release func(), ok bool) { return nil, false }
