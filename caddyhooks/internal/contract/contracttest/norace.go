//go:build !race

package contracttest

const raceDetector = false
