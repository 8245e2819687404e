// Package wrapper is `caddy hooks exec`: a process that stands between Caddy and a program on Linux, and ends with the program,
// when Caddy asks for it, and when Caddy is gone. All that the program has started ends before the wrapper does: the kernel makes
// the wrapper the parent of every process below it that has lost its own ("child subreaper"), so none can leave.
//
// Every program that links this package is its own wrapper. That is decided in init, as early as Go lets a package do it: packages
// are initialised in the order of their names once all their imports are, so each import here would let many packages of Caddy go
// first. A test holds the list of imports.
package wrapper
