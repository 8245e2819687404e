// Package procs reads the table of processes of Linux, and ends processes found there. It imports little, since it is
// part of the wrapper, which has to start fast.
package procs
