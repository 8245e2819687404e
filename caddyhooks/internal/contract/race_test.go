//go:build race

package contract

const raceDetector = true
