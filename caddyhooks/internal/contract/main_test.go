package contract

import (
	"os"
	"testing"
	"time"
)

// A test must not fail because other tests have the machine. What work costs is told by its estimate.
func TestMain(m *testing.M) {
	answerTime = time.Minute
	os.Exit(m.Run())
}
