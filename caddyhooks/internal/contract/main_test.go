package contract

import (
	"os"
	"testing"
	"time"
)

// A test must not fail because the machine is busy with others. The estimate says what work costs.
func TestMain(m *testing.M) {
	answerTime = time.Minute
	os.Exit(m.Run())
}
